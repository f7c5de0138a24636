#include "anneal/kernels/cpu/program/tape_space.h"

#include <algorithm>

namespace anneal::cpu {
namespace {

// Axes of more than one element, by falling stride of the view.
std::vector<int> memory_order(const TensorView& view) {
  std::vector<int> order;
  for (int axis = 0; axis < view.dims.rank(); ++axis)
    if (view.dims[axis] != 1) order.push_back(axis);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return std::abs(view.strides[a]) > std::abs(view.strides[b]);
  });
  return order;
}

Dims without(const Dims& dims, int axis) {
  Dims result;
  for (int i = 0; i < dims.rank(); ++i)
    if (i != axis) result.push_back(dims[i]);
  return result;
}

}  // namespace

TapeSpace::TapeSpace(const Tape& tape, std::span<const TensorView> inputs,
                     std::span<const TensorView> outputs, const Axes& axes, bool with_accumulators)
    : with_accumulators_(with_accumulators), input_count_(inputs.size()) {
  const Dims& dims = outputs[0].dims;
  for (const int64_t axis : axes.rows.span()) {
    row_dims_.push_back(dims[static_cast<int>(axis)]);
    rows_ *= row_dims_[row_dims_.rank() - 1];
  }
  if (axes.columns >= 0) columns_ = dims[axes.columns];

  const auto place = [&](size_t element_size, auto stride_of) {
    Strides strides;
    strides.element_size = static_cast<int64_t>(element_size);
    for (const int64_t axis : axes.rows.span())
      strides.rows.push_back(stride_of(static_cast<int>(axis)));
    if (axes.columns >= 0) strides.columns = stride_of(axes.columns);
    strides_.push_back(strides);
  };
  for (const auto views : {inputs, outputs}) {
    for (const TensorView& view : views) {
      place(size_of(view.dtype), [&](int axis) -> int64_t {
        const int own = axis - (dims.rank() - view.dims.rank());
        return own < 0 || view.dims[own] == 1 ? 0 : view.strides[own];
      });
    }
  }
  for (const int index : tape.index_axes())
    place(0, [&](int axis) -> int64_t { return axis == index ? 1 : 0; });
}

bool TapeSpace::follows(int outer, int inner) const {
  return row_dims_[outer] == 1 ||
         std::all_of(strides_.begin(), strides_.end(), [&](const Strides& s) {
           return s.rows[outer] == s.rows[inner] * row_dims_[inner];
         });
}

void TapeSpace::join_rows() {
  for (int inner = row_dims_.rank() - 1; inner > 0; --inner) {
    if (!follows(inner - 1, inner)) continue;
    for (Strides& strides : strides_) {
      strides.rows[inner - 1] = strides.rows[inner];
      strides.rows = without(strides.rows, inner);
    }
    row_dims_[inner - 1] *= row_dims_[inner];
    row_dims_ = without(row_dims_, inner);
  }
}

// If the last row axis and the columns are contiguous in every operand, they become one.
void TapeSpace::join_columns() {
  while (row_dims_.rank() > 0) {
    const int last = row_dims_.rank() - 1;
    const bool joins = std::all_of(strides_.begin(), strides_.end(), [&](const Strides& s) {
      return s.rows[last] == s.columns * columns_;
    });
    if (!joins) return;
    columns_ *= row_dims_[last];
    rows_ /= std::max<int64_t>(row_dims_[last], 1);
    for (Strides& strides : strides_) strides.rows = without(strides.rows, last);
    row_dims_ = without(row_dims_, last);
  }
}

// A tile takes rows along one axis only: it must not be a short one if columns are few.
void TapeSpace::put_long_row_axis_last() {
  const int last = row_dims_.rank() - 1;
  if (last < 1 || columns_ * row_dims_[last] >= 256) return;
  int longest = last;
  for (int axis = 0; axis < last; ++axis)
    if (row_dims_[axis] > row_dims_[longest]) longest = axis;
  std::swap(row_dims_[last], row_dims_[longest]);
  for (Strides& strides : strides_) std::swap(strides.rows[last], strides.rows[longest]);
}

