// The difference between two tensors over all their elements.
#pragma once
#include "anneal/core/tensor.h"

namespace anneal {

struct TensorError {
  double scale = 0;    // the largest finite magnitude of `expected`
  double sqnr_db = 0;  // 10 log10(sum expected^2 / sum difference^2); infinite if they are equal
  double cosine = 1;   // of the angle between them; 1 where both are zero
};
// Elements that are not finite in one of them are left out. REQUIRES: equal dims.
TensorError tensor_error(const TensorView& got, const TensorView& expected);

}  // namespace anneal
