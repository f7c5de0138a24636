// Copies between views of the same dtype and dims, whatever their strides.
#pragma once
#include "anneal/core/tensor.h"

namespace anneal {

void strided_copy(const TensorView& to, const TensorView& from);

}  // namespace anneal
