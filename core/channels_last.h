// Dense memory whose fastest axis is axis 1: NHWC for [N,C,H,W]. Below rank 3 it is row-major.
#pragma once
#include <utility>

#include "anneal/core/dims.h"
#include "anneal/core/tensor_view.h"

namespace anneal {

namespace detail {
inline Dims with_channels_last(const Dims& numbers) {
  Dims moved = numbers;
  for (int axis = 1; axis + 1 < moved.rank(); ++axis) std::swap(moved[axis], moved[axis + 1]);
  return moved;
}
}  // namespace detail

// In elements. Fails as row_major_strides() does.
inline Dims channels_last_strides(const Dims& dims) {
  Dims strides = row_major_strides(detail::with_channels_last(dims));
  for (int axis = strides.rank() - 1; axis > 1; --axis) std::swap(strides[axis - 1], strides[axis]);
  return strides;
}

// Axes of size 1 may have any stride.
inline bool is_channels_last(const ConstTensorView& view) {
  ConstTensorView moved = view;
  moved.dims = detail::with_channels_last(view.dims);
  moved.strides = detail::with_channels_last(view.strides);
  return is_row_major(moved);
}

}  // namespace anneal
