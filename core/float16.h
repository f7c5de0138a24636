// f16 and bf16 as bits; arithmetic is done in f32. Conversions round to nearest, ties to even, keep
// infinities and NaN, and are exact in the other direction.
#pragma once
#include <cstdint>

namespace anneal {

struct Float16 {
  uint16_t bits = 0;
};
struct BFloat16 {
  uint16_t bits = 0;
};
Float16 to_f16(float value);
Float16 to_f16(double value);  // rounds once, not by way of f32
BFloat16 to_bf16(float value);
float to_f32(Float16 value);
float to_f32(BFloat16 value);

}  // namespace anneal
