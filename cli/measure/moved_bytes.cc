#include "anneal/cli/measure/moved_bytes.h"

#include <algorithm>
#include <vector>

#include "anneal/engine/run/memory/bound_plan.h"

namespace anneal {
namespace {

uint64_t stored_bytes(const Slot& slot, const TensorView& bound) {
  if (slot.type.container != Container::kTensor || slot.type.dtype == DataType::kString ||
      slot.storage == Storage::kDataDependent)
    return 0;
  uint64_t bytes = size_of(slot.type.dtype);
  for (int axis = 0; axis < bound.dims.rank(); ++axis)
    if (bound.strides[axis] != 0 || bound.dims[axis] == 0)
      bytes *= static_cast<uint64_t>(bound.dims[axis]);
  return bytes;
}

}  // namespace

uint64_t moved_bytes(const Plan& plan, std::span<const Tensor> weights,
                     std::span<const Dims> dims_of_inputs) {
  const BoundPlan bound = bind_shapes(plan, weights, dims_of_inputs);
  uint64_t bytes = 0;
  const auto add = [&](uint32_t slot) {
    if (slot != kNoSlot) bytes += stored_bytes(plan.slots[slot], bound.slots[slot]);
  };
  for (const Step& step : plan.steps) {
    std::vector<uint32_t> inputs = step.inputs;
    std::ranges::sort(inputs);
    inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
    for (const uint32_t slot : inputs) add(slot);
    for (const uint32_t slot : step.outputs) add(slot);
  }
  return bytes;
}

}  // namespace anneal
