// The work and the memory traffic of the steps of a plan, as the roofline model counts them
// (Williams, Waterman, Patterson: "Roofline: an insightful visual performance model for multicore
// architectures", Communications of the ACM 52(4), 2009).
//
// Operations are those of engine/builder/work/step_operations.h. They are of the layer and not of
// its kernel: a kernel that needs fewer, such as Winograd's, may exceed the roof.
//
// Bytes are the compulsory traffic: every operand is read once and every result is written once, in
// their element types. An operand that is repeated by a stride of 0 counts once, and a gather reads
// the elements that it takes. Packing, and reading an operand again, do not count.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/engine/plan.h"
#include "anneal/engine/run/engine.h"

namespace anneal {

// The numbers that a device multiplies for a step: those of a type that it has no arithmetic for
// are computed in f32.
enum class ProductType : uint8_t { kF32, kF64, kF16, kBF16, kInt8 };
std::string_view to_string(ProductType type);  // "f32", "int8"

enum class StepRole : uint8_t {
  kProduct,      // convolutions, products, attention, recurrent layers
  kElementwise,  // programs, quantization
  kMovement,     // copies, transposes, gathers
  kOther
};

struct RooflineStep {
  std::string name, kernel;
  StepRole role = StepRole::kOther;
  // Whether the roofline says something of it: sizes are known, and it runs on the plan's device.
  bool is_known = true;
  bool in_body = false;
  double runs = 1;  // of a body's step: how often a run takes it; an assumption if values decide
  // Of one run of the step.
  ProductType type = ProductType::kF32;
  double products = 0, others = 0;  // operations; `others` are in f32
  double weight_bytes = 0, activation_bytes = 0;
  // The input and output channels of a product without groups, which vectors or tensor cores take
  // several at a time; 0: not such a product.
  int64_t depth = 0, columns = 0;
  // The step whose result it reads, if no other step reads that: by index.
  std::optional<size_t> producer = {};
  double producer_bytes = 0;  // of that result
  std::string refusal = {};   // why the optimizer did not fuse the two, where it says so

  double operations() const { return products + others; }
  double bytes() const { return weight_bytes + activation_bytes; }
};

struct RooflinePlan {
  std::string target;
  size_t profile = 0;
  bool is_cpu = true, is_emulated = false;
  std::string isa = {};  // of a CPU: "full"; empty: this CPU does not have what the plan needs
  // At these sizes: "x: f32[1,3,224,224]", and rows of a batch that may be divided; 0: no such.
  std::vector<std::string> inputs = {};
  int64_t batch = 0;
  double touched_bytes = 0;  // by a run: weights and activations
  // Each followed by those of its bodies, as ExecutionContext::profile() has them.
  std::vector<RooflineStep> steps = {};

  // By all steps of known sizes in one run of the engine, also those on another device.
  double moved_bytes() const;
};

// The plan that the context ran last, at these sizes of its inputs.
RooflinePlan roofline_plan(const Engine& engine, const ExecutionContext& context,
                           std::span<const Dims> dims);
// As above, of a plan that need not have run; without a description of its device.
RooflinePlan roofline_plan(const Plan& plan, std::span<const Tensor> weights,
                           std::span<const Dims> dims);
// All plans of an engine file, at their opt sizes. Fails as inspect_engine() does, and with
// kInvalidArgument if no sizes are found that all layers accept.
std::vector<RooflinePlan> roofline_plans(const std::string& path, bool map,
                                         const std::vector<std::string>& libraries,
                                         const std::string& weights);

}  // namespace anneal
