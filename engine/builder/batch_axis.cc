#include "anneal/engine/builder/batch_axis.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/engine/plan_check.h"
#include "anneal/engine/symbols.h"
#include "anneal/graph/op_traits.h"

namespace anneal {
namespace {

enum class Rows : uint8_t { kNone, kAxis0, kElsewhere };

class BatchCheck {
 public:
  explicit BatchCheck(const Plan& plan) : plan_(plan), counts_rows_(plan.slots.size()) {}

  Result<uint32_t> run() {
    if (plan_.devices.size() != 1 || !plan_.devices[0].starts_with("cpu"))
      return refuse("the plan is not for the CPU alone");
    if (!plan_.bodies.empty()) return refuse("the plan has control flow");
    if (std::string why = find_rows(); !why.empty()) return refuse(std::move(why));
    for (const Slot& slot : plan_.slots) rows_.push_back(rows_of(slot));
    const std::vector<bool> used = used_slots(plan_);
    for (size_t i = 0; i < plan_.slots.size(); ++i)
      if (used[i] && !lies_apart(i))
        return refuse(
            fmt::format("value \"{}\" has rows elsewhere than on axis 0, or a size that "
                        "depends on values",
                        plan_.slots[i].name));
    for (const uint32_t output : plan_.outputs)
      if (rows_[output] != Rows::kAxis0)
        return refuse(fmt::format("output \"{}\" has other rows", plan_.slots[output].name));
    for (const Step& step : plan_.steps)
      if (!step_keeps_apart(step))
        return refuse(
            fmt::format("step \"{}\" ({}) mixes rows", step.name, op_name(step.op.index())));
    return symbol_;
  }

 private:
  // Why there are none; empty if there are.
  std::string find_rows() {
    if (plan_.outputs.empty()) return "the plan has no output";
    const Slot& output = plan_.slots[plan_.outputs[0]];
    if (output.type.shape.rank() == 0) return fmt::format("output \"{}\" has no axis", output.name);
    size_ = output.type.shape[0];
    const auto symbol = plan_.sizes->symbol_index(size_);
    if (!symbol)
      return fmt::format("axis 0 of output \"{}\" is {}, not an open batch", output.name,
                         plan_.sizes->text(size_));
    const auto begins_with_rows = [&](uint32_t input) {
      const Shape& shape = plan_.slots[input].type.shape;
      return shape.rank() > 0 && shape[0] == size_;
    };
    if (std::ranges::none_of(plan_.inputs, begins_with_rows))
      return fmt::format("no input has the rows of output \"{}\" on axis 0", output.name);
    symbol_ = *symbol;
    const int64_t fewest = plan_.sizes->symbols()[symbol_].bounds.min;
    if (fewest > 1) return fmt::format("a part would have fewer than {} rows", fewest);
    return {};
  }
  bool has_symbol(Size size) const { return contains_symbol(*plan_.sizes, size, symbol_); }
  bool has_symbol(const Shape& shape) const {
    return std::any_of(shape.begin(), shape.end(), [&](Size size) { return has_symbol(size); });
  }

