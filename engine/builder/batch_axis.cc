#include "anneal/engine/builder/batch_axis.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/fail.h"
#include "anneal/engine/plan_check.h"
#include "anneal/engine/symbols.h"
#include "anneal/graph/op/batch_rows.h"

namespace anneal {
namespace {

enum class RowPlace : uint8_t { kNone, kAxis0, kElsewhere };

// Where the rows of a batch lie in each slot of a plan.
class PlanRows {
 public:
  // symbol: the number of rows, which is `size`.
  PlanRows(const Plan& plan, uint32_t symbol, Size size)
      : plan_(plan), symbol_(symbol), size_(size), counts_of_rows_(plan.slots.size()) {
    for (const Slot& slot : plan_.slots) rows_.push_back(rows_of(slot));
  }

  bool has_symbol(Size size) const { return contains_symbol(*plan_.sizes, size, symbol_); }
  RowPlace operator[](size_t slot) const { return rows_[slot]; }
  // Rows on axis 0, or none. A row of a view is a part of the same row of its base.
  bool are_separate(size_t index) const {
    if (rows_[index] == RowPlace::kElsewhere) return false;
    const Slot& slot = plan_.slots[index];
    if (slot.storage != Storage::kView) return true;
    if (rows_[slot.base] != rows_[index] || has_symbol(slot.base_offset)) return false;
    return rows_[index] == RowPlace::kNone || slot.strides[0] == plan_.slots[slot.base].strides[0];
  }

  // Asked about each step, in order.
  bool keeps_rows_apart(const Step& step) {
    const auto* sizes = std::get_if<SizeTensor>(&step.op);
    if (sizes != nullptr && step.epilogues.empty()) {
      if (std::ranges::any_of(sizes->elements, [&](Size size) { return has_symbol(size); }))
        counts_of_rows_[step.outputs[0]] = &sizes->elements;
      return true;
    }
    const auto inputs = operands(step.inputs), outputs = operands(step.outputs);
    return computes_rows_apart({.op = step.op,
                                .epilogues = step.epilogues,
                                .op_input_count = static_cast<size_t>(step.op_input_count),
                                .inputs = inputs,
                                .outputs = outputs});
  }

 private:
  // Elements of constants are not read, so Slice and Pad of rows are refused.
  std::vector<BatchOperand> operands(const std::vector<uint32_t>& slots) const {
    std::vector<BatchOperand> result;
    for (const uint32_t slot : slots) {
      BatchOperand& operand = result.emplace_back();
      if (slot == kNoSlot) continue;
      operand.shape = &plan_.slots[slot].type.shape;
      if (rows_[slot] == RowPlace::kAxis0) operand.axis = 0;
      operand.elements = counts_of_rows_[slot];
      operand.counts_rows = operand.elements != nullptr;
    }
    return result;
  }
  RowPlace rows_of(const Slot& slot) const {
    const auto has_any = [&](const Shape& sizes) {
      return std::any_of(sizes.begin(), sizes.end(), [&](Size size) { return has_symbol(size); });
    };
    const Shape& shape = slot.type.shape;
    if (has_any(slot.strides) || slot.storage == Storage::kDataDependent)
      return RowPlace::kElsewhere;
    if (!has_any(shape)) return RowPlace::kNone;
    if (!(shape[0] == size_)) return RowPlace::kElsewhere;
    for (int axis = 1; axis < shape.rank(); ++axis)
      if (has_symbol(shape[axis])) return RowPlace::kElsewhere;
    return RowPlace::kAxis0;
  }

  const Plan& plan_;
  uint32_t symbol_;
  Size size_;
  std::vector<RowPlace> rows_;  // by slot
  // By slot: the elements, where one follows from the number of rows; else null.
  std::vector<const std::vector<Size>*> counts_of_rows_;
};

// The number of rows: axis 0 of the first output.
Result<uint32_t> find_symbol(const Plan& plan) {
  if (plan.outputs.empty()) return refuse("the plan has no output");
  const Slot& output = plan.slots[plan.outputs[0]];
  if (output.type.shape.rank() == 0)
    return refuse(fmt::format("output \"{}\" has no axis", output.name));
  const Size size = output.type.shape[0];
  const auto symbol = plan.sizes->symbol_index(size);
  if (!symbol)
    return refuse(fmt::format("axis 0 of output \"{}\" is {}, not an open batch", output.name,
                              plan.sizes->text(size)));
  const auto begins_with_rows = [&](uint32_t input) {
    const Shape& shape = plan.slots[input].type.shape;
    return shape.rank() > 0 && shape[0] == size;
  };
  if (std::ranges::none_of(plan.inputs, begins_with_rows))
    return refuse(fmt::format("no input has the rows of output \"{}\" on axis 0", output.name));
  if (const int64_t fewest = plan.sizes->symbols()[*symbol].bounds.min; fewest > 1)
    return refuse(fmt::format("a part would have fewer than {} rows", fewest));
  return *symbol;
}

}  // namespace

std::vector<bool> used_slots(const Plan& plan) {
  std::vector<bool> used(plan.slots.size());
  const auto use = [&](const std::vector<uint32_t>& slots) {
    for (const uint32_t slot : slots) {
      if (slot == kNoSlot) continue;
      used[slot] = true;
      if (plan.slots[slot].storage == Storage::kView) used[plan.slots[slot].base] = true;
    }
  };
  use(plan.inputs);
  use(plan.outputs);
  for (const Step& step : plan.steps) {
    use(step.inputs);
    use(step.outputs);
  }
  return used;
}

Result<uint32_t> separable_batch(const Plan& plan) {
  if (plan.devices.size() != 1 || !plan.devices[0].starts_with("cpu"))
    return refuse("the plan is not for the CPU alone");
  if (!plan.bodies.empty()) return refuse("the plan has control flow");
  Result<uint32_t> symbol = find_symbol(plan);
  if (!symbol) return symbol;
  PlanRows rows(plan, *symbol, plan.slots[plan.outputs[0]].type.shape[0]);
  const std::vector<bool> used = used_slots(plan);
  for (size_t i = 0; i < plan.slots.size(); ++i)
    if (used[i] && !rows.are_separate(i))
      return refuse(fmt::format(
          "value \"{}\" has rows elsewhere than on axis 0, or a size that depends on values",
          plan.slots[i].name));
  for (const uint32_t output : plan.outputs)
    if (rows[output] != RowPlace::kAxis0)
      return refuse(fmt::format("output \"{}\" has other rows", plan.slots[output].name));
  for (const Step& step : plan.steps)
    if (!rows.keeps_rows_apart(step))
      return refuse(
          fmt::format("step \"{}\" ({}) mixes rows", step.name, op_name(step.op.index())));
  return *symbol;
}

}  // namespace anneal
