// Shape rules of Reshape, Expand, Tile, ShapeOf, SizeTensor and Range: ops whose output sizes are
// computed from contents.
#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "anneal/core/dtype_kinds.h"
#include "anneal/graph/op/infer_rules.h"

namespace anneal {
namespace {

using rules::Elements;
using rules::refuse;

// The product of some sizes: a known factor and the others, so that equal factors of two products
// cancel before anything is divided.
struct Factors {
  Size known = 1;
  std::vector<Size> others;
};

Factors factors_of(const Shape& shape, int without, SizeTable& sizes) {
  Factors factors;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (axis == without) continue;
    if (shape[axis].known()) {
      factors.known = sizes.mul(factors.known, shape[axis]);
    } else {
      factors.others.push_back(shape[axis]);
    }
  }
  return factors;
}

// Whether none of the sizes that were cancelled may be 0.
bool cancel(Factors& a, Factors& b, const SizeTable& sizes) {
  bool none_zero = true;
  for (auto x = a.others.begin(); x != a.others.end();) {
    const auto y =
        x->is_unknown() ? b.others.end() : std::find(b.others.begin(), b.others.end(), *x);
    if (y == b.others.end()) {
      ++x;
    } else {
      none_zero &= sizes.range(*x).min > 0;
      b.others.erase(y);
      x = a.others.erase(x);
    }
  }
  const int64_t common = std::gcd(a.known.value(), b.known.value());
  if (common == 0) return false;
  a.known = a.known.value() / common;
  b.known = b.known.value() / common;
  return none_zero;
}

Size product_of(const Factors& factors, SizeTable& sizes) {
  Size product = factors.known;
  for (const Size& size : factors.others) product = sizes.mul(product, size);
  return product;
}

// The size that axis `solve` of `to` must have for as many elements as `from` has.
Size remaining(const Shape& from, const Shape& to, int solve, SizeTable& sizes) {
  Factors total = factors_of(from, -1, sizes), rest = factors_of(to, solve, sizes);
  if (rest.known == Size(0)) refuse("a size of -1 beside a size of 0");
  cancel(total, rest, sizes);
  if (rest.others.empty() && total.others.empty() && rest.known != Size(1))
    refuse(fmt::format("{} does not divide into {}", sizes.text(from), sizes.text(to)));
  return sizes.floor_div(product_of(total, sizes), product_of(rest, sizes));
}

void require_equal_count(const Shape& from, const Shape& to, const InferInputs& inputs) {
  SizeTable& sizes = inputs.sizes();
  Factors a = factors_of(from, -1, sizes), b = factors_of(to, -1, sizes);
  const bool none_zero = cancel(a, b, sizes);
  const Size left = product_of(a, sizes), right = product_of(b, sizes),
             gap = sizes.sub(left, right);
  if (none_zero) inputs.demand(left, right);
  if (rules::surely_differ(gap, 0, sizes))
    refuse(fmt::format("{} has not as many elements as {}", sizes.text(from), sizes.text(to)));
}

}  // namespace

Facts infer(const Reshape& op, const InferInputs& inputs) {
  SizeTable& sizes = inputs.sizes();
  const Type& x = inputs.type(0);
  const std::vector<Size> wanted = rules::list(inputs, 1, "shape");
  Shape shape;
  int rest = -1, undetermined = 0, solve = -1;
  bool zero = false;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const Size size = wanted[i];
    const int axis = static_cast<int>(i);
    if (size == Size(-1)) {
      if (rest >= 0) refuse("two sizes of -1");
      rest = axis;
      shape.push_back(Size::unknown());
    } else if (size == Size(0) && !op.allow_zero) {
      if (axis >= x.shape.rank())
        refuse(fmt::format("a size of 0 copies axis {} of rank {}", axis, x.shape.rank()));
      shape.push_back(x.shape[axis]);
    } else {
      if (!size.is_unknown() && sizes.range(size).max < 0)
        refuse(fmt::format("a size of {}", sizes.text(size)));
      zero |= size == Size(0);
      shape.push_back(size);
    }
    if (shape[axis].is_unknown()) {
      ++undetermined;
      solve = axis;
    }
  }
  if (rest >= 0 && zero) refuse("a size of -1 beside a size of 0");
  if (undetermined == 0) {
    require_equal_count(x.shape, shape, inputs);
  } else if (undetermined == 1) {
    bool some_zero = false;
    for (const Size& size : shape) some_zero |= size == Size(0);
    // Whatever the contents say, one size is determined by the others unless there is nothing.
    if (rest >= 0 || !some_zero) shape[solve] = remaining(x.shape, shape, solve, sizes);
  }
  return {rules::make_fact(x.dtype, shape, inputs.elements(0))};
}

