#include "anneal/graph/op/batch_rows.h"

#include <algorithm>
#include <utility>

#include "anneal/graph/op/custom_operator.h"
#include "anneal/graph/op/op_traits.h"

namespace anneal {
namespace {

bool contains(const std::vector<int64_t>& axes, int axis) {
  return std::ranges::find(axes, axis) != axes.end();
}

bool reads_index(const Program& program, int axis) {
  return std::ranges::any_of(program.code(), [&](const Instruction& instruction) {
    return instruction.opcode == Opcode::kIndex &&
           instruction.immediate == static_cast<uint64_t>(axis);
  });
}

class LayerRows {
 public:
  explicit LayerRows(const BatchLayer& layer) : layer_(layer) {}

  size_t op_input_count() const { return layer_.op_input_count; }
  size_t input_count() const { return layer_.inputs.size(); }
  size_t output_count() const { return layer_.outputs.size(); }
  bool has(size_t input) const {
    return input < input_count() && layer_.inputs[input].shape != nullptr;
  }
  const BatchOperand& input(size_t i) const { return layer_.inputs[i]; }
  const BatchOperand& output(size_t i = 0) const { return layer_.outputs[i]; }
  bool has_rows(size_t input) const { return has(input) && layer_.inputs[input].has_rows(); }
  int axis_of(size_t input) const {
    return has(input) ? layer_.inputs[input].axis : BatchOperand::kNoRows;
  }
  int rank_of(size_t input) const { return layer_.inputs[input].shape->rank(); }
  bool none_have_rows(size_t first, size_t last) const {
    for (size_t i = first; i < last; ++i)
      if (has_rows(i)) return false;
    return true;
  }
  bool all_lie_on_axis_0() const {
    const auto lies = [](const BatchOperand& each) { return !each.has_rows() || each.axis == 0; };
    return std::ranges::all_of(layer_.inputs, lies) && std::ranges::all_of(layer_.outputs, lies);
  }
  // Whether inputs first to last - 1 broadcast along the rows of the outputs: an input has the same
  // rows, or one index on their axis. An axis that is by chance as long as a whole batch is
  // refused.
  bool line_up(size_t first, size_t last) const {
    for (size_t i = first; i < last; ++i) {
      if (!has(i)) continue;
      const Shape& own = *input(i).shape;
      for (const BatchOperand& output : layer_.outputs) {
        if (!output.has_rows()) continue;
        const int axis = output.axis - (output.shape->rank() - own.rank());
        if (has_rows(i) ? input(i).axis != axis : axis >= 0 && !(own[axis] == Size(1)))
          return false;
      }
    }
    return true;
  }
  bool is_scalar(size_t i) const {
    if (i >= op_input_count() || !has(i)) return true;
    const Shape& shape = *input(i).shape;
    return shape.rank() == 0 || (shape.rank() == 1 && shape[0] == Size(1));
  }

