#include "anneal/core/strided_copy.h"

#include <cstring>

namespace anneal {
namespace {

void copy_axis(const TensorView& to, const TensorView& from, int axis, std::byte* to_at,
               const std::byte* from_at, size_t element) {
  if (axis == to.dims.rank()) {
    std::memcpy(to_at, from_at, element);
    return;
  }
  const auto to_step = to.strides[axis] * static_cast<int64_t>(element);
  const auto from_step = from.strides[axis] * static_cast<int64_t>(element);
  const bool last = axis + 1 == to.dims.rank();
  if (last && to.strides[axis] == 1 && from.strides[axis] == 1) {
    std::memcpy(to_at, from_at, static_cast<size_t>(to.dims[axis]) * element);
    return;
  }
  for (int64_t i = 0; i < to.dims[axis]; ++i)
    copy_axis(to, from, axis + 1, to_at + i * to_step, from_at + i * from_step, element);
}

}  // namespace

void strided_copy(const TensorView& to, const TensorView& from) {
  copy_axis(to, from, 0, to.data, from.data, size_of(to.dtype));
}

}  // namespace anneal
