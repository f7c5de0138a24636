// Tensors written as text, for tables of cases:
//
//   f32[2,3]={1,2,3,4,5,6}    values in row-major order; also inf, -inf, nan
//   i64[4]=iota               0, 1, 2, ...
//   u8[3,7]=0..255            random between, ends included; whole numbers for integer types
//   f16[5]                    random: -2..2 for floats, -9..9 for signed and 0..9 for unsigned
//                             integers, 0..1 for bool
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "anneal/core/tensor.h"

namespace anneal::testing {

// The same text and seed give the same tensor. Fails with kInvalidArgument.
Tensor tensor_from_text(std::string_view text, uint64_t seed = 1);

// An element as a number. Exact but for 64-bit integers above 2^53.
double element(const Tensor& tensor, int64_t i);

// Nothing if each float is within tolerance * (largest finite magnitude of `wanted`) and all else
// is equal, NaN to NaN included; otherwise a sentence on the worst element.
std::optional<std::string> difference(const Tensor& got, const Tensor& wanted, double tolerance);
double default_tolerance(DataType dtype);

}  // namespace anneal::testing
