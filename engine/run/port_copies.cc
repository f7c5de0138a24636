#include "anneal/engine/run/port_copies.h"

#include <algorithm>

#include "anneal/engine/plan_check.h"

namespace anneal {
namespace {

bool touches(const Plan& plan, const std::vector<uint32_t>& slots, uint32_t base) {
  return std::ranges::any_of(
      slots, [&](uint32_t slot) { return slot != kNoSlot && base_of(plan, slot) == base; });
}

// Whether a step from `begin` on writes memory of the slot; `copy` does not count.
bool is_written(const Plan& plan, uint32_t slot, size_t begin, size_t copy) {
  for (size_t i = begin; i < plan.steps.size(); ++i)
    if (i != copy && touches(plan, plan.steps[i].outputs, slot)) return true;
  return false;
}

}  // namespace

PortCopies copies_of_input(const Plan& plan, uint32_t slot) {
  PortCopies copies{.is_used_by_cpu = touches(plan, plan.outputs, slot)};
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    if (!touches(plan, step.inputs, slot)) continue;
    if (step.kernel != kTransfer) {
      copies.is_used_by_cpu = true;
      continue;
    }
    const uint32_t copy = step.outputs[0];
    if (step.inputs[0] == slot && plan.slots[copy].storage == Storage::kArena &&
        !is_written(plan, copy, 0, i))
      copies.slots.push_back(copy);
  }
  return copies;
}

PortCopies copies_of_output(const Plan& plan, uint32_t slot) {
  PortCopies copies;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    const bool is_copy = step.kernel == kTransfer && step.outputs[0] == slot;
    if (touches(plan, step.inputs, slot) || (touches(plan, step.outputs, slot) && !is_copy))
      copies.is_used_by_cpu = true;
    if (!is_copy) continue;
    const uint32_t source = step.inputs[0];
    if (plan.slots[source].storage == Storage::kArena && !is_written(plan, source, i, i))
      copies.slots.push_back(source);
  }
  return copies;
}

}  // namespace anneal
