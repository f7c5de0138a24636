#include "anneal/core/float16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

namespace anneal {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The value nearest to x with `digits` binary digits and least exponent `least`, ties to even.
double nearest(double x, int digits, int least, double overflow) {
  if (x == 0 || !std::isfinite(x)) return x;
  const double unit = std::ldexp(1.0, std::max(std::ilogb(x), least) - (digits - 1));
  const double rounded = std::nearbyint(x / unit) * unit;
  return std::abs(rounded) >= overflow ? std::copysign(kInfinity, x) : rounded;
}

double nearest_f16(double x) { return nearest(x, 11, -14, 65536.0); }
double nearest_bf16(double x) { return nearest(x, 8, -126, 0x1p128); }

void expect_same(double actual, double expected, double x) {
  EXPECT_EQ(std::bit_cast<uint64_t>(actual), std::bit_cast<uint64_t>(expected))
      << std::hexfloat << x << " gives " << actual << ", not " << expected;
}

void expect_f16(double x) {
  expect_same(to_f32(to_f16(x)), nearest_f16(x), x);
  const auto single = static_cast<float>(x);
  expect_same(to_f32(to_f16(single)), nearest_f16(single), single);
}

void expect_bf16(double x) {
  const auto single = static_cast<float>(x);
  expect_same(to_f32(to_bf16(single)), nearest_bf16(single), single);
}

TEST(Float16, EveryPatternGoesThereAndBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const Float16 half{static_cast<uint16_t>(bits)};
    const float value = to_f32(half);
    if ((bits & 0x7fff) > 0x7c00) {
      EXPECT_TRUE(std::isnan(value));
      const uint16_t quiet = static_cast<uint16_t>(bits | 0x200);
      EXPECT_EQ(to_f16(value).bits, quiet);
      EXPECT_EQ(to_f16(static_cast<double>(value)).bits, quiet);
    } else {
      const int exponent = static_cast<int>(bits >> 10 & 31), mantissa = bits & 1023;
      const double magnitude = exponent == 31  ? kInfinity
                               : exponent == 0 ? std::ldexp(mantissa, -24)
                                               : std::ldexp(1024 + mantissa, exponent - 25);
      expect_same(value, bits & 0x8000 ? -magnitude : magnitude, bits);
      EXPECT_EQ(to_f16(value).bits, bits);
      EXPECT_EQ(to_f16(static_cast<double>(value)).bits, bits);
    }
  }
}

TEST(BFloat16, EveryPatternGoesThereAndBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = to_f32(BFloat16{static_cast<uint16_t>(bits)});
    const bool nan = (bits & 0x7fff) > 0x7f80;
    EXPECT_EQ(std::isnan(value), nan);
    EXPECT_EQ(std::bit_cast<uint32_t>(value), bits << 16);
    EXPECT_EQ(to_bf16(value).bits, nan ? bits | 0x40 : bits);
  }
}

TEST(Float16, RoundsAroundEveryMidpoint) {
  for (uint16_t bits = 0; bits < 0x7c00; ++bits) {
    const double low = to_f32(Float16{bits});
    const double high = bits == 0x7bff ? 65536.0 : to_f32(Float16{static_cast<uint16_t>(bits + 1)});
    const double middle = (low + high) / 2;
    const auto single = static_cast<float>(middle);
    for (double x : {middle, std::nextafter(middle, 0), std::nextafter(middle, kInfinity),
                     double{std::nextafter(single, 0.0f)}, double{std::nextafter(single, 1e9f)}}) {
      expect_f16(x);
      expect_f16(-x);
    }
  }
}

TEST(BFloat16, RoundsAroundEveryMidpoint) {
  for (uint16_t bits = 0; bits < 0x7f80; ++bits) {
    const uint32_t middle = uint32_t{bits} << 16 | 0x8000;
    for (uint32_t x : {middle - 1, middle, middle + 1}) {
      expect_bf16(std::bit_cast<float>(x));
      expect_bf16(-std::bit_cast<float>(x));
    }
  }
}

TEST(Float16, DoublesAreRoundedOnce) {
  // To f32 this is a tie between two f16; the double lies above it.
  const double above = 1.0 + 0x1p-11 + 0x1p-40;
  EXPECT_EQ(to_f16(above).bits, 0x3c01);
  EXPECT_EQ(to_f16(static_cast<float>(above)).bits, 0x3c00);
}

TEST(Float16, RandomAndSpecialValues) {
  const double special[] = {0.0,     -0.0,    kInfinity, -kInfinity, 65504,    65519.99,  65520,
                            65536,   1e300,   0x1p-24,   0x1p-25,    0x1p-26,  0x1p-1074, 0x1p-149,
                            0x1p127, 0x1p128, 1e-300,    5.9e-8,     6.097e-5, 0x1p-1022};
  for (double x : special) {
    expect_f16(x);
    expect_bf16(x);
  }
  std::mt19937_64 random(7);
  for (int i = 0; i < 300000; ++i) {
    const double x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isnan(x)) continue;
    expect_f16(x);
    expect_bf16(x);
    expect_f16(std::ldexp(static_cast<double>(random()) * 0x1p-63 - 1.0,
                          static_cast<int>(random() % 50) - 30));
  }
  for (uint32_t bits : {0x7f800001u, 0x7fc00000u, 0xffffffffu, 0x7f802000u}) {
    const auto nan = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(to_f32(to_f16(nan))));
    EXPECT_TRUE(std::isnan(to_f32(to_bf16(nan))));
    EXPECT_EQ(std::signbit(to_f32(to_f16(nan))), bits >> 31);
  }
  EXPECT_TRUE(std::isnan(to_f32(to_f16(std::bit_cast<double>(uint64_t{0x7ff0000000000001})))));
}

}  // namespace
}  // namespace anneal
