// Floats of 8 bits: e4m3 has no infinities and one NaN of each sign; e5m2 is the upper half of f16.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "anneal/core/float16.h"

namespace anneal::ptx {

enum class Float8 : uint8_t { kE4m3, kE5m2 };

inline float to_f32(Float8 type, uint8_t bits) {
  if (type == Float8::kE5m2) return to_f32(Float16{static_cast<uint16_t>(bits << 8)});
  const int exponent = bits >> 3 & 0xf, mantissa = bits & 7;
  float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                  : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  if (exponent == 15 && mantissa == 7) magnitude = NAN;
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

// "cvt.rn.satfinite": to nearest, ties to even; beyond the range the largest number; NaN 0x7f.
inline uint8_t to_float8(Float8 type, float value) {
  const int mantissa_bits = type == Float8::kE4m3 ? 3 : 2, bias = type == Float8::kE4m3 ? 7 : 15;
  const uint8_t largest = type == Float8::kE4m3 ? 0x7e : 0x7b;
  if (std::isnan(value)) return 0x7f;
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const float magnitude = std::fabs(value);
  if (magnitude >= to_f32(type, largest)) return sign | largest;
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), 1 - bias);
  // In units of the last place; a carry reaches the exponent.
  const auto units =
      static_cast<int>(std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent)));
  const int bits = ((exponent + bias - 1) << mantissa_bits) + units;
  return sign | static_cast<uint8_t>(std::min(bits, int{largest}));
}

}  // namespace anneal::ptx
