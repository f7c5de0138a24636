// Types of values, and memory with a type: TensorView (somebody else's) and Tensor (a constant).
#pragma once
#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>

#include "anneal/core/dtype.h"
#include "anneal/core/shape.h"

namespace anneal {

enum class Container : uint8_t { kTensor, kSequence, kOptional, kOptionalSequence };

// The type of a value. In a container, dtype and shape are those of its element tensors.
struct Type {
  DataType dtype = DataType::kF32;
  Shape shape;
  Container container = Container::kTensor;
  bool operator==(const Type&) const = default;
};

// Strided memory owned by somebody else: what kernels receive. data points at element [0,...,0], so
// a slice or a transpose of a tensor is another view of the same memory. Strides count elements and
// may be 0 (broadcast). Alignment: that of the element type at least.
struct TensorView {
  DataType dtype = DataType::kF32;
  Dims dims;
  Dims strides;
  std::byte* data = nullptr;

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

bool is_row_major(const TensorView& view);      // dense; axes of size 1 may have any stride
bool is_channels_last(const TensorView& view);  // dense, axis 1 fastest
// A view of dense row-major memory.
TensorView row_major_view(DataType dtype, const Dims& dims, std::byte* data);

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
  Type type() const { return {dtype_, shape_of(dims_)}; }
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
  check(std::as_bytes(values).size() == fresh.data.size(), "values fill the tensor");
  const auto from = std::as_bytes(values);
  std::copy(from.begin(), from.end(), fresh.data.begin());
  return fresh.tensor;
}

}  // namespace anneal
