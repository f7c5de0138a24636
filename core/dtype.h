// Element types of tensors.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace anneal {

// The values are written into engine files: never reuse one.
enum class DataType : uint8_t {
  kF32 = 1,
  kF64 = 2,
  kF16 = 3,
  kBF16 = 4,
  kI8 = 5,
  kI16 = 6,
  kI32 = 7,
  kI64 = 8,
  kU8 = 9,
  kU16 = 10,
  kU32 = 11,
  kU64 = 12,
  kBool = 13,    // one byte, 0 or 1
  kString = 14,  // a type a value may have; no kernel and no memory layout yet
};

std::span<const DataType> all_dtypes();
std::string_view to_string(DataType dtype);                      // "f32"
std::optional<DataType> dtype_from_name(std::string_view name);  // nullopt if there is none
size_t size_of(DataType dtype);  // bytes of one element. REQUIRES: not kString

constexpr bool is_float(DataType t) { return t >= DataType::kF32 && t <= DataType::kBF16; }
constexpr bool is_half(DataType t) { return t == DataType::kF16 || t == DataType::kBF16; }
constexpr bool is_8bit(DataType t) { return t == DataType::kI8 || t == DataType::kU8; }
constexpr bool is_signed_integer(DataType t) { return t >= DataType::kI8 && t <= DataType::kI64; }
constexpr bool is_unsigned_integer(DataType t) { return t >= DataType::kU8 && t <= DataType::kU64; }
constexpr bool is_integer(DataType t) { return t >= DataType::kI8 && t <= DataType::kU64; }

}  // namespace anneal
