#include "anneal/core/shape.h"

#include "anneal/core/fail.h"

namespace anneal {
namespace {

int64_t times(int64_t product, int64_t size, const Dims& dims) {
  if (size < 0) fail(ErrorCode::kInvalidArgument, "a negative size in " + to_string(dims));
  if (__builtin_mul_overflow(product, size, &product))
    fail(ErrorCode::kInvalidArgument, "more than 2^63 elements in " + to_string(dims));
  return product;
}

}  // namespace

void detail::fail_rank() {
  fail(ErrorCode::kUnsupported, "a tensor of more than " + std::to_string(kMaxRank) + " axes");
}

bool known(const Shape& shape) {
  for (const Size& size : shape)
    if (!size.known()) return false;
  return true;
}

Dims dims_of(const Shape& shape) {
  Dims dims;
  for (const Size& size : shape) {
    check(size.known(), "dims_of a known shape");
    dims.push_back(size.value());
  }
  return dims;
}

Shape shape_of(const Dims& dims) {
  Shape shape;
  for (int64_t size : dims) shape.push_back(size);
  return shape;
}

int64_t count(const Dims& dims) {
  int64_t product = 1;
  bool empty = false;
  for (int64_t size : dims) {
    // An empty array is held to the same limit: its strides have to fit as well.
    product = times(product, size == 0 ? 1 : size, dims);
    empty |= size == 0;
  }
  return empty ? 0 : product;
}

Dims row_major_strides(const Dims& dims) {
  Dims strides = dims;
  int64_t stride = 1;
  for (int axis = dims.rank() - 1; axis >= 0; --axis) {
    strides[axis] = stride;
    stride = times(stride, dims[axis], dims);
  }
  return strides;
}

std::string to_string(const Dims& dims) {
  std::string text = "[";
  for (int axis = 0; axis < dims.rank(); ++axis) {
    if (axis > 0) text += ',';
    text += std::to_string(dims[axis]);
  }
  return text + "]";
}

}  // namespace anneal
