#include "anneal/core/float16.h"

#include <bit>

namespace anneal {
namespace {

// value / 2^shift, to nearest, ties to even. REQUIRES: shift > 0
template <class U>
constexpr U shift_rounding(U value, int shift) {
  return (value + (U{1} << (shift - 1)) - 1 + ((value >> shift) & 1)) >> shift;
}

// f16 bits of the IEEE number with `kMantissa` mantissa bits and exponent bias `kBias`.
template <class U, int kMantissa, int kBias>
uint16_t half_bits(U bits) {
  constexpr U kMagnitude = ~U{0} >> 1;
  constexpr U kInfinity = kMagnitude >> kMantissa << kMantissa;
  constexpr U kOverflow = ((U{kBias} + 15) << kMantissa) + (U{0x7ff} << (kMantissa - 11));  // 65520
  const auto sign = static_cast<uint16_t>(bits >> (8 * sizeof(U) - 16) & 0x8000);
  const U magnitude = bits & kMagnitude;
  if (magnitude > kInfinity)
    return static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> (kMantissa - 10) & 0x3ff));
  if (magnitude >= kOverflow) return sign | 0x7c00;

  const int exponent = static_cast<int>(magnitude >> kMantissa) - kBias;
  if (exponent < -25) return sign;
  if (exponent < -14) {  // subnormal: a multiple of 2^-24
    const U mantissa = (magnitude & ((U{1} << kMantissa) - 1)) | U{1} << kMantissa;
    return static_cast<uint16_t>(sign | shift_rounding(mantissa, kMantissa - 24 - exponent));
  }
  const U rebiased = magnitude - (U{kBias - 15} << kMantissa);
  return static_cast<uint16_t>(sign | shift_rounding(rebiased, kMantissa - 10));
}

}  // namespace

Float16 to_f16(float value) {
  return {half_bits<uint32_t, 23, 127>(std::bit_cast<uint32_t>(value))};
}

Float16 to_f16(double value) {
  return {half_bits<uint64_t, 52, 1023>(std::bit_cast<uint64_t>(value))};
}

BFloat16 to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return {static_cast<uint16_t>(bits >> 16 | 0x40)};
  // The sign rides along: rounding carries at most into the exponent.
  return {static_cast<uint16_t>(shift_rounding<uint64_t>(bits, 16))};
}

float to_f32(Float16 value) {
  const uint32_t sign = (value.bits & 0x8000u) << 16;
  const uint32_t exponent = value.bits >> 10 & 0x1f;
  const uint32_t mantissa = value.bits & 0x3ff;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | mantissa << 13);
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

float to_f32(BFloat16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }

}  // namespace anneal
