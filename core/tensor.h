// Tensor: constant elements in host memory, shared.
#pragma once
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>

#include "anneal/core/tensor_view.h"

namespace anneal {

// Host memory, row-major, immutable and shared: weights and folded constants. Copying a Tensor
// copies a pointer. Safe to read from any thread.
class Tensor {
 public:
  // Memory that owner keeps alive and nothing changes. Fails with kInvalidArgument if the bytes are
  // more or fewer than the elements take.
  Tensor(DataType dtype, const Dims& dims, std::shared_ptr<const void> owner,
         std::span<const std::byte> bytes);
  // A copy of the values. Fails with kInvalidArgument if they are more or fewer than the dims say,
  // or of another size than the element type.
  template <class T>
  static Tensor of(DataType dtype, const Dims& dims, std::span<const T> values) {
    detail::check_elements(dtype, dims, values.size(), sizeof(T));
    return copy_of(dtype, dims, std::as_bytes(values));
  }
  static Tensor copy_of(DataType dtype, const Dims& dims, std::span<const std::byte> bytes);

  DataType dtype() const { return dtype_; }
  const Dims& dims() const { return dims_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  int64_t count() const { return anneal::count(dims_); }
  template <class T>
  std::span<const T> as() const {  // REQUIRES: sizeof(T) == size_of(dtype())
    return {reinterpret_cast<const T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  // Kernels take mutable views, and never write through an input.
  TensorView view() const {
    return {dtype_, dims_, row_major_strides(dims_), const_cast<std::byte*>(bytes_.data())};
  }
  bool operator==(const Tensor& other) const {  // same type and same bytes
    return dtype_ == other.dtype_ && dims_ == other.dims_ &&
           (bytes_.empty() || bytes_.data() == other.bytes_.data() ||
            std::memcmp(bytes_.data(), other.bytes_.data(), bytes_.size()) == 0);
  }

 private:
  DataType dtype_;
  Dims dims_;
  std::shared_ptr<const void> owner_;
  std::span<const std::byte> bytes_;
};

}  // namespace anneal
