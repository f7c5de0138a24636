// NewTensor: a tensor whose elements are still to be written.
#pragma once
#include <cstddef>
#include <span>

#include "anneal/core/tensor.h"

namespace anneal {

struct NewTensor {
  Tensor tensor;
  std::span<std::byte> data;  // its elements; write them before the tensor is shared
};

// Memory of the right size, 64-byte aligned and zeroed. Fails with kOutOfMemory.
NewTensor allocate_tensor(DataType dtype, const Dims& dims);

}  // namespace anneal
