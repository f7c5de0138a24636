#include "anneal/engine/builder/batch_axis.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/fail.h"
#include "anneal/engine/plan_check.h"
#include "anneal/engine/symbols.h"
#include "anneal/graph/op/custom_operator.h"
#include "anneal/graph/op/op_traits.h"

namespace anneal {
namespace {

enum class Rows : uint8_t { kNone, kAxis0, kElsewhere };

// Where the rows of a batch lie in each slot of a plan.
class BatchRows {
 public:
  // symbol: the number of rows, which is `size`.
  BatchRows(const Plan& plan, uint32_t symbol, Size size)
      : plan_(plan), symbol_(symbol), size_(size) {
    for (const Slot& slot : plan_.slots) rows_.push_back(rows_of(slot));
  }

  bool has_symbol(Size size) const { return contains_symbol(*plan_.sizes, size, symbol_); }
  Rows operator[](size_t slot) const { return rows_[slot]; }
  // Rows on axis 0, or none. A row of a view is a part of the same row of its base.
  bool are_separate(size_t index) const {
    if (rows_[index] == Rows::kElsewhere) return false;
    const Slot& slot = plan_.slots[index];
    if (slot.storage != Storage::kView) return true;
    if (rows_[slot.base] != rows_[index] || has_symbol(slot.base_offset)) return false;
    return rows_[index] == Rows::kNone || slot.strides[0] == plan_.slots[slot.base].strides[0];
  }

  bool has_rows(uint32_t slot) const { return slot != kNoSlot && rows_[slot] == Rows::kAxis0; }
  bool has_rows(const Step& step, size_t input) const {
    return input < step.inputs.size() && has_rows(step.inputs[input]);
  }
  bool none_have_rows(const Step& step, size_t first, size_t last) const {
    for (size_t i = first; i < last; ++i)
      if (has_rows(step, i)) return false;
    return true;
  }
  int rank_of(uint32_t slot) const { return plan_.slots[slot].type.shape.rank(); }
  // Whether inputs first to last - 1 broadcast along the rows of the outputs: an input has the same
  // rows, or one index on their axis. An axis that is by chance as long as a whole batch is
  // refused.
  bool line_up(const Step& step, size_t first, size_t last) const {
    for (size_t i = first; i < last; ++i) {
      if (step.inputs[i] == kNoSlot) continue;
      const Shape& own = plan_.slots[step.inputs[i]].type.shape;
      for (const uint32_t output : step.outputs) {
        if (!has_rows(output)) continue;
        const bool at_rows = own.rank() > 0 && own.rank() == rank_of(output);
        if (has_rows(step, i) ? !at_rows : at_rows && !(own[0] == Size(1))) return false;
      }
    }
    return true;
  }
  bool is_scalar(const Step& step, size_t input) const {
    if (input >= step.op_input_count || step.inputs[input] == kNoSlot) return true;
    const Shape& shape = plan_.slots[step.inputs[input]].type.shape;
    return shape.rank() == 0 || (shape.rank() == 1 && shape[0] == Size(1));
  }

 private:
  Rows rows_of(const Slot& slot) const {
    const auto has_any = [&](const Shape& sizes) {
      return std::any_of(sizes.begin(), sizes.end(), [&](Size size) { return has_symbol(size); });
    };
    const Shape& shape = slot.type.shape;
    if (has_any(slot.strides) || slot.storage == Storage::kDataDependent) return Rows::kElsewhere;
    if (!has_any(shape)) return Rows::kNone;
    if (!(shape[0] == size_)) return Rows::kElsewhere;
    for (int axis = 1; axis < shape.rank(); ++axis)
      if (has_symbol(shape[axis])) return Rows::kElsewhere;
    return Rows::kAxis0;
  }

