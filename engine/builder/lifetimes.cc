#include "anneal/engine/builder/lifetimes.h"

#include <algorithm>

#include "anneal/engine/memory_planner.h"
#include "anneal/engine/plan_check.h"

namespace anneal {
namespace {

std::vector<uint32_t> last_uses(const Plan& plan) {
  std::vector<uint32_t> last(plan.slots.size(), 0);
  for (uint32_t i = 0; i < plan.steps.size(); ++i) {
    for (const uint32_t input : plan.steps[i].inputs)
      if (input != kNoSlot) last[base_of(plan, input)] = i;
    for (const uint32_t output : plan.steps[i].outputs) last[base_of(plan, output)] = i;
  }
  return last;
}

// The first input of a step from which on its kernel can write its output over inputs, because it
// reads each input at the place that it writes.
size_t first_overwritable(const Plan& plan, const Step& step) {
  if (step.outputs.size() != 1) return step.inputs.size();
  if (std::holds_alternative<Pointwise>(step.op) && step.epilogues.empty()) return 0;
  const bool is_product =
      std::holds_alternative<Conv>(step.op) || std::holds_alternative<MatMul>(step.op);
  const bool is_on_cpu = plan.devices[step.device].starts_with("cpu");
  return is_product && is_on_cpu ? step.op_input_count : step.inputs.size();
}

// The base that step i may write its output over; kNoSlot if there is none.
uint32_t reusable_input(const Plan& plan, uint32_t i, const std::vector<uint32_t>& last) {
  const Step& step = plan.steps[i];
  const size_t first = first_overwritable(plan, step);
  if (first >= step.inputs.size()) return kNoSlot;
  const Slot& output = plan.slots[step.outputs[0]];
  if (output.storage != Storage::kArena) return kNoSlot;
  for (size_t at = first; at < step.inputs.size(); ++at) {
    const uint32_t input = step.inputs[at];
    if (input == kNoSlot) continue;
    const Slot& slot = plan.slots[input];
    const uint32_t base = base_of(plan, input);
    const bool fits = plan.slots[base].storage == Storage::kArena && last[base] == i &&
                      covers_base(plan, slot) && slot.type.shape == output.type.shape &&
                      slot.strides == output.strides && slot.device == output.device &&
                      size_of(slot.type.dtype) == size_of(output.type.dtype);
    bool read_otherwise = false;
    for (size_t k = 0; k < step.inputs.size(); ++k) {
      const uint32_t other = step.inputs[k];
      const bool is_same_place = other == input && k >= first;
      read_otherwise |= other != kNoSlot && !is_same_place && base_of(plan, other) == base;
    }
    if (fits && !read_otherwise) return base;
  }
  return kNoSlot;
}

}  // namespace

void share_in_place(Plan& plan) {
  std::vector<uint32_t> last = last_uses(plan);
  for (uint32_t i = 0; i < plan.steps.size(); ++i) {
    const uint32_t base = reusable_input(plan, i, last);
    if (base == kNoSlot) continue;
    const uint32_t output = plan.steps[i].outputs[0];
    for (Slot& slot : plan.slots)
      if (slot.storage == Storage::kView && slot.base == output) slot.base = base;
    plan.slots[output].storage = Storage::kView;
    plan.slots[output].base = base;
    last[base] = std::max(last[base], last[output]);
    plan.decisions.push_back({"memory", plan.steps[i].name, "writes over its input"});
  }
}

void place_arena(Plan& plan) {
  std::vector<uint32_t> first(plan.slots.size(), kNoSlot);
  const std::vector<uint32_t> last = last_uses(plan);
  for (uint32_t i = 0; i < plan.steps.size(); ++i)
    for (const auto* slots : {&plan.steps[i].inputs, &plan.steps[i].outputs})
      for (const uint32_t slot : *slots)
        if (slot != kNoSlot) first[base_of(plan, slot)] = std::min(first[base_of(plan, slot)], i);

  std::vector<uint32_t> owners;
  bool all_known = true;
  for (uint32_t i = 0; i < plan.slots.size(); ++i) {
    Slot& slot = plan.slots[i];
    all_known =
        all_known && known(slot.type.shape) && known(slot.strides) && slot.base_offset.known();
    if (slot.storage != Storage::kArena) continue;
    slot.first_step = first[i];
    slot.last_step = last[i];
    owners.push_back(i);
  }
  if (!all_known) return;
  plan.arena_bytes.clear();
  for (size_t device = 0; device < plan.devices.size(); ++device) {
    std::vector<Lifetime> lifetimes;
    std::vector<Slot*> slots;
    for (const uint32_t owner : owners) {
      Slot& slot = plan.slots[owner];
      if (slot.device != device) continue;
      const auto elements =
          static_cast<uint64_t>(extent(dims_of(slot.type.shape), dims_of(slot.strides)));
      lifetimes.push_back({elements * size_of(slot.type.dtype), slot.first_step, slot.last_step});
      slots.push_back(&slot);
    }
    const Placement placement = place(lifetimes);
    for (size_t i = 0; i < slots.size(); ++i) slots[i]->offset = placement.offsets[i];
    plan.arena_bytes.push_back(placement.total);
  }
}

}  // namespace anneal