  Rows rows_of(const Slot& slot) const {
    const Shape& shape = slot.type.shape;
    if (has_symbol(slot.strides) || slot.storage == Storage::kDataDependent)
      return Rows::kElsewhere;
    if (!has_symbol(shape)) return Rows::kNone;
    if (!(shape[0] == size_)) return Rows::kElsewhere;
    for (int axis = 1; axis < shape.rank(); ++axis)
      if (has_symbol(shape[axis])) return Rows::kElsewhere;
    return Rows::kAxis0;
  }
  // A row of a view is a part of the same row of its base.
  bool lies_apart(size_t index) const {
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
  int rank_of(uint32_t slot) const { return plan_.slots[slot].type.shape.rank(); }
  bool none_have_rows(const Step& step, size_t first, size_t last) const {
    for (size_t i = first; i < last; ++i)
      if (has_rows(step, i)) return false;
    return true;
  }
  // Broadcasting must not turn rows into something else, and what has none is the same for each:
  // it has one index where they lie, not by chance as many as a whole batch.
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
  static bool asks_for_row(const Program& program) {
    return std::ranges::any_of(program.code(), [](const Instruction& instruction) {
      return instruction.opcode == Opcode::kIndex && instruction.immediate == 0;
    });
  }

  bool step_keeps_apart(const Step& step) {
    if (const auto* sizes = std::get_if<SizeTensor>(&step.op); sizes && step.epilogues.empty()) {
      counts_rows_[step.outputs[0]] =
          std::ranges::any_of(sizes->elements, [&](Size size) { return has_symbol(size); });
      return true;
    }
    const size_t inputs = step.inputs.size(), own = step.op_input_count;
    bool any = false;
    for (size_t i = 0; i < inputs; ++i) {
      any = any || has_rows(step, i);
      if (step.inputs[i] != kNoSlot && counts_rows_[step.inputs[i]] &&
          !(i < own && is_host_value(step.op, static_cast<int>(i))))
        return false;
    }
    for (const uint32_t output : step.outputs)
      if (any && !has_rows(output)) return false;
    if (!line_up(step, own, inputs) || std::ranges::any_of(step.epilogues, asks_for_row))
      return false;
    if (!any) return !has_rows(step.outputs[0]) || std::holds_alternative<Expand>(step.op);
    return op_keeps_apart(step);
  }

  // The op alone, given rows on axis 0 of each output and of some inputs. What has lost axis 0 has
  // no rows.
  bool op_keeps_apart(const Step& step) const {
    return std::visit([&](const auto& op) { return follows_rule(op, step); }, step.op);
  }
  bool follows_rule(const std::monostate&, const Step&) const { return false; }
  template <class T>
  bool follows_rule(const T& op, const Step& step) const {
    constexpr BatchRule rule = *op_traits<T>.batch;
    if constexpr (rule == BatchRule::kMixesRows) {
      return false;
    } else {
      const size_t inputs = step.op_input_count;
      if (rule == BatchRule::kFirstInput && !none_have_rows(step, 1, inputs)) return false;
      if (rule == BatchRule::kBroadcast) {
        const Program* program = program_of(step.op);
        if (!line_up(step, 0, inputs) || (program && asks_for_row(*program))) return false;
      }
      return keeps_apart(op, step);
    }
  }

  // What an op's rule asks for besides. One that names axes says which it may name.
  template <class T>
  requires((*op_traits<T>.batch == BatchRule::kFirstInput ||
            *op_traits<T>.batch == BatchRule::kBroadcast) &&
           !requires(const T& op) { op.axis; } &&
           !requires(const T& op) { op.axes; }) bool keeps_apart(const T&, const Step&) const {
    return true;
  }
  bool keeps_apart(const Softmax& op, const Step&) const { return op.axis != 0; }
  bool keeps_apart(const Concat& op, const Step&) const { return op.axis != 0; }
  bool keeps_apart(const Normalize& op, const Step&) const { return !has_axis_0(op.axes); }
  bool keeps_apart(const Resize& op, const Step&) const { return !has_axis_0(op.axes); }
  bool keeps_apart(const Reduce& op, const Step&) const { return !op.map.uses_index(); }
  bool keeps_apart(const ArgReduce&, const Step&) const { return true; }
  bool keeps_apart(const Reshape&, const Step&) const { return true; }
  bool keeps_apart(const Pool& op, const Step&) const { return !op.with_indices; }
  bool keeps_apart(const Expand&, const Step& step) const { return line_up(step, 0, 1); }
  bool keeps_apart(const Transpose& op, const Step&) const { return op.permutation[0] == 0; }
  bool keeps_apart(const Gather& op, const Step& step) const {
    return has_rows(step, 0) ? op.axis != 0 && !has_rows(step, 1) : op.axis == 0;
  }
  // No scale is that of a row.
  template <class T>
  requires(std::is_same_v<T, Quantize> ||
           std::is_same_v<T, Dequantize>) bool keeps_apart(const T& op, const Step& step) const {
    return is_scalar(step, 1) || (op.axis != 0 && op.block_size == 0);
  }
  static bool has_axis_0(const std::vector<int64_t>& axes) {
    return std::ranges::find(axes, 0) != axes.end();
  }
  // Of a matrix without a batch only the rows of the left one are rows.
  bool keeps_apart(const MatMul& op, const Step& step) const {
    if (!none_have_rows(step, 2, step.op_input_count)) return false;
    const bool has_batch = rank_of(step.outputs[0]) > 2;
    if (has_batch) {
      for (size_t i = 0; i < 2; ++i)
        if (has_rows(step, i) && rank_of(step.inputs[i]) < 3) return false;
      return line_up(step, 0, 2);
    }
    return !has_rows(step, 1) && !op.transpose_a && is_scalar(step, 2);
  }

  const Plan& plan_;
  uint32_t symbol_ = 0;
  Size size_;
  std::vector<Rows> rows_;         // by slot
  std::vector<bool> counts_rows_;  // by slot: its elements depend on how many there are
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

Result<uint32_t> separable_batch(const Plan& plan) { return BatchCheck(plan).run(); }

}  // namespace anneal