  const Plan& plan_;
  uint32_t symbol_;
  Size size_;
  std::vector<Rows> rows_;  // by slot
};

bool has_axis_0(const std::vector<int64_t>& axes) {
  return std::ranges::find(axes, 0) != axes.end();
}

// Whether an op computes each row by itself, given rows on axis 0 of each output and of some
// inputs, and that its BatchRule holds. An op that names axes says which it may name.
template <class T>
requires((*op_traits<T>.batch == BatchRule::kFirstInput ||
          *op_traits<T>.batch == BatchRule::kBroadcast) &&
         !requires(const T& op) { op.axis; } &&
         !requires(const T& op) { op.axes; }) bool separates(const T&, const Step&,
                                                             const BatchRows&) {
  return true;
}
bool separates(const Softmax& op, const Step&, const BatchRows&) { return op.axis != 0; }
bool separates(const Concat& op, const Step&, const BatchRows&) { return op.axis != 0; }
bool separates(const Normalize& op, const Step&, const BatchRows&) { return !has_axis_0(op.axes); }
bool separates(const Resize& op, const Step&, const BatchRows&) { return !has_axis_0(op.axes); }
bool separates(const Reduce& op, const Step&, const BatchRows&) { return !op.map.uses_index(); }
bool separates(const ArgReduce&, const Step&, const BatchRows&) { return true; }
bool separates(const Reshape&, const Step&, const BatchRows&) { return true; }
// A constant with as many rows as the batch would be given whole with each part, so the operator
// says which inputs have rows.
bool separates(const Custom& op, const Step& step, const BatchRows& rows) {
  const uint64_t batch = op.definition ? op.definition->description().row_inputs : 0;
  for (size_t i = 0; i < step.op_input_count; ++i)
    if (step.inputs[i] != kNoSlot && rows.has_rows(step, i) != (i < 64 && (batch >> i & 1) != 0))
      return false;
  return batch != 0;
}
bool separates(const Pool& op, const Step&, const BatchRows&) { return !op.with_indices; }
bool separates(const Expand&, const Step& step, const BatchRows& rows) {
  return rows.line_up(step, 0, 1);
}
bool separates(const Transpose& op, const Step&, const BatchRows&) {
  return op.permutation[0] == 0;
}
bool separates(const Gather& op, const Step& step, const BatchRows& rows) {
  return rows.has_rows(step, 0) ? op.axis != 0 && !rows.has_rows(step, 1) : op.axis == 0;
}
// No scale is that of a row.
template <class T>
requires(std::is_same_v<T, Quantize> ||
         std::is_same_v<T, Dequantize>) bool separates(const T& op, const Step& step,
                                                       const BatchRows& rows) {
  return rows.is_scalar(step, 1) || (op.axis != 0 && op.block_size == 0);
}
// In a product of two matrices, only the rows of the left one are rows of the batch.
bool separates(const MatMul& op, const Step& step, const BatchRows& rows) {
  if (!rows.none_have_rows(step, 2, step.op_input_count)) return false;
  const bool has_batch = rows.rank_of(step.outputs[0]) > 2;
  if (has_batch) {
    for (size_t i = 0; i < 2; ++i)
      if (rows.has_rows(step, i) && rows.rank_of(step.inputs[i]) < 3) return false;
    return rows.line_up(step, 0, 2);
  }
  return !rows.has_rows(step, 1) && !op.transpose_a && rows.is_scalar(step, 2);
}

bool reads_row_index(const Program& program) {
  return std::ranges::any_of(program.code(), [](const Instruction& instruction) {
    return instruction.opcode == Opcode::kIndex && instruction.immediate == 0;
  });
}

bool follows_rule(const std::monostate&, const Step&, const BatchRows&) { return false; }
template <class T>
bool follows_rule(const T& op, const Step& step, const BatchRows& rows) {
  constexpr BatchRule rule = *op_traits<T>.batch;
  if constexpr (rule == BatchRule::kMixesRows) {
    return false;
  } else {
    const size_t inputs = step.op_input_count;
    if (rule == BatchRule::kFirstInput && !rows.none_have_rows(step, 1, inputs)) return false;
    if (rule == BatchRule::kBroadcast) {
      const Program* program = program_of(step.op);
      if (!rows.line_up(step, 0, inputs) || (program && reads_row_index(*program))) return false;
    }
    return separates(op, step, rows);
  }
}

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

// The proof, step by step in the order of the plan.
class StepCheck {
 public:
  StepCheck(const Plan& plan, const BatchRows& rows)
      : rows_(rows), depends_on_count_(plan.slots.size()) {}

  // Whether each row of the outputs follows from the same row of the inputs.
  bool passes(const Step& step) {
    if (const auto* sizes = std::get_if<SizeTensor>(&step.op); sizes && step.epilogues.empty()) {
      depends_on_count_[step.outputs[0]] =
          std::ranges::any_of(sizes->elements, [&](Size size) { return rows_.has_symbol(size); });
      return true;
    }
    const size_t inputs = step.inputs.size(), own = step.op_input_count;
    for (size_t i = 0; i < inputs; ++i)
      if (step.inputs[i] != kNoSlot && depends_on_count_[step.inputs[i]] &&
          !(i < own && is_host_value(step.op, static_cast<int>(i))))
        return false;
    const bool any = !rows_.none_have_rows(step, 0, inputs);
    for (const uint32_t output : step.outputs)
      if (any && !rows_.has_rows(output)) return false;
    if (!rows_.line_up(step, own, inputs) || std::ranges::any_of(step.epilogues, reads_row_index))
      return false;
    if (!any) return !rows_.has_rows(step.outputs[0]) || std::holds_alternative<Expand>(step.op);
    return std::visit([&](const auto& op) { return follows_rule(op, step, rows_); }, step.op);
  }

 private:
  const BatchRows& rows_;
  std::vector<bool> depends_on_count_;  // by slot: an element follows from the number of rows
};

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
  const Result<uint32_t> symbol = find_symbol(plan);
  if (!symbol) return symbol;
  const BatchRows rows(plan, *symbol, plan.slots[plan.outputs[0]].type.shape[0]);
  const std::vector<bool> used = used_slots(plan);
  for (size_t i = 0; i < plan.slots.size(); ++i)
    if (used[i] && !rows.are_separate(i))
      return refuse(fmt::format(
          "value \"{}\" has rows elsewhere than on axis 0, or a size that depends on values",
          plan.slots[i].name));
  for (const uint32_t output : plan.outputs)
    if (rows[output] != Rows::kAxis0)
      return refuse(fmt::format("output \"{}\" has other rows", plan.slots[output].name));
  StepCheck check(plan, rows);
  for (const Step& step : plan.steps)
    if (!check.passes(step))
      return refuse(
          fmt::format("step \"{}\" ({}) mixes rows", step.name, op_name(step.op.index())));
  return *symbol;
}

}  // namespace anneal
