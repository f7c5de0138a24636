// NewTensor: a tensor whose elements are still to be written. reshaped(): the elements of another.
#pragma once
#include <cstddef>
#include <span>

#include "anneal/core/application/hooks.h"
#include "anneal/core/tensor.h"

namespace anneal {

struct NewTensor {
  Tensor tensor;
  std::span<std::byte> data;  // its elements; write them before the tensor is shared
  TensorView view() const { return row_major_view(tensor.dtype(), tensor.dims(), data.data()); }
};

// Kernels take mutable views, and never write through an input.
inline TensorView kernel_view(const Tensor& tensor) {
  return row_major_view(tensor.dtype(), tensor.dims(),
                        const_cast<std::byte*>(tensor.bytes().data()));
}

// Memory of the right size, 64-byte aligned and zeroed. Fails with kOutOfMemory. allocator: whose
// memory it is; null: the system's.
NewTensor allocate_tensor(DataType dtype, const Dims& dims,
                          const std::shared_ptr<Allocator>& allocator = nullptr);

// The same elements, in the same memory. Fails with kInvalidArgument if their number differs.
Tensor reshaped(const Tensor& tensor, const Dims& dims);

}  // namespace anneal
