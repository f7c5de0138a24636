#include "anneal/graph/op/weight_encoding.h"

#include "anneal/core/float16.h"

namespace anneal {
namespace {

constexpr float kE2M1Numbers[16] = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                    -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};
constexpr float kFp4Numbers[16] = {
    0.0F,  0.005208333333F,  0.66666667F,  1.0F,  0.33333333F,  0.5F,  0.16666667F,  0.25F,
    -0.0F, -0.005208333333F, -0.66666667F, -1.0F, -0.33333333F, -0.5F, -0.16666667F, -0.25F};
constexpr float kNf4Numbers[16] = {-1.0F,
                                   -0.6961928009986877F,
                                   -0.5250730514526367F,
                                   -0.39491748809814453F,
                                   -0.28444138169288635F,
                                   -0.18477343022823334F,
                                   -0.09105003625154495F,
                                   0.0F,
                                   0.07958029955625534F,
                                   0.16093020141124725F,
                                   0.24611230194568634F,
                                   0.33791524171829224F,
                                   0.44070982933044434F,
                                   0.5626170039176941F,
                                   0.7229568362236023F,
                                   1.0F};

}  // namespace

std::span<const float, 16> numbers_of_4_bits(WeightEncoding encoding) {
  if (encoding == WeightEncoding::kFp4) return kFp4Numbers;
  return encoding == WeightEncoding::kNf4 ? kNf4Numbers : kE2M1Numbers;
}

// f16 has the fields of both 8-bit types, with the exponent bias of E5M2: 15, where E4M3 has 7.
float number_of(WeightEncoding encoding, uint8_t code) {
  if (encoding == WeightEncoding::kE5M2) return to_f32(Float16{static_cast<uint16_t>(code << 8)});
  if (encoding != WeightEncoding::kE4M3) return numbers_of_4_bits(encoding)[code & 15U];
  const unsigned sign = code & 0x80U, magnitude = code & 0x7fU;
  return 256 * to_f32(Float16{static_cast<uint16_t>(sign << 8 | magnitude << 7)});
}

}  // namespace anneal
