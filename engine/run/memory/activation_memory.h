// The memory of a plan's activations, and a lower bound for any placement.
#pragma once
#include <span>
#include <string>

#include "anneal/engine/plan.h"

namespace anneal {

struct ActivationMemory {
  uint64_t arena_bytes = 0;  // as placed
  uint64_t port_bytes = 0;   // of the inputs and outputs of the model
  uint64_t live_bytes = 0;   // the most that live at one step: the lower bound
  bool at_best = false;      // the plan has open sizes: for those it is best at
  // "step \"conv1\" (Conv)": at which most bytes of the plan's first arena are in use.
  std::string fullest_step;
  double ratio() const {
    return live_bytes == 0 ? 1 : static_cast<double>(arena_bytes) / static_cast<double>(live_bytes);
  }
};
// Bodies count, each with its own arena; buffers whose size depends on values do not. Fails with
// kInvalidArgument if the sizes that an open plan is best at do not go together.
ActivationMemory activation_memory(const Plan& plan, std::span<const Tensor> weights);

}  // namespace anneal
