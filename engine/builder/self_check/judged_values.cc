#include "anneal/engine/builder/self_check/judged_values.h"

#include <algorithm>

#include "anneal/core/dtype_kinds.h"
#include "anneal/graph/op/op.h"

namespace anneal {
namespace {

bool selects(const Op& op) {
  return std::holds_alternative<ArgReduce>(op) || std::holds_alternative<TopK>(op) ||
         std::holds_alternative<NonZero>(op) || std::holds_alternative<Unique>(op) ||
         std::holds_alternative<NonMaxSuppression>(op) || std::holds_alternative<DecisionTrees>(op);
}

bool is_float_slot(const Plan& plan, uint32_t slot) {
  return slot != kNoSlot && is_float(plan.slots[slot].type.dtype);
}

}  // namespace

JudgedValues::JudgedValues(const Plan& plan) {
  add(plan, {});
  for (const uint32_t output : plan.outputs) {
    const Slot& slot = plan.slots[output];
    outputs_.insert(slot.name);
    if (is_float(slot.type.dtype))
      judged_.insert(slot.name);
    else if (slot.type.container == Container::kTensor && slot.type.dtype != DataType::kString &&
             !choices_.contains(slot.name))
      counted_.insert(slot.name);
  }
}

int JudgedValues::depth(const std::string& value) const {
  const auto found = depths_.find(value);
  return found == depths_.end() ? 1 : std::max(found->second, 1);
}

JudgedValues::Reach JudgedValues::add(const Plan& plan, Reach outside) {
  std::vector<int> depths(plan.slots.size(), outside.depth);
  std::vector<bool> later(plan.slots.size(), outside.is_later), written(plan.slots.size());
  // A view that no step writes is as its base; a base that no step writes holds its views.
  const auto at = [&](uint32_t slot) {
    while (!written[slot] && plan.slots[slot].storage == Storage::kView)
      slot = plan.slots[slot].base;
    return slot;
  };
  const auto mark = [&](uint32_t slot, int now, bool follows) {
    depths[slot] = std::max(depths[slot], now);
    later[slot] = later[slot] || follows;
  };
  Reach reach = outside;
  for (const Step& step : plan.steps) {
    int before = outside.depth;
    bool reads_float = false, follows = outside.is_later;
    for (const uint32_t input : step.inputs) {
      if (input == kNoSlot) continue;
      before = std::max(before, depths[at(input)]);
      follows = follows || later[at(input)];
      reads_float = reads_float || is_float_slot(plan, input);
    }
    Reach inside = {before, follows};
    for (const BodyUse& use : bodies_of(step.op)) {
      const Reach one = add(plan.bodies.at(static_cast<size_t>(use.body)), {before, follows});
      inside = {std::max(inside.depth, one.depth), inside.is_later || one.is_later};
    }
    before = inside.depth;
    follows = inside.is_later;
    const bool is_choice = selects(step.op) && reads_float;
    bool is_selection = is_choice;
    for (const uint32_t output : step.outputs) {
      if (output == kNoSlot) continue;
      const DataType dtype = plan.slots[output].type.dtype;
      const std::string& name = plan.slots[output].name;
      const bool is_count = reads_float && !is_choice && !is_float(dtype) && !is_8bit(dtype) &&
                            dtype != DataType::kString && bodies_of(step.op).empty();
      if (is_count) counted_.insert(name);
      if (is_choice) choices_.insert(name);
      if (reads_float && (is_count || dtype == DataType::kBool)) is_selection = true;
    }
    if (is_selection)
      for (const uint32_t input : step.inputs)
        if (is_float_slot(plan, input)) judged_.insert(plan.slots[input].name);
    for (const uint32_t output : step.outputs) {
      if (output == kNoSlot) continue;
      written[output] = true;
      uint32_t slot = output;
      for (const int now = before + (is_float_slot(plan, output) ? 1 : 0);;
           slot = plan.slots[slot].base) {
        mark(slot, now, follows || is_selection);
        if (plan.slots[slot].storage != Storage::kView) break;
      }
      if (is_selection && !is_float_slot(plan, output)) selections_.insert(plan.slots[output].name);
    }
    reach.is_later = reach.is_later || follows || is_selection;
  }
  for (uint32_t slot = 0; slot < plan.slots.size(); ++slot) {
    const std::string& name = plan.slots[slot].name;
    depths_[name] = std::max(depths_[name], depths[at(slot)]);
    if (later[at(slot)]) later_.insert(name);
    reach.depth = std::max(reach.depth, depths[slot]);
  }
  return reach;
}

}  // namespace anneal
