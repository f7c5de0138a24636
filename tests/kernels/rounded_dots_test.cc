// Products of rounded rows by weights of 2, 4 and 8 bits: each instruction set gives the same bits.
#include "anneal/kernels/cpu/gemm/rounded_dots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "anneal/core/float16.h"

namespace anneal::cpu {
namespace {

struct Weights {
  CodeLayout layout;
  std::vector<std::byte> panels;
};

// With codes, scales and zero points of all sizes.
Weights random_weights(const CodeLayout& layout, std::mt19937& random) {
  const auto factors = static_cast<size_t>(layout.n * layout.groups());
  std::vector<uint8_t> codes(static_cast<size_t>(layout.n * layout.k * layout.bits / 8));
  std::vector<uint8_t> zeros(factors);
  std::vector<float> scales(factors);
  for (uint8_t& code : codes) code = static_cast<uint8_t>(random());
  for (uint8_t& zero : zeros) zero = static_cast<uint8_t>(random() % (1U << layout.bits));
  for (float& scale : scales) scale = std::normal_distribution<float>(0, 0.1F)(random);
  Weights weights{layout, std::vector<std::byte>(layout.bytes())};
  weights.layout.scale_factor = scale_factor_of(scales, layout.groups()).value();
  const CodeSource source{.codes = codes.data(),
                          .column_bytes = layout.k * layout.bits / 8,
                          .scales = scales.data(),
                          .zeros = layout.has_zeros ? zeros.data() : nullptr,
                          .factor_stride = layout.groups()};
  for (int64_t panel = 0; panel < layout.panels(); ++panel)
    pack_code_panel(weights.layout, source, panel, weights.panels.data());
  return weights;
}

struct Rows {
  std::vector<int8_t> q;
  std::vector<float> scales;
  std::vector<int32_t> sums;
};

Rows random_rows(const CodeLayout& layout, int64_t count, std::mt19937& random) {
  const auto groups = static_cast<size_t>(layout.groups());
  Rows rows{std::vector<int8_t>(static_cast<size_t>(count * layout.k)),
            std::vector<float>(static_cast<size_t>(count) * groups),
            std::vector<int32_t>(static_cast<size_t>(count) * groups)};
  std::vector<float> row(static_cast<size_t>(layout.k));
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    for (float& x : row) x = std::normal_distribution<float>()(random);
    round_row(Isa::kBaseline)(layout, row.data(),
                              {rows.q.data() + i * row.size(), rows.scales.data() + i * groups,
                               rows.sums.data() + i * groups});
  }
  return rows;
}

std::vector<float> product(RoundedDots dots, const Weights& weights, Rows& rows, int64_t count) {
  const int64_t columns = weights.layout.panels() * CodeLayout::kColumns;
  std::vector<float> c(static_cast<size_t>(count * columns));
  dots({.layout = &weights.layout,
        .panel = weights.panels.data(),
        .panels = weights.layout.panels(),
        .rows = {rows.q.data(), rows.scales.data(), rows.sums.data()},
        .row_count = count,
        .c = c.data(),
        .c_stride = columns});
  return c;
}

// Each scale as f16 holds it, relative to itself or to the largest one of its column.
double worst_rounding(const std::vector<float>& scales, size_t groups, float factor) {
  double worst = 0;
  for (size_t at = 0; at < scales.size(); ++at) {
    const auto column = scales.begin() + static_cast<std::ptrdiff_t>(at / groups * groups);
    const float held = to_f32(to_f16(scales[at] * factor)) / factor;
    EXPECT_TRUE(std::isfinite(held));
    const float most =
        *std::max_element(column, column + static_cast<std::ptrdiff_t>(groups),
                          [](float a, float b) { return std::abs(a) < std::abs(b); });
    worst = std::max(worst, std::abs(double{held} - scales[at]) / std::abs(most));
  }
  return worst;
}

TEST(RoundedDots, ScalesTakeHalfPrecision) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::mt19937 random(3);
  for (const float size : {1e-5F, 1e-3F, 0.02F, 1.0F, 7e4F, 1e9F}) {
    std::vector<float> scales(96);
    for (float& scale : scales) scale = size * std::normal_distribution<float>()(random);
    scales[5] = scales[90] = size * 1e-30F;
    const auto factor = scale_factor_of(scales, 8);
    ASSERT_TRUE(factor) << size;
    EXPECT_EQ(std::exp2(std::round(std::log2(*factor))), *factor);
    EXPECT_LE(worst_rounding(scales, 8, *factor), 1.0 / 2048) << size;
  }
  EXPECT_EQ(scale_factor_of(std::vector<float>(8), 4), 1);
  EXPECT_EQ(scale_factor_of(std::vector<float>{1, -2, 0, 0}, 2), 16384.0F / 2);
  // The largest ones of two columns may be 2^20 apart.
  const std::vector<float> apart{1, 1e-20F, std::ldexp(1.0F, -20), 0};
  ASSERT_TRUE(scale_factor_of(apart, 2));
  EXPECT_LE(worst_rounding(apart, 2, *scale_factor_of(apart, 2)), 1.0 / 2048);
  EXPECT_FALSE(scale_factor_of(std::vector<float>{1, 1, std::ldexp(1.0F, -21), 0}, 2));
  EXPECT_FALSE(scale_factor_of(std::vector<float>{1, kInfinity}, 2));
  EXPECT_FALSE(scale_factor_of(std::vector<float>{NAN, 1}, 2));
  EXPECT_FALSE(scale_factor_of(std::vector<float>{1e30F, 1e30F}, 2));
}

