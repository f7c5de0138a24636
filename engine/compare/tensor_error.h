// The difference between two tensors over all their elements.
#pragma once
#include "anneal/core/tensor.h"

namespace anneal {

struct TensorError {
  double scale = 0;    // the largest finite magnitude of `expected`
  double sqnr_db = 0;  // 10 log10(sum expected^2 / sum difference^2); infinite if they are equal
  double cosine = 1;   // of the angle between them; 1 where both are zero
};
// Elements that are not finite in one tensor are left out; if these are all, sqnr_db and cosine are
// NaN. REQUIRES: equal dims.
TensorError tensor_error(const ConstTensorView& got, const ConstTensorView& expected);

}  // namespace anneal
