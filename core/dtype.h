// Element types of tensors.
#pragma once
#include <cstddef>
#include <cstdint>
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
  kString = 14,  // values of a model may be strings, tensors may not
};

std::string_view to_string(DataType dtype);  // "f32"
size_t size_of(DataType dtype);              // bytes of one element. REQUIRES: not kString

}  // namespace anneal
