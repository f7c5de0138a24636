// What a model or an engine holds, as plain values, for `anneal inspect`.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "anneal/engine/onnx/memory_by_batch.h"  // IWYU pragma: export
#include "anneal/engine/onnx/memory_formula.h"
#include "anneal/engine/onnx/roofline/ceilings.h"          // IWYU pragma: export
#include "anneal/engine/onnx/roofline/plan_work.h"         // IWYU pragma: export
#include "anneal/engine/onnx/roofline/roofline_picture.h"  // IWYU pragma: export
#include "anneal/engine/run/engine.h"

namespace anneal {

struct InspectedPort {
  std::string name, type;  // "f32[N,3,224,224]"
  bool has_default = false;
  std::string state_output = {};  // the output that is its value in the next run
};
// A size of inputs that is open until they are set.
struct InspectedSize {
  std::string name;
  int64_t min = 0, opt = 0, max = 0;
};

struct InspectedModel {
  std::string graph, producer;
  int64_t opset = 0, ir_version = 0;
  std::vector<InspectedPort> inputs, outputs;
  std::vector<InspectedSize> sizes;
  std::vector<std::string> constant_inputs;  // initializers that are inputs, too, and constant
  uint64_t weight_bytes = 0;
  size_t weight_tensors = 0;
  size_t layers = 0, body_layers = 0;  // all; those in bodies of If and Loop
  bool has_bodies = false;
  std::map<std::string, size_t> ops;  // layers by op
};

struct InspectedBody;
struct InspectedStep {
  std::string name, op, op_text;  // "Conv"; with its fields
  std::string kernel, device;
  std::string tactic;        // "64x64x64, 2x2 warps, 3 stages"; empty: its kernel has no choice
  std::string library = {};  // whose kernel it is: "Anneal", "cuDNN", "cuBLASLt", "oneDNN"
  // The kernel's time, and the runner-up, as "cuda.conv.mma{64x64x64, ...}", with its own: the
  // fastest other kernel or, of a library's kernel, ours that takes its place. 0 and empty for
  // steps that were not timed.
  double microseconds = 0, runner_up_microseconds = 0;
  std::string runner_up = {};
  bool has_epilogue = false;
  std::vector<std::string> origins, outputs;
  std::vector<std::string> short_outputs;  // types without long expressions; "-": not used
  std::vector<InspectedBody> bodies;
};
struct InspectedBody {
  std::string name;
  std::vector<InspectedStep> steps;
};
struct InspectedDecision {
  std::string stage, subject, text;
  bool is_refused = false, is_fallback = false;
  int64_t saved_launches = 0, saved_bytes = 0;
};
struct InspectedMemory {
  std::string error;  // empty: the numbers are known
  uint64_t arena_bytes = 0, live_bytes = 0;
  double ratio = 0;
  bool at_best_sizes = false;
};
struct InspectedPlan {
  std::string target;
  size_t profile = 0;
  std::vector<std::string> devices;
  std::vector<InspectedPort> inputs, outputs;
  std::vector<InspectedSize> sizes;
  bool splits_batch = false, is_exact = false;
  std::vector<uint64_t> arena_bytes;  // by device; empty: placed when sizes are bound
  uint64_t code_bytes = 0;
  InspectedMemory memory;
  MemoryFormula formula;
  size_t weights_laid_out = 0;  // that lie as their kernels read them
  std::vector<InspectedStep> steps;
  std::vector<InspectedDecision> decisions;
};
struct InspectedEngine {
  std::string model, producer;
  uint64_t weight_bytes = 0;
  size_t weight_tensors = 0;
  std::vector<InspectedPlan> plans;
};

// A value of the model that has no memory in a plan.
struct VanishedValue {
  std::string name;
  std::string step;  // that it is fused into; empty: it was removed
  std::string why;   // it was removed
};
// The plan that a context ran last, or an engine's for profile 0.
struct PlanFacts {
  std::string target;
  size_t steps = 0;
  uint64_t weight_bytes = 0;            // of this plan alone
  std::vector<VanishedValue> vanished;  // also in bodies
};
PlanFacts plan_facts(const Engine& engine);
PlanFacts plan_facts(const ExecutionContext& context);

// Fail as importing does, and as loading does. map: the engine file is mapped, not read.
// libraries, weights: as in EngineOptions.
InspectedModel inspect_model(const std::string& path,
                             const std::vector<std::string>& libraries = {});
InspectedEngine inspect_engine(const std::string& path, bool map,
                               const std::vector<std::string>& libraries = {},
                               const std::string& weights = {});
// As JSON: docs/cli.md, `anneal inspect --json`.
std::string json_text(const InspectedModel& model);
std::string json_text(const InspectedEngine& engine);
// The imported graph, and the plans, as text.
std::string graph_text_of(const std::string& path, const std::vector<std::string>& libraries = {});
std::string plans_text_of(const std::string& path, bool map,
                          const std::vector<std::string>& libraries = {},
                          const std::string& weights = {});

}  // namespace anneal
