// One layer run by one kernel, with its tensors placed in memory in different ways.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "anneal/core/tensor.h"
#include "anneal/core/type.h"
#include "anneal/graph/op/infer.h"
#include "anneal/kernels/kernel.h"

namespace anneal::testing {

// A layer with its inputs' contents; absent optional inputs are nullopt.
struct TestLayer {
  Op op;
  std::vector<Program> epilogues = {};
  std::vector<std::optional<Tensor>> inputs = {};
  int op_input_count = 0;
  std::vector<Type> outputs = {};  // as the kernel's maker sees them; sizes may be symbols
  std::vector<Dims> output_dims = {};
};

// The types of a layer's inputs; Type{} for absent ones.
std::vector<Type> own_types(const TestLayer& layer);
// infer_layer() with inputs of these types, which may hold symbols, and the contents of those that
// do not.
Facts infer_with(const TestLayer& layer, const std::vector<Type>& types, SizeTable& sizes);
// The outputs' types as they are at run time, sizes included that only the reference finds.
Facts run_time_facts(const TestLayer& layer, const KernelEntry& reference, Device& device);

enum class Placement {
  kRowMajor,
  kChannelsLast,  // or as the kernel asks for it
  kPadded,        // gaps between elements and behind every row
  kReversed,      // negative strides
  kCut,  // axes 1 and 2 (of three axes 0 and 1) fastest: channels-last, with channels in groups
};
const char* to_string(Placement placement);

struct RunOptions {
  Placement placement = Placement::kRowMajor;
  int threads = 1;
  std::vector<int> constants = {};     // inputs given as constants, which lie as kernels ask for
  const SizeTable* sizes = nullptr;    // of symbols in input_types and outputs
  std::vector<Type> input_types = {};  // empty: the inputs' own
  std::span<const std::byte> tactic = {};
  bool ignore_speed_heuristics = false;
  int in_place = -1;  // the input that lies where output 0 does; -1: none
  // Whether nothing follows a tensor in its allocation, so that a checker finds accesses beyond it;
  // else a few bytes follow, which show if they were written.
  bool is_exact = false;
};

struct RunResult {
  std::string why_not;          // of the kernel's maker; then there are no outputs
  std::vector<Tensor> outputs;  // row-major
  std::vector<std::byte> tactic;
};

// A layer placed in memory, with a kernel made for it: so that the code of many is loaded at once.
class MadeLayer {
 public:
  // `layer` and `device` must live. What options point to need not.
  MadeLayer(const KernelEntry& entry, const TestLayer& layer, Device& device,
            const RunOptions& options);
  MadeLayer(MadeLayer&&) noexcept;
  ~MadeLayer();
  const std::string& why_not() const;     // of the kernel's maker; then it does not run
  std::vector<std::byte> tactic() const;  // that its kernel has; empty if there is none
  // Prepares and launches. Fails with kInternal if the kernel wrote beside its outputs or beyond
  // its workspace. REQUIRES: device.prepare_code() since it was made.
  RunResult run(int threads) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Makes, loads and runs one.
RunResult run_layer(const KernelEntry& entry, const TestLayer& layer, Device& device,
                    const RunOptions& options = {});

// The CPU's reference for an op: the last entry of the backend. Null if its name is not one of a
// reference.
const KernelEntry* reference_entry(const Backend& backend, size_t op);

}  // namespace anneal::testing
