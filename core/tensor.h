// Tensor: constant elements in host memory, shared.
#pragma once
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>

#include "anneal/core/tensor_view.h"

namespace anneal {

// Row-major and immutable. A copy of a Tensor has the same memory. Any thread may read it.
class Tensor {
 public:
  // Uses memory that `owner` keeps alive and that must not change. Fails with kInvalidArgument if
  // the number of bytes does not match dtype and dims.
  Tensor(DataType dtype, const Dims& dims, std::shared_ptr<const void> owner,
         std::span<const std::byte> bytes);
  // Copies the values. Fails with kInvalidArgument if their number does not match dims, or
  // sizeof(T) does not match dtype.
  template <class T>
  static Tensor of(DataType dtype, const Dims& dims, std::span<const T> values) {
    detail::check_elements(dtype, dims, values.size(), sizeof(T));
    return copy_of(dtype, dims, std::as_bytes(values));
  }
  static Tensor copy_of(DataType dtype, const Dims& dims, std::span<const std::byte> bytes);

  DataType dtype() const { return dtype_; }
  const Dims& dims() const { return dims_; }
  std::span<const std::byte> bytes() const { return bytes_; }          // of all elements, row-major
  const std::shared_ptr<const void>& owner() const { return owner_; }  // of bytes()
  int64_t count() const { return anneal::count(dims_); }
  // The elements as numbers of their size: f16 may be read as uint16_t. Fails with
  // kInvalidArgument unless sizeof(T) is the size of an element.
  template <class T>
  std::span<const T> as() const {
    detail::check_elements(dtype_, dims_, static_cast<size_t>(count()), sizeof(T));
    return {reinterpret_cast<const T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  ConstTensorView view() const { return {dtype_, dims_, row_major_strides(dims_), bytes_.data()}; }
  bool operator==(const Tensor& other) const {  // same type, dims and bytes
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