TapeSpace TapeSpace::of_elements(const Tape& tape, std::span<const TensorView> inputs,
                                 std::span<const TensorView> outputs) {
  const auto order = memory_order(outputs[0]);
  Axes axes;
  if (!order.empty()) axes.columns = order.back();
  for (size_t i = 0; i + 1 < order.size(); ++i) axes.rows.push_back(order[i]);
  TapeSpace space(tape, inputs, outputs, axes, false);
  space.join_rows();
  space.join_columns();
  space.put_long_row_axis_last();
  return space;
}

TapeSpace TapeSpace::of_accumulators(const Tape& tape, std::span<const TensorView> inputs,
                                     std::span<const TensorView> outputs, const Axes& axes) {
  TapeSpace space(tape, inputs, outputs, axes, true);
  space.join_rows();
  return space;
}

TapeSpace TapeSpace::of_blocks(const Tape& tape, std::span<const TensorView> inputs,
                               std::span<const TensorView> outputs, const Axes& axes) {
  TapeSpace space(tape, inputs, outputs, axes, false);
  space.join_rows();
  return space;
}

void TapeSpace::run(RunTape run_tape, const Tape& tape, const Operands& operands,
                    const BlockRange& block, std::byte* scratch) const {
  const int64_t row_begin = block.row, row_end = row_begin + block.rows;
  const int64_t column_begin = block.column, column_end = column_begin + block.columns;
  if (row_begin >= row_end || column_begin >= column_end) return;
  std::array<TapePort, kMaxTapePorts> ports, sinks;
  const size_t first_input = with_accumulators_ ? 1 : 0;
  const int row_axes = row_dims_.rank();
  const int last = row_axes - 1;

  Dims index = Dims::filled(row_axes, 0);
  for (int64_t axis = last, rest = row_begin; axis >= 0; --axis) {
    index[static_cast<int>(axis)] = rest % row_dims_[static_cast<int>(axis)];
    rest /= row_dims_[static_cast<int>(axis)];
  }
  const auto offset = [&](const Strides& strides, int64_t column) {
    int64_t sum = column * strides.columns;
    for (int axis = 0; axis < row_axes; ++axis) sum += index[axis] * strides.rows[axis];
    return sum;
  };
  const auto aim = [&](TapePort& port, const TensorView& view, const Strides& strides,
                       int64_t column) {
    port.data = view.data + offset(strides, column) * strides.element_size;
    port.row_stride = row_axes > 0 ? strides.rows[last] : 0;
    port.column_stride = strides.columns;
  };

  const auto accumulator_size =
      with_accumulators_ ? static_cast<int64_t>(size_of(tape.input_types()[0])) : 0;
  const size_t output_count = operands.outputs.size();
  const size_t index_count = tape.index_axes().size();
  const size_t port_count = first_input + input_count_ + index_count;
  for (int64_t row = row_begin; row < row_end;) {
    int64_t count = row_end - row;
    if (row_axes > 0) count = std::min(count, row_dims_[last] - index[last]);
    if (with_accumulators_)
      ports[0] = {static_cast<std::byte*>(const_cast<void*>(operands.accumulators.data)) +
                      (row - row_begin) * operands.accumulators.stride * accumulator_size,
                  0, operands.accumulators.stride, 1};
    for (size_t i = 0; i < input_count_; ++i)
      aim(ports[first_input + i], operands.inputs[i], strides_[i], column_begin);
    for (size_t i = 0; i < output_count; ++i)
      aim(sinks[i], operands.outputs[i], strides_[input_count_ + i], column_begin);
    for (size_t i = 0; i < index_count; ++i) {
      const Strides& strides = strides_[input_count_ + output_count + i];
      ports[first_input + input_count_ + i] = {nullptr, offset(strides, column_begin),
                                               row_axes > 0 ? strides.rows[last] : 0,
                                               strides.columns};
    }
    run_tape(tape, count, column_end - column_begin, std::span(ports).first(port_count),
             std::span(sinks).first(output_count), scratch);
    row += count;
    if (row_axes == 0) continue;
    index[last] += count;
    for (int axis = last; axis > 0 && index[axis] == row_dims_[axis]; --axis) {
      index[axis] = 0;
      ++index[axis - 1];
    }
  }
}

}  // namespace anneal::cpu