Facts infer(const Expand&, const InferInputs& inputs) {
  SizeTable& sizes = inputs.sizes();
  const Type& x = inputs.type(0);
  Shape wanted;
  for (const Size& size : rules::list(inputs, 1, "shape")) {
    if (!size.is_unknown() && sizes.range(size).max < 0)
      refuse(fmt::format("a size of {}", sizes.text(size)));
    wanted.push_back(size);
  }
  const Shape shape = broadcast(x.shape, wanted, sizes, inputs.demands());
  if (!known(x.shape)) return {rules::make_fact(x.dtype, shape)};
  const Dims dims = dims_of(x.shape), own = row_major_strides(dims);
  Dims strides = Dims::filled(shape.rank(), 0);
  for (int axis = 0; axis < dims.rank(); ++axis)
    if (dims[axis] != 1) strides[axis + shape.rank() - dims.rank()] = own[axis];
  return {rules::make_fact(x.dtype, shape,
                           rules::move_elements(inputs.elements(0), shape, [&](const Dims& at) {
                             return rules::flat_index(at, strides);
                           }))};
}

Facts infer(const Tile&, const InferInputs& inputs) {
  SizeTable& sizes = inputs.sizes();
  const Type& x = inputs.type(0);
  rules::require_list(inputs, 1, "repeats");
  if (rules::surely_differ(inputs.shape(1)[0], x.shape.rank(), sizes))
    refuse(fmt::format("{} repeats for rank {}", sizes.text(inputs.shape(1)[0]), x.shape.rank()));
  const Elements repeats = inputs.elements(1);
  if (repeats && static_cast<int>(repeats->size()) != x.shape.rank())
    refuse(fmt::format("{} repeats for rank {}", repeats->size(), x.shape.rank()));
  Shape shape;
  for (int axis = 0; axis < x.shape.rank(); ++axis) {
    const Size repeat = repeats ? (*repeats)[static_cast<size_t>(axis)] : Size::unknown();
    if (!repeat.is_unknown() && sizes.range(repeat).max < 0)
      refuse(fmt::format("{} repeats", sizes.text(repeat)));
    shape.push_back(x.shape[axis] == Size(0) ? Size(0) : sizes.mul(x.shape[axis], repeat));
  }
  if (!known(x.shape)) return {rules::make_fact(x.dtype, shape)};
  const Dims dims = dims_of(x.shape), strides = row_major_strides(dims);
  return {rules::make_fact(x.dtype, shape,
                           rules::move_elements(inputs.elements(0), shape, [&](const Dims& at) {
                             int64_t from = 0;
                             for (int axis = 0; axis < at.rank(); ++axis)
                               from += at[axis] % dims[axis] * strides[axis];
                             return from;
                           }))};
}

Facts infer(const ShapeOf& op, const InferInputs& inputs) {
  const Shape& x = inputs.shape(0);
  if (op.start < 0 || op.end < op.start || op.end > x.rank())
    refuse(fmt::format("axes {} to {} of rank {}", op.start, op.end, x.rank()));
  std::vector<Size> elements;
  for (int64_t axis = op.start; axis < op.end; ++axis)
    elements.push_back(x[static_cast<int>(axis)]);
  return {rules::make_fact(DataType::kI64, {Size(op.end - op.start)}, std::move(elements))};
}

