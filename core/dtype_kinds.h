// Kinds of element types.
#pragma once
#include "anneal/core/dtype.h"

namespace anneal {

constexpr bool is_float(DataType t) { return t >= DataType::kF32 && t <= DataType::kBF16; }
constexpr bool is_half(DataType t) { return t == DataType::kF16 || t == DataType::kBF16; }
constexpr bool is_8bit(DataType t) { return t == DataType::kI8 || t == DataType::kU8; }
constexpr bool is_signed_integer(DataType t) { return t >= DataType::kI8 && t <= DataType::kI64; }
constexpr bool is_unsigned_integer(DataType t) { return t >= DataType::kU8 && t <= DataType::kU64; }
constexpr bool is_integer(DataType t) { return t >= DataType::kI8 && t <= DataType::kU64; }

}  // namespace anneal
