// Shape rules of ops that move elements along axes without looking at them: Transpose, Concat,
// Slice, Pad.
#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/dtype_kinds.h"
#include "anneal/graph/op/infer_rules.h"

namespace anneal {
namespace {

using rules::Elements;
using rules::refuse;

// How one axis of x is sliced. Where count and start cannot be inferred, they are unknown() and
// step is 0.
struct SliceRange {
  Size start = 0, count;
  int64_t step = 1;
};

// An index as ONNX Slice takes it: from the end where negative, then clamped to [low, size + high].
Size clamped(Size index, Size size, int64_t low, int64_t high, SizeTable& sizes) {
  if (index.is_unknown() || size.is_unknown()) return Size::unknown();
  const Bounds at = sizes.range(index), whole = sizes.range(size);
  const Size last = sizes.add(size, high);
  if (at.min >= whole.max) return last;
  if (at.max < 0 && at.max + whole.max <= low) return rules::at_most(low, last, sizes);
  if (at.min < 0 && at.max >= 0) return Size::unknown();  // its sign decides what it means
  const Size from_start = at.max < 0 ? sizes.add(size, index) : index;
  return rules::at_most(rules::at_least(from_start, low, sizes), last, sizes);
}

SliceRange cut(Size start, Size end, Size step, Size size, SizeTable& sizes) {
  const SliceRange unknown{Size::unknown(), Size::unknown(), 0};
  if (step == Size(0)) refuse("a slice in steps of 0");
  if (!step.known()) return unknown;
  const bool forward = step.value() > 0;
  const Size from = clamped(start, size, 0, forward ? 0 : -1, sizes);
  const Size to = clamped(end, size, forward ? 0 : -1, forward ? 0 : -1, sizes);
  if (from.is_unknown() || to.is_unknown()) return unknown;
  const Size way = rules::at_least(forward ? sizes.sub(to, from) : sizes.sub(from, to), 0, sizes);
  // Steps longer than the way are all alike, and -INT64_MIN is not a number.
  const int64_t longest = std::max<int64_t>(1, sizes.range(way).max);
  const int64_t pace =
      forward ? std::min(step.value(), longest) : -std::max(step.value(), -longest);
  return {from, sizes.ceil_div(way, pace), forward ? pace : -pace};
}

// Row-major strides of a tensor of known shape.
Dims strides_of(const Shape& shape) { return row_major_strides(dims_of(shape)); }

}  // namespace

Facts infer(const BitCast& op, const InferInputs& inputs) {
  const Type& x = inputs.type(0);
  for (const DataType dtype : {x.dtype, op.dtype})
    if (dtype == DataType::kString) refuse("the bits of strings");
  // The other bytes of a bool have no meaning.
  if (op.dtype == DataType::kBool && x.dtype != DataType::kBool) refuse("bits as bool");
  if (size_of(x.dtype) != size_of(op.dtype))
    refuse(fmt::format("the bits of {} as {}", to_string(x.dtype), to_string(op.dtype)));
  return {rules::make_fact(op.dtype, x.shape)};
}

Facts infer(const Transpose& op, const InferInputs& inputs) {
  const Type& x = inputs.type(0);
  const int rank = x.shape.rank();
  if (static_cast<int>(op.permutation.size()) != rank)
    refuse(fmt::format("a permutation of {} axes for rank {}", op.permutation.size(), rank));
  std::vector<bool> taken(op.permutation.size());
  Shape shape;
  for (int64_t from : op.permutation) {
    const int axis = rules::require_axis(from, rank);
    if (taken[static_cast<size_t>(axis)]) refuse(fmt::format("axis {} is given twice", axis));
    taken[static_cast<size_t>(axis)] = true;
    shape.push_back(x.shape[axis]);
  }
  if (!known(x.shape)) return {rules::make_fact(x.dtype, shape)};
  const Dims own = strides_of(x.shape);
  Dims strides;
  for (int64_t from : op.permutation) strides.push_back(own[static_cast<int>(from)]);
  return {rules::make_fact(x.dtype, shape,
                           rules::move_elements(inputs.elements(0), shape, [&](const Dims& at) {
                             return rules::flat_index(at, strides);
                           }))};
}

Facts infer(const Concat& op, const InferInputs& inputs) {
  SizeTable& sizes = inputs.sizes();
  const Type& first = inputs.type(0);
  const int axis = rules::require_axis(op.axis, first.shape.rank());
  Shape shape = first.shape;
  // Floats that are known in part are data with a constant at one end, not arithmetic on sizes.
  bool anything = inputs.elements(0).has_value(), everything = anything;
  for (int i = 1; i < inputs.count(); ++i) {
    rules::require_dtype(inputs, i, first.dtype);
    const Shape& next = inputs.shape(i);
    if (next.rank() != shape.rank())
      refuse(fmt::format("ranks {} and {} differ", shape.rank(), next.rank()));
    for (int k = 0; k < shape.rank(); ++k)
      shape[k] = k == axis ? sizes.add(shape[k], next[k])
                           : rules::agree(shape[k], next[k], inputs, "sizes");
    const bool is_known = inputs.elements(i).has_value();
    anything |= is_known;
    everything &= is_known;
  }
  if (!(is_float(first.dtype) ? everything : anything) || !known(shape) ||
      count(dims_of(shape)) > kMaxKnownElements)
    return {rules::make_fact(first.dtype, shape)};

  // One after another, each in rows of the elements at and after the axis.
  const Dims dims = dims_of(shape);
  int64_t rows = 1, inner = 1;
  for (int k = 0; k < axis; ++k) rows *= dims[k];
  for (int k = axis + 1; k < dims.rank(); ++k) inner *= dims[k];
  std::vector<Size> elements(static_cast<size_t>(count(dims)), Size::unknown());
  int64_t column = 0;
  for (int i = 0; i < inputs.count(); ++i) {
    const Shape& part = inputs.shape(i);
    if (!part[axis].known()) return {rules::make_fact(first.dtype, shape)};
    const int64_t width = part[axis].value() * inner;
    const Elements own = inputs.elements(i);
    if (own && static_cast<int64_t>(own->size()) == rows * width)
      for (int64_t row = 0; row < rows; ++row)
        std::copy_n(own->begin() + row * width, width,
                    elements.begin() + row * dims[axis] * inner + column);
    column += width;
  }
  return {rules::make_fact(first.dtype, shape, std::move(elements))};
}

Facts infer(const Slice&, const InferInputs& inputs) {
  SizeTable& sizes = inputs.sizes();
  const Type& x = inputs.type(0);
  const int rank = x.shape.rank();
  static constexpr std::string_view kNames[] = {"x", "starts", "ends", "axes", "steps"};
  for (int i = 1; i < 5; ++i) {
    rules::require_list(inputs, i, kNames[i]);
    rules::agree(inputs.shape(i)[0], inputs.shape(1)[0], sizes, "lengths of starts and others");
  }
  const auto axes = inputs.integers(3);
  if (!axes) return {rules::make_fact(x.dtype, Shape::filled(rank, Size::unknown()))};
  rules::resolve_axes(*axes, rank);
  const auto starts = inputs.elements(1), ends = inputs.elements(2), steps = inputs.elements(4);
  std::vector<SliceRange> cuts;
  for (int axis = 0; axis < rank; ++axis) cuts.push_back({0, x.shape[axis], 1});
  for (size_t i = 0; i < axes->size(); ++i) {
    const auto at = [i](const Elements& list) {
      return list && i < list->size() ? (*list)[i] : Size::unknown();
    };
    const int axis = rules::resolve_axis((*axes)[i], rank);
    cuts[static_cast<size_t>(axis)] = cut(at(starts), at(ends), at(steps), x.shape[axis], sizes);
  }
  Shape shape;
  for (const SliceRange& cut : cuts) shape.push_back(cut.count);
  if (!known(x.shape) || !known(shape)) return {rules::make_fact(x.dtype, shape)};

  Dims strides = strides_of(x.shape);
  int64_t offset = 0;
  for (int axis = 0; axis < rank; ++axis) {
    const SliceRange& cut = cuts[static_cast<size_t>(axis)];
    if (!cut.start.known()) return {rules::make_fact(x.dtype, shape)};
    offset += cut.start.value() * strides[axis];
    strides[axis] *= cut.step;
  }
  return {rules::make_fact(x.dtype, shape,
                           rules::move_elements(inputs.elements(0), shape, [&](const Dims& at) {
                             return offset + rules::flat_index(at, strides);
                           }))};
}

namespace {

// Whether an axis surely has no element left to repeat: negative pads crop it first.
bool repeats_nothing(Size size, Size begin, Size end) {
  const auto added = [](Size pad) { return pad.known() ? std::max<int64_t>(pad.value(), 0) : 0; };
  const auto cropped = [](Size pad) { return pad.known() ? std::min<int64_t>(pad.value(), 0) : 0; };
  if (!size.known() || added(begin) + added(end) == 0) return false;
  return size.value() + cropped(begin) + cropped(end) <= 0;
}

}  // namespace

Facts infer(const Pad& op, const InferInputs& inputs) {
  SizeTable& sizes = inputs.sizes();
  const Type& x = inputs.type(0);
  const int rank = x.shape.rank();
  rules::require_list(inputs, 1, "pads");
  if (rules::surely_differ(inputs.shape(1)[0], 2 * rank, sizes))
    refuse(fmt::format("{} pads for rank {}", sizes.text(inputs.shape(1)[0]), rank));
  if (inputs.has(2)) {
    rules::require_dtype(inputs, 2, x.dtype);
    rules::require_scalar(inputs, 2, "value");
  }
  if (x.dtype == DataType::kString) refuse("padding of strings");
  const Elements pads = inputs.elements(1);
  if (!pads) return {rules::make_fact(x.dtype, Shape::filled(rank, Size::unknown()))};
  if (static_cast<int>(pads->size()) != 2 * rank)
    refuse(fmt::format("{} pads for rank {}", pads->size(), rank));
  Shape shape;
  for (int axis = 0; axis < rank; ++axis) {
    const Size begin = (*pads)[static_cast<size_t>(axis)];
    const Size end = (*pads)[static_cast<size_t>(axis) + static_cast<size_t>(rank)];
    const Size size = sizes.add(sizes.add(x.shape[axis], begin), end);
    if (op.mode != PadMode::kConstant && repeats_nothing(x.shape[axis], begin, end))
      refuse("padding of no elements by their like");
    shape.push_back(size);
  }
  return {rules::make_fact(x.dtype, shape)};
}

}  // namespace anneal