 private:
  const BatchLayer& layer_;
};

// Whether an op computes each row by itself, given rows in each output and in some inputs, and that
// its BatchRule holds. An op that names axes says which it may name.
template <class T>
requires((*op_traits<T>.batch == BatchRule::kFirstInput ||
          *op_traits<T>.batch == BatchRule::kBroadcast) &&
         !requires(const T& op) { op.axis; } &&
         !requires(const T& op) { op.axes; }) bool separates(const T&, const LayerRows& rows) {
  return rows.all_lie_on_axis_0();
}
bool separates(const Pointwise&, const LayerRows&) { return true; }
bool separates(const Softmax& op, const LayerRows& rows) { return op.axis != rows.output().axis; }
bool separates(const Concat& op, const LayerRows& rows) { return op.axis != rows.output().axis; }
bool separates(const Normalize& op, const LayerRows& rows) {
  return !contains(op.axes, rows.axis_of(0));
}
bool separates(const Resize& op, const LayerRows& rows) {
  return !contains(op.axes, rows.axis_of(0));
}
// The result would have no rows if their axis were reduced.
bool separates(const Reduce& op, const LayerRows&) { return !op.map.uses_index(); }
bool separates(const ArgReduce&, const LayerRows&) { return true; }
bool separates(const Pool& op, const LayerRows& rows) {
  return !op.with_indices && rows.all_lie_on_axis_0();
}
bool separates(const Expand&, const LayerRows& rows) { return rows.line_up(0, 1); }
bool separates(const Transpose& op, const LayerRows& rows) {
  return op.permutation[static_cast<size_t>(rows.output().axis)] == rows.axis_of(0);
}
// Elements of a row keep their order if as many rows come before them as a row has outer indices.
bool separates(const Reshape&, const LayerRows& rows) {
  const auto outer = [](const BatchOperand& operand) {
    std::pair<int64_t, std::vector<uint32_t>> product = {1, {}};
    for (int axis = 0; axis < operand.axis; ++axis) {
      const Size size = (*operand.shape)[axis];
      if (size.known())
        product.first *= size.value();
      else
        product.second.push_back(size.expression());
    }
    std::ranges::sort(product.second);
    return product;
  };
  return rows.has_rows(0) && outer(rows.input(0)) == outer(rows.output());
}
// A constant with as many rows as the batch would be given whole with each part, so the operator
// says which inputs have rows.
bool separates(const Custom& op, const LayerRows& rows) {
  const uint64_t batch = op.definition ? op.definition->description().row_inputs : 0;
  for (size_t i = 0; i < rows.op_input_count(); ++i)
    if (rows.has(i) && rows.has_rows(i) != (i < 64 && (batch >> i & 1) != 0)) return false;
  return batch != 0 && rows.all_lie_on_axis_0();
}
bool separates(const Gather& op, const LayerRows& rows) {
  return !rows.has_rows(0) || (op.axis != rows.axis_of(0) && !rows.has_rows(1));
}
// No scale is that of a row.
template <class T>
requires(std::is_same_v<T, Quantize> ||
         std::is_same_v<T, Dequantize>) bool separates(const T& op, const LayerRows& rows) {
  return rows.is_scalar(1) || (op.axis != rows.axis_of(0) && op.block_size == 0);
}
// Rows of the batch are products of their own, or rows of the left matrix.
bool separates(const MatMul& op, const LayerRows& rows) {
  if (!rows.none_have_rows(2, rows.op_input_count())) return false;
  const int from_end = rows.output().shape->rank() - rows.output().axis;
  if (from_end > 2) return rows.line_up(0, 2);
  return from_end == 2 && !rows.has_rows(1) && rows.is_scalar(2) &&
         rows.axis_of(0) == rows.rank_of(0) - (op.transpose_a ? 1 : 2);
}
bool separates(const Recurrent&, const LayerRows& rows) {
  enum { kX, kLengths = 4, kH0, kC0, kPeepholes };
  const auto on = [&](size_t input, int axis) {
    return !rows.has(input) || rows.axis_of(input) == axis;
  };
  bool result = on(kX, 1) && on(kLengths, 0) && on(kH0, 1) && on(kC0, 1) &&
                rows.none_have_rows(1, kLengths) && !rows.has_rows(kPeepholes);
  for (size_t i = 0; i < rows.output_count(); ++i)
    result &= rows.output(i).axis == (i == 0 ? 2 : 1);
  return result;
}
bool separates(const LinearAttention&, const LayerRows& rows) {
  bool result = rows.all_lie_on_axis_0();
  for (size_t i = 0; i < rows.op_input_count(); ++i) result &= !rows.has(i) || rows.has_rows(i);
  return result;
}
// Whether it takes the same part of each row. One that is as long as all rows, and begins at the
// first, takes all. Ends that count rows show in the shape of the output, if they are known.
bool separates(const Slice&, const LayerRows& rows) {
  enum { kStarts = 1, kAxes = 3, kSteps, kInputs };
  for (size_t i = kStarts; i < kInputs; ++i)
    if (rows.has_rows(i)) return false;
  const std::vector<Size>*starts = rows.input(kStarts).elements, *axes = rows.input(kAxes).elements,
        *steps = rows.input(kSteps).elements;
  if (!rows.has_rows(0) || !starts || !axes || !steps) return false;
  const int axis = rows.axis_of(0);
  for (size_t i = 0; i < axes->size(); ++i) {
    const Size size = (*axes)[i];
    if (!size.known()) return false;
    const bool is_of_rows = size.value() == axis || size.value() == axis - rows.rank_of(0);
    if (is_of_rows && !((*starts)[i] == Size(0) && (*steps)[i] == Size(1))) return false;
  }
  return true;
}
// Whether it pads each row alike, and adds none.
bool separates(const Pad&, const LayerRows& rows) {
  const std::vector<Size>* pads = rows.input(1).elements;
  const auto axis = static_cast<size_t>(rows.axis_of(0)), rank = pads ? pads->size() / 2 : 0;
  return rows.has_rows(0) && rows.none_have_rows(1, rows.op_input_count()) && axis < rank &&
         (*pads)[axis] == Size(0) && (*pads)[rank + axis] == Size(0);
}

// Whether the output differs with this input, which counts the rows, by its shape alone, and the
// shape is known.
bool gives_shape(const Op& op, size_t input, const BatchOperand& operand) {
  const auto is_known = [](Size size) { return !size.is_unknown(); };
  if (operand.elements == nullptr || !std::ranges::all_of(*operand.elements, is_known))
    return false;
  return ((std::holds_alternative<Reshape>(op) || std::holds_alternative<Expand>(op)) &&
          input == 1) ||
         (std::holds_alternative<Slice>(op) && input == 2);
}

bool follows_rule(const std::monostate&, const Op&, const LayerRows&) { return false; }
template <class T>
bool follows_rule(const T& op, const Op& any, const LayerRows& rows) {
  constexpr BatchRule rule = *op_traits<T>.batch;
  if constexpr (rule == BatchRule::kMixesRows) {
    return false;
  } else {
    const size_t inputs = rows.op_input_count();
    if (rule == BatchRule::kFirstInput && !rows.none_have_rows(1, inputs)) return false;
    if (rule == BatchRule::kBroadcast) {
      const Program* program = program_of(any);
      if (!rows.line_up(0, inputs) || (program && reads_index(*program, rows.output().axis)))
        return false;
    }
    return separates(op, rows);
  }
}

}  // namespace

bool computes_rows_apart(const BatchLayer& layer) {
  const LayerRows rows(layer);
  const size_t inputs = rows.input_count(), own = rows.op_input_count();
  for (size_t i = 0; i < inputs; ++i)
    if (rows.has(i) && rows.input(i).counts_rows &&
        !(i < own && gives_shape(layer.op, i, rows.input(i))))
      return false;
  const bool any = !rows.none_have_rows(0, inputs);
  for (const BatchOperand& output : layer.outputs)
    if (any && !output.has_rows()) return false;
  if (!rows.line_up(own, inputs)) return false;
  if (rows.output().has_rows())
    for (const Program& epilogue : layer.epilogues)
      if (reads_index(epilogue, rows.output().axis)) return false;
  if (!any) return !rows.output().has_rows() || std::holds_alternative<Expand>(layer.op);
  return std::visit([&](const auto& op) { return follows_rule(op, layer.op, rows); }, layer.op);
}

}  // namespace anneal