TEST(RoundedDots, AreTheSameBitsForAllInstructionSets) {
  std::vector<std::pair<std::string, RoundedDots>> all;
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kFull})
    if (isa <= current_isa()) all.emplace_back(to_string(isa), rounded_dots(isa));
  if (has_avx_vnni()) all.emplace_back("avx-vnni", rounded_avx_vnni);
  std::mt19937 random(1);
  for (const auto& [bits, has_zeros, zero] : {std::tuple{2, false, 2},
                                              {2, true, 0},
                                              {4, false, 8},
                                              {4, true, 8},
                                              {8, false, 0},
                                              {8, false, 131},
                                              {8, true, 0}})
    for (const auto& [k, n, group] : {std::tuple<int64_t, int64_t, int64_t>{64, 16, 16},
                                      {96, 70, 32},
                                      {256, 33, 128},
                                      {4096, 17, 4096}}) {
      const CodeLayout layout{
          .k = k, .n = n, .group = group, .bits = bits, .has_zeros = has_zeros, .zero = zero};
      const Weights weights = random_weights(layout, random);
      for (const int64_t count : {1, 2, 3, 4, 5, 9, 14}) {
        Rows rows = random_rows(layout, count, random);
        const auto expected = product(rounded_dots(Isa::kBaseline), weights, rows, count);
        for (const auto& [name, dots] : all)
          EXPECT_EQ(product(dots, weights, rows, count), expected)
              << name << ": " << bits << " bits, " << count << " rows, k " << k << ", group "
              << group;
      }
    }
}

// The largest sums that a group can have: bytes, rows and zero points of the largest magnitude.
TEST(RoundedDots, SumsOfExtremesDoNotOverflow) {
  for (const uint8_t code : {0, 1, 127, 128, 255})
    for (const int8_t number : {-127, 127})
      for (const int zero : {0, 128, 255}) {
        CodeLayout layout{.k = CodeLayout::kMostGroup,
                          .n = 16,
                          .group = CodeLayout::kMostGroup,
                          .bits = 8,
                          .zero = zero};
        const std::vector<uint8_t> codes(static_cast<size_t>(layout.n * layout.k), code);
        const float scale = 1;
        Weights weights{layout, std::vector<std::byte>(layout.bytes())};
        pack_code_panel(layout, {.codes = codes.data(), .scales = &scale}, 0,
                        weights.panels.data());
        Rows rows{std::vector<int8_t>(static_cast<size_t>(layout.k), number), {1.0F}, {}};
        rows.sums = {static_cast<int32_t>(number * layout.k)};
        const auto wanted = static_cast<float>((code - zero) * number * layout.k);
        std::vector<RoundedDots> all;
        for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kFull})
          if (isa <= current_isa()) all.push_back(rounded_dots(isa));
        if (has_avx_vnni()) all.push_back(rounded_avx_vnni);
        for (const RoundedDots dots : all)
          EXPECT_EQ(product(dots, weights, rows, 1), std::vector<float>(16, wanted))
              << int{code} << " less " << zero << " by " << int{number};
      }
}

}  // namespace
}  // namespace anneal::cpu