Facts infer(const SizeTensor& op, const InferInputs&) {
  for (const Size& size : op.elements)
    if (size.is_unknown()) refuse("an unknown size as contents");
  if (!op.scalar)
    return {rules::make_fact(DataType::kI64, {Size(static_cast<int64_t>(op.elements.size()))},
                             op.elements)};
  if (op.elements.size() != 1) refuse(fmt::format("a scalar of {} elements", op.elements.size()));
  return {rules::make_fact(DataType::kI64, {}, op.elements)};
}

namespace {

// The only element of a float input, if its data is at hand.
std::optional<double> float_scalar(const InferInputs& inputs, int i) {
  const TensorView* view = inputs.value(i);
  if (view == nullptr || view->data == nullptr) return std::nullopt;
  const Scalar scalar = load_scalar(view->dtype, view->data);
  return register_type(view->dtype) == RegisterType::kF64 ? scalar.as<double>()
                                                          : static_cast<double>(scalar.as<float>());
}

Size float_steps(const InferInputs& inputs) {
  const auto start = float_scalar(inputs, 0), limit = float_scalar(inputs, 1),
             delta = float_scalar(inputs, 2);
  if (!start || !limit || !delta) return Size::unknown();
  const double steps = std::ceil((*limit - *start) / *delta);
  if (!(std::fabs(steps) < 0x1p53))
    refuse(fmt::format("a range from {} to {} by {}", *start, *limit, *delta));
  return std::max<int64_t>(0, static_cast<int64_t>(steps));
}

// ceil((limit - start) / delta), at least 0.
Size integer_steps(Size start, Size limit, Size delta, SizeTable& sizes) {
  if (start.is_unknown() || limit.is_unknown() || !delta.known()) return Size::unknown();
  if (delta == Size(0)) refuse("a range in steps of 0");
  const bool up = delta.value() > 0;
  const Size way = up ? sizes.sub(limit, start) : sizes.sub(start, limit);
  const Size step = up ? delta : sizes.sub(0, delta);
  const Bounds range = sizes.range(way);
  if (range.max <= 0) return 0;
  if (step.value() >= range.max) return rules::at_most(rules::at_least(way, 0, sizes), 1, sizes);
  return rules::at_least(sizes.ceil_div(way, step), 0, sizes);
}

}  // namespace

Facts infer(const Range&, const InferInputs& inputs) {
  SizeTable& sizes = inputs.sizes();
  const DataType dtype = inputs.dtype(0);
  if (!is_float(dtype) && !(is_integer(dtype) && size_of(dtype) >= 2))
    refuse(fmt::format("a range of {}", to_string(dtype)));
  std::vector<Size> given;
  for (int i = 0; i < 3; ++i) {
    rules::require_dtype(inputs, i, dtype);
    rules::require_scalar(inputs, i, i == 0 ? "start" : i == 1 ? "limit" : "delta");
    const Elements elements = inputs.elements(i);
    given.push_back(elements && elements->size() == 1 ? elements->front() : Size::unknown());
  }
  const Size start = given[0], delta = given[2];
  Size steps = integer_steps(start, given[1], delta, sizes);
  if (steps.is_unknown() && is_float(dtype)) steps = float_steps(inputs);
  Elements elements;
  if (!is_float(dtype) && !start.is_unknown() && steps.known() &&
      steps.value() <= kMaxKnownElements) {
    elements.emplace();
    Size next = start;
    for (int64_t i = 0; i < steps.value(); ++i, next = sizes.add(next, delta))
      elements->push_back(next);
  }
  return {rules::make_fact(dtype, {steps}, std::move(elements))};
}

}  // namespace anneal
