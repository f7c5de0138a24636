#include "anneal/engine/builder/lifetimes.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

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

bool is_scatter(const Step& step) {
  return std::holds_alternative<ScatterElements>(step.op) ||
         std::holds_alternative<ScatterND>(step.op);
}

// The inputs of a step that its kernel can write an output over, because it reads each of them at
// the place that it writes.
struct InputRange {
  size_t begin = 0, end = 0;
};
InputRange overwritable_inputs(const Plan& plan, const Step& step, size_t output) {
  if (std::holds_alternative<LinearAttention>(step.op)) {
    constexpr size_t kState = 3;
    const bool is_state = output == 1 && step.op_input_count > kState;
    return is_state && plan.devices[step.device].starts_with("cpu") ? InputRange{kState, kState + 1}
                                                                    : InputRange{};
  }
  if (step.outputs.size() != 1) return {};
  if (std::holds_alternative<Pointwise>(step.op) && step.epilogues.empty())
    return {0, step.inputs.size()};
  if (!plan.devices[step.device].starts_with("cpu")) return {};
  if (is_scatter(step) && step.epilogues.empty()) return {0, 1};
  const bool is_product =
      std::holds_alternative<Conv>(step.op) || std::holds_alternative<MatMul>(step.op);
  return is_product ? InputRange{step.op_input_count, step.inputs.size()} : InputRange{};
}

// The base that step i may write its output over; kNoSlot if there is none.
uint32_t reusable_input(const Plan& plan, uint32_t i, const std::vector<uint32_t>& last) {
  const Step& step = plan.steps[i];
  const auto [first, end] = overwritable_inputs(plan, step, 0);
  if (first >= end) return kNoSlot;
  const Slot& output = plan.slots[step.outputs[0]];
  // In other memory a scatter copies all of its data, which may be much more than it writes.
  const bool may_move = is_scatter(step) && output.storage == Storage::kOutput;
  const bool is_late = is_scatter(step) && output.storage == Storage::kDataDependent;
  if (output.storage != Storage::kArena && !may_move && !is_late) return kNoSlot;
  const Storage wanted = is_late ? Storage::kDataDependent : Storage::kArena;
  for (size_t at = first; at < end; ++at) {
    const uint32_t input = step.inputs[at];
    if (input == kNoSlot) continue;
    const Slot& slot = plan.slots[input];
    const uint32_t base = base_of(plan, input);
    const bool fits = plan.slots[base].storage == wanted && last[base] == i &&
                      std::ranges::count(plan.outputs, base) == 0 && covers_base(plan, slot) &&
                      slot.type.shape == output.type.shape && slot.strides == output.strides &&
                      slot.device == output.device &&
                      size_of(slot.type.dtype) == size_of(output.type.dtype);
    bool read_otherwise = false;
    for (size_t k = 0; k < step.inputs.size(); ++k) {
      const uint32_t other = step.inputs[k];
      const bool is_same_place = other == input && k >= first && k < end;
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
    plan.decisions.push_back({"memory", plan.steps[i].name, "writes over its input"});
    if (plan.slots[output].storage == Storage::kDataDependent) {
      const uint32_t owner = plan.slots[base].base;
      plan.slots[output].base = owner == kNoSlot ? base : owner;
      continue;
    }
    // The memory of a port is the caller's: what was computed before lies there.
    const bool is_port = plan.slots[output].storage == Storage::kOutput;
    const uint32_t kept = is_port ? output : base, view = is_port ? base : output;
    for (Slot& slot : plan.slots)
      if (slot.storage == Storage::kView && slot.base == view) slot.base = kept;
    plan.slots[view].storage = Storage::kView;
    plan.slots[view].base = kept;
    last[kept] = std::max(last[kept], last[view]);
  }
}

namespace {

// Whether the step gives the first numbers of a pad that are known to be 0.
bool begins_with_zeros(const Plan& plan, uint32_t pads, int count) {
  for (const Step& step : plan.steps) {
    const auto* sizes = std::get_if<SizeTensor>(&step.op);
    if (!sizes || step.outputs[0] != pads || !step.epilogues.empty()) continue;
    const auto first = std::span(sizes->elements).first(static_cast<size_t>(count));
    return std::ranges::all_of(first, [](Size size) { return size == Size(0); });
  }
  return false;
}

// The inputs that the step reads at the places where it writes the output, if that has their dims.
InputRange updated_inputs(const Plan& plan, const Step& step, size_t output) {
  if (step.kernel != "cpu.pad.copy") return overwritable_inputs(plan, step, output);
  const int rank = plan.slots[step.outputs[0]].type.shape.rank();
  return {0, begins_with_zeros(plan, step.inputs[1], rank) ? size_t{1} : size_t{0}};
}

// Whether the step makes all of the output of all of the input, each element of the one at the same
// place.
bool updates(const Plan& plan, const Step& step, uint32_t input, uint32_t output) {
  const auto written = std::ranges::find_if(
      step.outputs, [&](uint32_t slot) { return base_of(plan, slot) == output; });
  if (written == step.outputs.end() || !covers_base(plan, plan.slots[*written]) ||
      plan.slots[*written].type.shape != plan.slots[output].type.shape)
    return false;
  const InputRange range =
      updated_inputs(plan, step, static_cast<size_t>(written - step.outputs.begin()));
  bool reads = false;
  for (size_t k = 0; k < step.inputs.size(); ++k) {
    const uint32_t slot = step.inputs[k];
    if (slot == kNoSlot || base_of(plan, slot) != input) continue;
    if (k < range.begin || k >= range.end || !covers_base(plan, plan.slots[slot]) ||
        plan.slots[slot].type.shape != plan.slots[input].type.shape)
      return false;
    reads = true;
  }
  return reads;
}

bool is_updated(const Plan& plan, uint32_t input, uint32_t output) {
  const Type &from = plan.slots[input].type, &to = plan.slots[output].type;
  if (input == output || from.dtype != to.dtype || from.shape.rank() != to.shape.rank() ||
      plan.slots[output].storage != Storage::kOutput)
    return false;
  for (int axis = 0; axis < from.shape.rank(); ++axis)
    if (from.shape[axis].known() && to.shape[axis].known() && from.shape[axis] != to.shape[axis])
      return false;
  // Where a batch runs in parts, both must be cut into them alike.
  if (plan.batch_split && (from.shape.rank() == 0 || from.shape[0] != to.shape[0])) return false;
  bool is_written = false;
  for (const Step& step : plan.steps) {
    const auto is_of = [&](uint32_t memory) {
      return [&plan, memory](uint32_t slot) {
        return slot != kNoSlot && base_of(plan, slot) == memory;
      };
    };
    const bool writes = std::ranges::any_of(step.outputs, is_of(output));
    if (is_written && std::ranges::any_of(step.inputs, is_of(input))) return false;
    if (writes && !is_written && !updates(plan, step, input, output)) return false;
    is_written |= writes;
  }
  return is_written;
}

}  // namespace

void find_updated_ports(Plan& plan) {
  if (plan.devices.size() != 1 || !plan.devices[0].starts_with("cpu")) return;
  for (uint32_t output = 0; output < plan.outputs.size(); ++output)
    for (uint32_t input = 0; input < plan.inputs.size(); ++input)
      if (is_updated(plan, plan.inputs[input], plan.outputs[output])) {
        plan.updated_ports.push_back({input, output});
        plan.decisions.push_back({"memory", plan.slots[plan.outputs[output]].name,
                                  fmt::format("may be the memory of input \"{}\"",
                                              plan.slots[plan.inputs[input]].name)});
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
