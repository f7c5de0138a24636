// Tensor: constant elements in host memory, shared.
#pragma once
#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>

#include "anneal/core/tensor_view.h"

namespace anneal {

struct Type;

// Host memory, row-major, immutable and shared: weights and folded constants. Copying a Tensor
// copies a pointer. Safe to read from any thread.
class Tensor {
 public:
  // Memory of the right size, 64-byte aligned, zeroed; fill it through `data` before sharing it.
  struct Fresh;
  static Fresh allocate(DataType dtype, const Dims& dims);
  // Takes a share in memory that lives as long as owner does. REQUIRES: bytes.size() fits.
  Tensor(DataType dtype, const Dims& dims, std::shared_ptr<const void> owner,
         std::span<const std::byte> bytes);
  template <class T>
  static Tensor of(DataType dtype, const Dims& dims, std::span<const T> values);

  DataType dtype() const { return dtype_; }
  const Dims& dims() const { return dims_; }
  Type type() const;  // needs core/type.h
  std::span<const std::byte> bytes() const { return bytes_; }
  int64_t count() const { return anneal::count(dims_); }
  template <class T>
  std::span<const T> as() const {  // REQUIRES: sizeof(T) == size_of(dtype())
    return {reinterpret_cast<const T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  // For kernels, which take mutable views; they never write through an input.
  TensorView view() const;
  bool operator==(const Tensor& other) const;  // same type and same bytes

 private:
  DataType dtype_;
  Dims dims_;
  std::shared_ptr<const void> owner_;
  std::span<const std::byte> bytes_;
};

struct Tensor::Fresh {
  Tensor tensor;
  std::span<std::byte> data;
};

template <class T>
Tensor Tensor::of(DataType dtype, const Dims& dims, std::span<const T> values) {
  auto fresh = allocate(dtype, dims);
  detail::check_count(values.size(), dims);
  detail::check_element_size(dtype, sizeof(T));
  const auto from = std::as_bytes(values);
  std::copy(from.begin(), from.end(), fresh.data.begin());
  return fresh.tensor;
}

}  // namespace anneal
