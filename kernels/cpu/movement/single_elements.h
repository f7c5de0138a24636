// Elements taken one by one: what Gather of single elements and GatherElements share.
#pragma once
#include <cstdint>

#include "anneal/core/tensor_view.h"

namespace anneal::cpu {

// y[i * y_step] = x[i * x_step + indices[i * index_step] * stride of the axis]. Steps in elements.
struct SingleElements {
  const TensorView &x, &indices, &y;
  int axis = 0;  // of x
  int64_t index_step = 1, y_step = 1, x_step = 0;

  // Of `count` elements, the first of which are at these offsets. Fails with kInvalidArgument if an
  // index is out of range.
  void take(int64_t index_at, int64_t y_at, int64_t x_at, int64_t count) const;
};

}  // namespace anneal::cpu
