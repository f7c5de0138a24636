// Views: memory of another owner, with type, dims and strides. view() makes them of containers.
#pragma once
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <type_traits>

#include "anneal/core/dims.h"
#include "anneal/core/dtype.h"

namespace anneal {

// Where memory is. An engine on a GPU takes host memory and that GPU's, others host memory alone.
enum class MemoryKind : uint8_t { kHost, kPinnedHost, kCuda };
struct MemoryPlace {
  MemoryKind kind = MemoryKind::kHost;
  int device = 0;  // of kCuda: the number of the GPU; -1: the emulated one
  bool operator==(const MemoryPlace&) const = default;
};

// The DataType of a C++ type. f16 and bf16 are _Float16 (std::float16_t) and std::bfloat16_t if
// the compiler has them; otherwise pass their DataType to view().
template <class T>
inline constexpr DataType kDataTypeOf = [] {
  using E = std::remove_cv_t<T>;
  if constexpr (std::same_as<E, bool>)
    return DataType::kBool;
  else if constexpr (std::same_as<E, float>)
    return DataType::kF32;
  else if constexpr (std::same_as<E, double>)
    return DataType::kF64;
#ifdef __FLT16_MAX__
  else if constexpr (std::same_as<E, _Float16>)
    return DataType::kF16;
#endif
#ifdef __STDCPP_BFLOAT16_T__
  else if constexpr (std::same_as<E, decltype(0.0bf16)>)
    return DataType::kBF16;
#endif
  else {
    static_assert(std::integral<E>, "tensors hold floating-point numbers, integers and bool");
    constexpr DataType kSmallest = std::is_signed_v<E> ? DataType::kI8 : DataType::kU8;
    return static_cast<DataType>(int(kSmallest) + std::bit_width(sizeof(E)) - 1);
  }
}();

namespace detail {
// Fails with kInvalidArgument unless the view is dense row-major host memory of type `wanted`.
void check_span(DataType wanted, DataType dtype, const Dims& dims, const Dims& strides,
                MemoryPlace place);
// Fails with kInvalidArgument, naming both sides, unless the dims have `elements` elements and an
// element of the type has `bytes` bytes.
void check_elements(DataType dtype, const Dims& dims, size_t elements, size_t bytes);
}  // namespace detail

// data points at element [0,...,0], so a slice or a transpose of a tensor is another view of the
// same memory. Strides count elements and may be 0 (broadcast). Alignment: that of the element type
// at least. The owner of the memory must outlive the view.
struct TensorView {
  DataType dtype = DataType::kF32;
  Dims dims;
  Dims strides;
  std::byte* data = nullptr;
  MemoryPlace place = {};  // checked by contexts; kernels get memory of their own device

  // The elements as one array. Fails with kInvalidArgument unless T is the element type and the
  // view is dense row-major host memory.
  template <class T>
  std::span<T> span() const {
    detail::check_span(kDataTypeOf<T>, dtype, dims, strides, place);
    return {reinterpret_cast<T*>(data), static_cast<size_t>(count(dims))};
  }
  // Not checked. REQUIRES: host memory whose elements have type T
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

// A TensorView of read-only memory.
struct ConstTensorView {
  DataType dtype = DataType::kF32;
  Dims dims;
  Dims strides;
  const std::byte* data = nullptr;
  MemoryPlace place = {};

  ConstTensorView() = default;
  ConstTensorView(DataType type, const Dims& sizes, const Dims& steps, const std::byte* first,
                  MemoryPlace where = {})
      : dtype(type), dims(sizes), strides(steps), data(first), place(where) {}
  ConstTensorView(const TensorView& view)
      : ConstTensorView(view.dtype, view.dims, view.strides, view.data, view.place) {}

  // As TensorView::span().
  template <class T>
  std::span<const T> span() const {
    detail::check_span(kDataTypeOf<T>, dtype, dims, strides, place);
    return {reinterpret_cast<const T*>(data), static_cast<size_t>(count(dims))};
  }
};

bool is_row_major(const ConstTensorView& view);  // dense; axes of size 1 may have any stride
// A view of dense row-major memory.
inline TensorView row_major_view(DataType dtype, const Dims& dims, std::byte* data) {
  return {dtype, dims, row_major_strides(dims), data};
}

// A view of the elements of a vector, an array or a span, dense and row-major, in host memory:
//
//   std::vector<float> pixels(3 * 224 * 224);
//   context.set_input("image", anneal::view(pixels, {1, 3, 224, 224}));
//
// The element type follows from that of the container, or is given (f16 and bf16, as uint16_t).
// Fails with kInvalidArgument if the number of elements does not match dims.
template <std::ranges::contiguous_range R>
requires std::ranges::sized_range<R> && std::ranges::borrowed_range<R>
auto view(R&& elements, const Dims& dims,
          DataType dtype = kDataTypeOf<std::ranges::range_value_t<R>>) {
  using T = std::remove_reference_t<std::ranges::range_reference_t<R>>;
  detail::check_elements(dtype, dims, std::ranges::size(elements), sizeof(T));
  T* const data = std::ranges::data(elements);
  if constexpr (std::is_const_v<T>)
    return ConstTensorView(dtype, dims, row_major_strides(dims),
                           reinterpret_cast<const std::byte*>(data));
  else
    return row_major_view(dtype, dims, reinterpret_cast<std::byte*>(data));
}

}  // namespace anneal
