// Element types as C++ types: the types in which a reference kernel loads, computes and stores.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "anneal/core/dtype.h"
#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/core/float16.h"
#include "anneal/core/tensor.h"

namespace anneal::cpu {

// Acc: the type in which an op hands on its results (accumulator() of graph/op/infer.h).
// Sum: the type in which references add and multiply many elements: f64 for all floats, rounded to
// Acc once, so that the reference is nearer to the truth than any kernel compared with it; integers
// wrap, which u64 does for every width and sign.
template <DataType D, class S, class A>
struct Element {
  static constexpr DataType dtype = D;
  using Storage = S;
  using Acc = A;
  using Sum = std::conditional_t<std::is_floating_point_v<A>, double, uint64_t>;
  static Acc load(const std::byte* data, int64_t i) {
    const S value = reinterpret_cast<const S*>(data)[i];
    if constexpr (is_half(D)) {
      return to_f32(value);
    } else {
      return static_cast<A>(value);
    }
  }
};

// f(Element<...>{}) for the dtype at hand.
template <class F>
decltype(auto) visit_float(DataType dtype, F&& f) {
  switch (dtype) {
    case DataType::kF32:
      return f(Element<DataType::kF32, float, float>{});
    case DataType::kF64:
      return f(Element<DataType::kF64, double, double>{});
    case DataType::kF16:
      return f(Element<DataType::kF16, Float16, float>{});
    case DataType::kBF16:
      return f(Element<DataType::kBF16, BFloat16, float>{});
    default:
      break;
  }
  fail(ErrorCode::kInternal, "the reference kernel expects a float type");
}
template <class F>
decltype(auto) visit_dtype(DataType dtype, F&& f) {
  switch (dtype) {
    case DataType::kI8:
      return f(Element<DataType::kI8, int8_t, int8_t>{});
    case DataType::kI16:
      return f(Element<DataType::kI16, int16_t, int16_t>{});
    case DataType::kI32:
      return f(Element<DataType::kI32, int32_t, int32_t>{});
    case DataType::kI64:
      return f(Element<DataType::kI64, int64_t, int64_t>{});
    case DataType::kU8:
      return f(Element<DataType::kU8, uint8_t, uint8_t>{});
    case DataType::kU16:
      return f(Element<DataType::kU16, uint16_t, uint16_t>{});
    case DataType::kU32:
      return f(Element<DataType::kU32, uint32_t, uint32_t>{});
    case DataType::kU64:
      return f(Element<DataType::kU64, uint64_t, uint64_t>{});
    case DataType::kBool:
      return f(Element<DataType::kBool, uint8_t, bool>{});
    default:
      return visit_float(dtype, f);
  }
}

// An element as the number that sums and products are made of.
template <class Sum, class Acc>
Sum widen(Acc value) {
  if constexpr (std::is_floating_point_v<Sum>) {
    return static_cast<Sum>(value);
  } else {
    return static_cast<Sum>(static_cast<int64_t>(value));
  }
}

// Reads and writes elements whose dtype is that of an op's result or its accumulator: for
// Acc = float any of f32, f16 and bf16, else Acc's own.
template <class Acc>
class ResultElements {
 public:
  explicit ResultElements(const TensorView& view) : dtype_(view.dtype), data_(view.data) {}
  Acc get(int64_t i) const {
    if constexpr (std::is_same_v<Acc, float>) {
      if (dtype_ == DataType::kF16) return to_f32(reinterpret_cast<const Float16*>(data_)[i]);
      if (dtype_ == DataType::kBF16) return to_f32(reinterpret_cast<const BFloat16*>(data_)[i]);
    }
    if constexpr (std::is_same_v<Acc, bool>) return reinterpret_cast<const uint8_t*>(data_)[i] != 0;
    return reinterpret_cast<const Acc*>(data_)[i];
  }
  void put(int64_t i, Acc value) const {
    if constexpr (std::is_same_v<Acc, float>) {
      if (dtype_ == DataType::kF16) {
        reinterpret_cast<Float16*>(data_)[i] = to_f16(value);
        return;
      }
      if (dtype_ == DataType::kBF16) {
        reinterpret_cast<BFloat16*>(data_)[i] = to_bf16(value);
        return;
      }
    }
    reinterpret_cast<Acc*>(data_)[i] = value;
  }

 private:
  DataType dtype_;
  std::byte* data_;
};

template <class T>
bool is_nan(T value) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(value);
  return false;
}

// An element of an i32 or i64 tensor: an index, an axis, a size.
inline int64_t load_integer(const TensorView& view, int64_t i) {
  if (view.dtype == DataType::kI64) return view.as<const int64_t>()[i];
  if (view.dtype == DataType::kI32) return view.as<const int32_t>()[i];
  fail(ErrorCode::kInternal, "indices and sizes are i32 or i64");
}

}  // namespace anneal::cpu
