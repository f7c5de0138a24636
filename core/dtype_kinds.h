// The element types: their list, their names as text, and their kinds.
#pragma once
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "anneal/core/dtype.h"

namespace anneal {

namespace detail {
inline constexpr auto kAllTypes = [] {
  std::array<DataType, static_cast<size_t>(DataType::kString)> all{};
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<DataType>(i + 1);
  return all;
}();
}  // namespace detail

constexpr std::span<const DataType> all_dtypes() { return detail::kAllTypes; }  // in order
inline std::optional<DataType> dtype_from_name(std::string_view name) {
  for (const DataType dtype : all_dtypes())
    if (to_string(dtype) == name) return dtype;
  return std::nullopt;
}

constexpr bool is_float(DataType t) { return t >= DataType::kF32 && t <= DataType::kBF16; }
constexpr bool is_half(DataType t) { return t == DataType::kF16 || t == DataType::kBF16; }
constexpr bool is_8bit(DataType t) { return t == DataType::kI8 || t == DataType::kU8; }
constexpr bool is_signed_integer(DataType t) { return t >= DataType::kI8 && t <= DataType::kI64; }
constexpr bool is_unsigned_integer(DataType t) { return t >= DataType::kU8 && t <= DataType::kU64; }
constexpr bool is_integer(DataType t) { return t >= DataType::kI8 && t <= DataType::kU64; }

}  // namespace anneal
