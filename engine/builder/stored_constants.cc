#include "anneal/engine/builder/stored_constants.h"

#include "anneal/core/new_tensor.h"
#include "anneal/core/strided_copy.h"
#include "anneal/engine/plan_check.h"

namespace anneal {
namespace {

Tensor laid_out(const Tensor& constant, const Dims& strides) {
  auto fresh = allocate_tensor(constant.dtype(), {extent(constant.dims(), strides)});
  if (constant.count() > 0)
    strided_copy({constant.dtype(), constant.dims(), strides, fresh.data.data()}, constant.view());
  return fresh.tensor;
}

// Numbers the others anew.
void drop_unread_weights(Plan& plan) {
  std::vector<bool> read(plan.slots.size());
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    read[i] = read[i] || plan.slots[i].storage != Storage::kWeight;
    if (plan.slots[i].storage == Storage::kView) read[plan.slots[i].base] = true;
  }
  for (const Step& step : plan.steps)
    for (const uint32_t input : step.inputs)
      if (input != kNoSlot) read[input] = true;
  std::vector<uint32_t> number(plan.slots.size(), kNoSlot);
  std::vector<Slot> slots;
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    if (!read[i]) continue;
    number[i] = static_cast<uint32_t>(slots.size());
    slots.push_back(std::move(plan.slots[i]));
  }
  const auto renumber = [&](std::vector<uint32_t>& all) {
    for (uint32_t& slot : all)
      if (slot != kNoSlot) slot = number[slot];
  };
  for (Slot& slot : slots)
    if (slot.base != kNoSlot) slot.base = number[slot.base];
  renumber(plan.inputs);
  renumber(plan.outputs);
  for (Step& step : plan.steps) {
    renumber(step.inputs);
    renumber(step.outputs);
  }
  plan.slots = std::move(slots);
}

}  // namespace

uint64_t StoredConstants::add(const Tensor& constant, const Dims& strides) {
  const bool as_it_is = strides == row_major_strides(constant.dims());
  constants_.push_back(as_it_is ? constant : laid_out(constant, strides));
  return constants_.size() - 1;
}

void StoredConstants::pool(Plan& plan, WeightPool& weights) const {
  drop_unread_weights(plan);
  for (Slot& slot : plan.slots)
    if (slot.storage == Storage::kWeight)
      slot.offset = weights.add(constants_[slot.offset], slot.name);
  for (size_t i = 0; i < plan.input_defaults.size(); ++i)
    if (uint32_t& value = plan.input_defaults[i]; value != kNoDefault)
      value =
          static_cast<uint32_t>(weights.add(constants_[value], plan.slots[plan.inputs[i]].name));
}

}  // namespace anneal
