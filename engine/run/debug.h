// Finding faulty kernels: guarded memory, errors that name their step, and observers, which see
// every tensor of a run. Applications that run engines do not need it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "anneal/engine/run/engine.h"

namespace anneal {

struct DebugOptions {
  // Read by Engine::load(). On a GPU each activation and each weight gets an allocation of its own,
  // between red zones of red_zone bytes (rounded up to 256; above 1 GiB fails with
  // kInvalidArgument), checked after each run, or after each step with synchronous_steps. A changed
  // zone fails the run with kInternal, naming the tensor and the steps that use it. Weights are
  // shared: the first context that checks reports a change, also one by another context. Workspaces
  // have no zones. Slower, and takes more memory (docs/gpu.md).
  bool separate_slots = false;
  size_t red_zone = 256;
  // Read by the context. A GPU finishes each step before the next one starts, so that an error
  // names the step that failed instead of all steps in flight. Slower.
  bool synchronous_steps = false;
};

// The iteration of a Loop or Scan whose body computed a tensor.
struct LoopIteration {
  std::string_view step;  // the Loop or Scan
  int64_t number;         // from 0
};

// A tensor of the engine, right after the step that computed it. Fused values are not observed.
struct Observation {
  std::string_view name;  // of the value in the model
  // Empty before the first step: an input of a body, or a view of an input or a weight.
  std::string_view step, kernel;
  TensorView value;  // valid during the call only: its memory is reused
  // For a tensor in a body: the enclosing loops, outermost first; valid during the call only.
  std::span<const LoopIteration> iterations = {};
};
using Observer = std::function<void(const Observation&)>;

// Sets the observer of the context's later runs; empty: none. Plan, memory and results stay the
// same. Inside the observer, calls that would change the context fail with kInvalidArgument. An
// exception of the observer ends the run and is thrown by it.
void observe(ExecutionContext& context, const Observer& observer);

}  // namespace anneal
