// Shape rules of ops that walk along axes: Reduce, ArgReduce, Cumulative, TopK.
#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/error.h"
#include "anneal/core/size/real.h"
#include "anneal/graph/op/infer_rules.h"

namespace anneal {
namespace {

using rules::Elements;
using rules::refuse;

bool accumulates(DataType dtype) {
  return is_float(dtype) || (is_integer(dtype) && size_of(dtype) >= 4);
}

// How a type combines two known elements; unknown() where it might wrap, or round.
Size combine(ReduceKind kind, Size a, Size b, DataType dtype, SizeTable& sizes) {
  if (a.is_unknown() || b.is_unknown()) return Size::unknown();
  if (!sizes.is_integer(a) || !sizes.is_integer(b)) {
    const RealType type = dtype == DataType::kF64 ? RealType::kF64 : RealType::kF32;
    return RealSizes(sizes).operation(kind == ReduceKind::kMax ? RealOp::kMax : RealOp::kMin, type,
                                      a, b);
  }
  Size result;
  try {
    result = kind == ReduceKind::kSum    ? sizes.add(a, b)
             : kind == ReduceKind::kProd ? sizes.mul(a, b)
             : kind == ReduceKind::kMax  ? sizes.max(a, b)
                                         : sizes.min(a, b);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidModel && error.code() != ErrorCode::kUnsupported) throw;
    return Size::unknown();  // it overflows, or becomes too large an expression
  }
  const Bounds range = sizes.range(result);
  const bool fits = is_float(dtype) || dtype == DataType::kI64 || dtype == DataType::kBool ||
                    (dtype == DataType::kU64 && range.min >= 0) ||
                    (is_unsigned_integer(dtype) && range.min >= 0 && range.max <= UINT32_MAX) ||
                    (is_signed_integer(dtype) && range.min >= INT32_MIN && range.max <= INT32_MAX);
  return fits ? result : Size::unknown();
}

Elements reduced_elements(const Reduce& op, const Fact& reduced, SizeTable& sizes,
                          const std::vector<bool>& chosen) {
  const Elements& elements = reduced.elements;
  const Shape& x = reduced.type.shape;
  const DataType dtype = reduced.type.dtype;
  const bool is_extreme = op.kind == ReduceKind::kMax || op.kind == ReduceKind::kMin;
  if (!elements || elements->empty() || !known(x) || op.kind == ReduceKind::kMean ||
      (is_float(dtype) && !is_extreme))
    return std::nullopt;
  // Strides of the result in x's axes: 0 along those that are reduced.
  Dims kept = dims_of(x);
  for (int axis = 0; axis < x.rank(); ++axis)
    if (chosen[static_cast<size_t>(axis)]) kept[axis] = 1;
  Dims strides = row_major_strides(kept);
  for (int axis = 0; axis < x.rank(); ++axis)
    if (chosen[static_cast<size_t>(axis)]) strides[axis] = 0;
  std::vector<std::optional<Size>> results(static_cast<size_t>(count(kept)));
  size_t next = 0;
  rules::move_elements(elements, x, [&](const Dims& at) {
    std::optional<Size>& result = results[static_cast<size_t>(rules::flat_index(at, strides))];
    const Size element = (*elements)[next];
    result = result ? combine(op.kind, *result, element, dtype, sizes) : element;
    return next++;
  });
  std::vector<Size> contents;
  contents.reserve(results.size());
  for (const auto& result : results) contents.push_back(result.value_or(Size::unknown()));
  return contents;
}

}  // namespace

