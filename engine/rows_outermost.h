// The strides of ports to which runs append rows (Plan::appended_ports).
#pragma once
#include "anneal/core/dims.h"

namespace anneal {

// Row-major strides, but for axis `rows`, which is outermost. So they do not depend on the number
// of rows. T: int64_t or Size; multiply(a, b) is their product.
template <class T, class Multiply>
PerAxis<T> rows_outermost_strides(const PerAxis<T>& dims, int rows, const Multiply& multiply) {
  PerAxis<T> strides = PerAxis<T>::filled(dims.rank(), T(1));
  T stride = T(1);
  for (int axis = dims.rank() - 1; axis >= 0; --axis) {
    if (axis == rows) continue;
    strides[axis] = stride;
    stride = multiply(stride, dims[axis]);
  }
  strides[rows] = stride;
  return strides;
}

}  // namespace anneal
