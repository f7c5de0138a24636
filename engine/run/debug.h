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
  // Of EngineOptions. On devices other than the CPU, each activation and each weight has an
  // allocation of its own, between red zones of red_zone bytes (rounded up to 256; more than 1 GiB
  // fail with kInvalidArgument). The zones are checked after each run, or after each step with
  // synchronous_steps. A changed zone fails the run with kInternal, naming the tensor and the steps
  // that use it. Weights are shared, so a change is reported by the first context that checks,
  // which may not have made it. Kernels for GPUs have no workspace, so no workspace has a zone. The
  // emulated device finds every access beyond a tensor by itself, and compute-sanitizer does so if
  // red_zone is 0. Slower, and takes more memory.
  bool separate_slots = false;
  size_t red_zone = 256;
  // Of ContextOptions. A device other than the CPU finishes each step before the next, so that an
  // error names the step that failed instead of the steps that were in flight. Slower.
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
  TensorView value;  // valid during the call: its memory is used again
  // Of a tensor in a body: the loops around it, outermost first; valid during the call.
  std::span<const LoopIteration> iterations = {};
};
using Observer = std::function<void(const Observation&)>;

// Calls the observer in every later run of the context; an empty one ends that. Plan, memory and
// results stay the same. A call that changes the context fails in the observer with
// kInvalidArgument. An exception of the observer ends the run and leaves it.
void observe(ExecutionContext& context, const Observer& observer);

}  // namespace anneal