Facts infer(const Reduce& op, const InferInputs& inputs) {
  const Fact reduced = rules::apply_map(op.map, inputs, 2);
  const Type& x = reduced.type;
  const bool extreme = op.kind == ReduceKind::kMax || op.kind == ReduceKind::kMin;
  if (x.dtype == DataType::kString || (!extreme && !accumulates(x.dtype)))
    refuse(fmt::format("a reduction of {}", to_string(x.dtype)));
  const int rank = x.shape.rank();
  rules::require_list(inputs, 1, "axes");
  const auto axes = inputs.integers(1);
  Shape shape;
  if (!axes) {
    if (op.keepdims) return {rules::make_fact(x.dtype, Shape::filled(rank, Size::unknown()))};
    const int count = rules::list_length(inputs, 1, "axes");
    if (count > rank) refuse(fmt::format("{} axes of a tensor of rank {}", count, rank));
    return {rules::make_fact(x.dtype, Shape::filled(rank - count, Size::unknown()))};
  }
  const std::vector<bool> chosen = rules::resolve_axes(*axes, rank);
  for (int axis = 0; axis < rank; ++axis) {
    if (!chosen[static_cast<size_t>(axis)]) {
      shape.push_back(x.shape[axis]);
    } else if (op.keepdims) {
      shape.push_back(1);
    }
  }
  return {rules::make_fact(x.dtype, shape, reduced_elements(op, reduced, inputs.sizes(), chosen))};
}

Facts infer(const ArgReduce& op, const InferInputs& inputs) {
  const Type& x = inputs.type(0);
  if (!rules::is_numeric(x.dtype)) refuse(fmt::format("the largest of {}", to_string(x.dtype)));
  const int chosen = rules::require_axis(op.axis, x.shape.rank());
  if (x.shape[chosen] == Size(0)) refuse("the largest of no elements");
  Shape shape;
  for (int axis = 0; axis < x.shape.rank(); ++axis) {
    if (axis != chosen) {
      shape.push_back(x.shape[axis]);
    } else if (op.keepdims) {
      shape.push_back(1);
    }
  }
  return {rules::make_fact(DataType::kI64, shape)};
}

Facts infer(const Cumulative& op, const InferInputs& inputs) {
  const Type& x = inputs.type(0);
  if (!accumulates(x.dtype)) refuse(fmt::format("a cumulative sum of {}", to_string(x.dtype)));
  rules::require_dtype(inputs, 1, DataType::kI64);
  rules::require_scalar(inputs, 1, "axis");
  const auto given = inputs.integers(1);
  if (!given) return {rules::make_fact(x.dtype, x.shape)};
  if (given->size() != 1) refuse("input 1 (axis) is no scalar");
  rules::resolve_axis(given->front(), x.shape.rank());

  Elements elements = inputs.elements(0);
  if (!elements || !known(x.shape) || x.shape.rank() != 1 || is_float(x.dtype))
    return {rules::make_fact(x.dtype, x.shape)};
  const bool sum = op.kind == CumulativeKind::kSum;
  if (op.reverse) std::reverse(elements->begin(), elements->end());
  Size total = sum ? 0 : 1;
  for (Size& element : *elements) {
    const Size before = total;
    total = combine(sum ? ReduceKind::kSum : ReduceKind::kProd, total, element, x.dtype,
                    inputs.sizes());
    element = op.exclusive ? before : total;
  }
  if (op.reverse) std::reverse(elements->begin(), elements->end());
  return {rules::make_fact(x.dtype, x.shape, std::move(elements))};
}

Facts infer(const TopK& op, const InferInputs& inputs) {
  const Type& x = inputs.type(0);
  if (!rules::is_numeric(x.dtype)) refuse(fmt::format("the largest of {}", to_string(x.dtype)));
  if (op.of != TopKOf::kValues) rules::require_float(inputs, 0);
  const int axis = rules::require_axis(op.axis, x.shape.rank());
  rules::require_dtype(inputs, 1, DataType::kI64);
  rules::require_scalar(inputs, 1, "k");
  const Elements given = inputs.elements(1);
  const Size k = given && given->size() == 1 ? given->front() : Size::unknown();
  SizeTable& sizes = inputs.sizes();
  if (!k.is_unknown()) {
    const Bounds of_k = sizes.range(k);
    if (of_k.max < 0) refuse("a negative k");
    const Size whole = x.shape[axis];
    if (!whole.is_unknown() && of_k.min > sizes.range(whole).max)
      refuse(fmt::format("k is {} of {} elements", sizes.text(k), sizes.text(whole)));
  }
  Shape shape = x.shape;
  shape[axis] = k;
  return {rules::make_fact(x.dtype, shape), rules::make_fact(DataType::kI64, shape)};
}

}  // namespace anneal
