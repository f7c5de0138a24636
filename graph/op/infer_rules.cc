#include "anneal/graph/op/infer_rules.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"

namespace anneal::rules {

void refuse(std::string why) { fail(ErrorCode::kInvalidModel, std::move(why)); }

int require_axis(int64_t axis, int rank) {
  if (axis < 0 || axis >= rank) refuse(fmt::format("axis {} of a tensor of rank {}", axis, rank));
  return static_cast<int>(axis);
}

int resolve_axis(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank)
    refuse(fmt::format("axis {} of a tensor of rank {}", axis, rank));
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::vector<bool> resolve_axes(std::span<const int64_t> axes, int rank) {
  std::vector<bool> chosen(static_cast<size_t>(rank));
  for (int64_t given : axes) {
    const auto axis = static_cast<size_t>(resolve_axis(given, rank));
    if (chosen[axis]) refuse(fmt::format("axis {} is given twice", axis));
    chosen[axis] = true;
  }
  return chosen;
}

bool is_numeric(DataType dtype) { return is_float(dtype) || is_integer(dtype); }

void require_float(const InferInputs& inputs, int i) {
  if (!is_float(inputs.dtype(i)))
    refuse(fmt::format("input {} is {}, not a float type", i, to_string(inputs.dtype(i))));
}

void require_dtype(const InferInputs& inputs, int i, DataType dtype) {
  if (inputs.dtype(i) != dtype)
    refuse(fmt::format("input {} is {}, not {}", i, to_string(inputs.dtype(i)), to_string(dtype)));
}

void require_list(const InferInputs& inputs, int i, std::string_view what) {
  require_dtype(inputs, i, DataType::kI64);
  if (inputs.shape(i).rank() != 1)
    refuse(fmt::format("input {} ({}) has rank {}, not 1", i, what, inputs.shape(i).rank()));
}

int list_length(const InferInputs& inputs, int i, std::string_view what) {
  require_list(inputs, i, what);
  const Size length = inputs.shape(i)[0];
  if (!length.known())
    fail(ErrorCode::kUnsupported,
         fmt::format("the length of input {} ({}) is not known, and the rank depends on it", i,
                     what));
  if (length.value() > kMaxKnownElements)
    refuse(fmt::format("input {} ({}) has {} elements", i, what, length.value()));
  return static_cast<int>(length.value());
}

std::vector<Size> list(const InferInputs& inputs, int i, std::string_view what) {
  const auto length = static_cast<size_t>(list_length(inputs, i, what));
  Elements elements = inputs.elements(i);
  if (!elements) return std::vector<Size>(length, Size::unknown());
  if (elements->size() != length)
    refuse(fmt::format("input {} ({}): {} elements for a shape of {}", i, what, elements->size(),
                       length));
  return *std::move(elements);
}

void require_scalar(const InferInputs& inputs, int i, std::string_view what) {
  const Shape& shape = inputs.shape(i);
  if (shape.rank() > 1 || (shape.rank() == 1 && surely_differ(shape[0], 1, inputs.sizes())))
    refuse(fmt::format("input {} ({}) is no scalar: {}", i, what, inputs.sizes().text(shape)));
}

bool surely_differ(Size a, Size b, const SizeTable& sizes) {
  if (a == b || a.is_unknown() || b.is_unknown()) return false;
  const Bounds of_a = sizes.range(a), of_b = sizes.range(b);
  return of_a.max < of_b.min || of_b.max < of_a.min;
}

Size pinned(Size size, const SizeTable& sizes) {
  if (size.known() || size.is_unknown()) return size;
  const Bounds range = sizes.range(size);
  return range.min == range.max ? Size(range.min) : sizes.representative(size);
}

Shape pinned(const Shape& shape, const SizeTable& sizes) {
  Shape result;
  for (const Size& size : shape) result.push_back(pinned(size, sizes));
  return result;
}

Size agree(Size a, Size b, const SizeTable& sizes, std::string_view what) {
  if (surely_differ(a, b, sizes))
    refuse(fmt::format("{} {} and {} differ", what, sizes.text(a), sizes.text(b)));
  return canonical(a, b, sizes);
}

Size agree(Size a, Size b, const InferInputs& inputs, std::string_view what) {
  inputs.demand(a, b);
  return agree(a, b, inputs.sizes(), what);
}

Size at_least(Size size, int64_t low, SizeTable& sizes) {
  if (size.is_unknown()) return size;
  const Bounds range = sizes.range(size);
  if (range.min >= low) return size;
  return range.max <= low ? Size(low) : sizes.max(size, low);
}

Size at_most(Size size, Size high, SizeTable& sizes) {
  if (size.is_unknown() || high.is_unknown()) return Size::unknown();
  const Bounds left = sizes.range(sizes.sub(high, size));
  if (left.min >= 0) return size;
  return left.max <= 0 ? high : sizes.min(size, high);
}

Fact make_fact(DataType dtype, Shape shape, Elements elements) {
  Fact fact{{dtype, shape, Container::kTensor}, std::nullopt};
  if (!elements || !known(shape)) return fact;
  bool any = elements->empty();
  for (const Size& element : *elements) any |= !element.is_unknown();
  if (any && elements->size() <= static_cast<size_t>(kMaxKnownElements) &&
      count(dims_of(shape)) == static_cast<int64_t>(elements->size()))
    fact.elements = std::move(elements);
  return fact;
}

Size whole_number(RegisterType type, Scalar scalar) {
  const auto whole = [](double value) {
    if (!(std::fabs(value) <= 9007199254740992.0) || value != std::trunc(value))
      return Size::unknown();
    if (value == 0 && std::signbit(value)) return Size::unknown();
    return Size(static_cast<int64_t>(value));
  };
  switch (type) {
    case RegisterType::kF32:
      return whole(scalar.as<float>());
    case RegisterType::kF64:
      return whole(scalar.as<double>());
    case RegisterType::kI32:
      return scalar.as<int32_t>();
    case RegisterType::kI64:
      return scalar.as<int64_t>();
    case RegisterType::kU32:
      return scalar.as<uint32_t>();
    case RegisterType::kU64:
      return scalar.bits > INT64_MAX ? Size::unknown() : Size(static_cast<int64_t>(scalar.bits));
    case RegisterType::kBool:
      return scalar.as<uint8_t>() != 0 ? 1 : 0;
  }
  return Size::unknown();
}

}  // namespace anneal::rules
