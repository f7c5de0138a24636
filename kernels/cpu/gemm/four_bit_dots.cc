#include "anneal/kernels/cpu/gemm/four_bit_dots.h"

#include "anneal/kernels/cpu/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/kernels/cpu/gemm/four_bit_dots.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr float kMostRounded = 127;
constexpr float kLeastMagnitude = 1e-30F;  // whose reciprocal is finite

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
using Floats = hn::ScalableTag<float>;
using Integers = hn::ScalableTag<int32_t>;
using Float = hn::Vec<Floats>;
using Integer = hn::Vec<Integers>;
constexpr int kLanes = HWY_LANES(float);
constexpr int kPanelVectors = static_cast<int>(FourBitLayout::kColumns) / kLanes;

// Of bytes: low + high halves of the codes, each from 0 to 15.
HWY_INLINE Integer low_codes(Integer bytes) {
  return hn::And(bytes, hn::Set(Integers(), 0x0F0F0F0F));
}
HWY_INLINE Integer high_codes(Integer bytes) { return low_codes(hn::ShiftRight<4>(bytes)); }

// Adds to 16-bit sums the products of neighbouring bytes: codes by signed numbers.
HWY_INLINE Integer add_pairs(Integer sum, Integer codes, Integer numbers) {
#if HWY_TARGET == HWY_AVX3
  return Integer{_mm512_add_epi16(sum.raw, _mm512_maddubs_epi16(codes.raw, numbers.raw))};
#else
  return Integer{_mm256_add_epi16(sum.raw, _mm256_maddubs_epi16(codes.raw, numbers.raw))};
#endif
}
// Of neighbouring 16-bit numbers.
HWY_INLINE Integer pair_sums(Integer pairs) {
#if HWY_TARGET == HWY_AVX3
  return Integer{_mm512_madd_epi16(pairs.raw, _mm512_set1_epi16(1))};
#else
  return Integer{_mm256_madd_epi16(pairs.raw, _mm256_set1_epi16(1))};
#endif
}
HWY_INLINE Integer four_numbers(const int8_t* q) {
  int32_t quad;
  std::memcpy(&quad, q, sizeof quad);
  return hn::Set(Integers(), quad);
}

// Of 32 k, the 16-bit sums of at most 16 products of up to 15 * 127 cannot overflow.
constexpr int64_t kSumsIn16Bits = 32;

// kRows rows by kPanels panels.
template <int kRows, int kPanels>
void four_bit_tile(const FourBitBlock& block, int64_t row, int64_t panel) {
  constexpr int kVectors = kPanels * kPanelVectors;
  const FourBitLayout& layout = *block.layout;
  const int64_t groups = layout.groups(), group_bytes = layout.group_bytes();
  const std::byte* weights[kPanels];
#pragma GCC unroll 4
  for (int i = 0; i < kPanels; ++i) weights[i] = block.panel + (panel + i) * layout.panel_bytes();
  const int8_t* q = block.rows.q + row * layout.k;
  Float sums[kRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(Floats());
  for (int64_t group = 0; group < groups; ++group) {
    Integer dots[kRows][kVectors];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) dots[r][v] = hn::Zero(Integers());
    int64_t at = 0;  // bytes of the panel's group
    for (int64_t left = layout.group; left > 0; left -= kSumsIn16Bits) {
      Integer pairs[kRows][kVectors];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) pairs[r][v] = hn::Zero(Integers());
      for (int64_t k = std::min(left, kSumsIn16Bits); k > 0; k -= 8, at += 64, q += 8) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          const std::byte* from = weights[v / kPanelVectors] + at;
          if (v % kPanelVectors == 0) __builtin_prefetch(from + 4096);
          const Integer bytes = hn::LoadU(
              Integers(), reinterpret_cast<const int32_t*>(from + v % kPanelVectors * kLanes * 4));
          const Integer low = low_codes(bytes), high = high_codes(bytes);
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r) {
            pairs[r][v] = add_pairs(pairs[r][v], low, four_numbers(q + r * layout.k));
            pairs[r][v] = add_pairs(pairs[r][v], high, four_numbers(q + r * layout.k + 4));
          }
        }
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) dots[r][v] = hn::Add(dots[r][v], pair_sums(pairs[r][v]));
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const std::byte* factors = weights[v / kPanelVectors] + layout.scales_at();
      const int column = v % kPanelVectors * kLanes;
      const Float scale = hn::LoadU(Floats(), reinterpret_cast<const float*>(factors) + column);
      Integer zero = hn::Set(Integers(), 8);
      if (layout.has_zeros)
        zero = hn::PromoteTo(Integers(), hn::LoadU(hn::Rebind<uint8_t, Integers>(),
                                                   reinterpret_cast<const uint8_t*>(factors) +
                                                       FourBitLayout::kColumns * 4 + column));
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const int64_t of_group = (row + r) * groups + group;
        const Integer moved = hn::Mul(zero, hn::Set(Integers(), block.rows.sums[of_group]));
        const Float dot = hn::ConvertTo(Floats(), hn::Sub(dots[r][v], moved));
        const Float factor = hn::Mul(scale, hn::Set(Floats(), block.rows.scales[of_group]));
        sums[r][v] = hn::MulAdd(dot, factor, sums[r][v]);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kPanels; ++i) weights[i] += group_bytes;
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      hn::StoreU(
          sums[r][v], Floats(),
          block.c + (row + r) * block.c_stride + panel * FourBitLayout::kColumns + v * kLanes);
}

// Tiles of up to 4 rows. Few rows take several panels, whose sums hide each other's latency.
constexpr int kMostRows = 4;
constexpr int panels_of(int rows) {
  return rows == 1 ? 4 / kPanelVectors : HWY_TARGET == HWY_AVX3 || rows == 2 ? 2 : 1;
}

template <int kRows>
void tile_row(const FourBitBlock& block, int64_t row, int64_t& panel, int64_t end) {
  constexpr int kPanels = panels_of(kRows);
  for (; panel + kPanels <= end; panel += kPanels) four_bit_tile<kRows, kPanels>(block, row, panel);
  if constexpr (kPanels > 1)
    for (; panel < end; ++panel) four_bit_tile<kRows, 1>(block, row, panel);
}

void tiles(const FourBitBlock& block, int64_t row, int64_t rows, int64_t panel, int64_t end) {
  switch (rows) {
    case 1:
      return tile_row<1>(block, row, panel, end);
    case 2:
      return tile_row<2>(block, row, panel, end);
    case 3:
      return tile_row<3>(block, row, panel, end);
    default:
      return tile_row<4>(block, row, panel, end);
  }
}
#endif

}  // namespace

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
void dots(const FourBitBlock& block) {
  constexpr int64_t kPanelsAtOnce = 2;  // which stay in the cache for the tiles of all rows
  const int64_t heights = ceil_div<int64_t>(block.row_count, kMostRows);
  const int64_t step = heights == 1 ? block.panels : kPanelsAtOnce;
  for (int64_t panel = 0; panel < block.panels; panel += step)
    for (int64_t i = 0; i < heights; ++i) {
      const int64_t row = block.row_count * i / heights;
      tiles(block, row, block.row_count * (i + 1) / heights - row, panel,
            std::min(panel + step, block.panels));
    }
}

void round_one(const FourBitLayout& layout, const float* row, const RoundedRow& to) {
  const hn::Rebind<int8_t, Integers> bytes;
  for (int64_t group = 0; group < layout.groups(); ++group) {
    const float* const in = row + group * layout.group;
    Float most = hn::Zero(Floats()), wrong = hn::Zero(Floats());
    for (int64_t i = 0; i < layout.group; i += kLanes) {
      const Float x = hn::LoadU(Floats(), in + i);
      most = hn::Max(most, hn::Abs(x));
      wrong = hn::MulAdd(x, hn::Zero(Floats()), wrong);  // NaN if x is not finite
    }
    const float magnitude = hn::GetLane(hn::MaxOfLanes(Floats(), most));
    const bool is_zero = magnitude < kLeastMagnitude;
    const Float factor = hn::Set(Floats(), is_zero ? 0 : kMostRounded / magnitude);
    to.scales[group] =
        (is_zero ? 0 : magnitude / kMostRounded) + hn::GetLane(hn::SumOfLanes(Floats(), wrong));
    Integer sum = hn::Zero(Integers());
    for (int64_t i = 0; i < layout.group; i += kLanes) {
      const Integer q = hn::NearestInt(hn::Mul(hn::LoadU(Floats(), in + i), factor));
      sum = hn::Add(sum, q);
      hn::StoreU(hn::DemoteTo(bytes, q), bytes, to.q + group * layout.group + i);
    }
    to.sums[group] = hn::GetLane(hn::SumOfLanes(Integers(), sum));
  }
}
#else
void dots(const FourBitBlock& block) {
  const FourBitLayout& layout = *block.layout;
  constexpr int64_t kColumns = FourBitLayout::kColumns;
  for (int64_t row = 0; row < block.row_count; ++row)
    for (int64_t n = 0; n < block.panels * kColumns; ++n) {
      const std::byte* panel = block.panel + n / kColumns * layout.panel_bytes();
      const int64_t column = n % kColumns;
      float sum = 0;
      for (int64_t group = 0; group < layout.groups(); ++group, panel += layout.group_bytes()) {
        const int8_t* const q = block.rows.q + row * layout.k + group * layout.group;
        int32_t dot = 0;
        for (int64_t k = 0; k < layout.group; ++k) {
          const auto byte = std::to_integer<int>(panel[k / 8 * 64 + column * 4 + k % 4]);
          dot += q[k] * (byte >> k % 8 / 4 * 4 & 15);
        }
        const int64_t of_group = row * layout.groups() + group;
        float scale;
        std::memcpy(&scale, panel + layout.scales_at() + column * 4, sizeof scale);
        const int zero =
            layout.has_zeros ? std::to_integer<int>(panel[layout.zeros_at() + column]) : 8;
        sum = std::fma(static_cast<float>(dot - zero * block.rows.sums[of_group]),
                       scale * block.rows.scales[of_group], sum);
      }
      block.c[row * block.c_stride + n] = sum;
    }
}

void round_one(const FourBitLayout& layout, const float* row, const RoundedRow& to) {
  for (int64_t group = 0; group < layout.groups(); ++group) {
    const float* const in = row + group * layout.group;
    float most = 0, wrong = 0;
    for (int64_t i = 0; i < layout.group; ++i) {
      most = std::max(most, std::abs(in[i]));
      wrong += in[i] * 0;
    }
    const bool is_zero = most < kLeastMagnitude;
    const float factor = is_zero ? 0 : kMostRounded / most;
    to.scales[group] = (is_zero ? 0 : most / kMostRounded) + wrong;
    to.sums[group] = 0;
    for (int64_t i = 0; i < layout.group; ++i) {
      const float rounded = std::nearbyint(in[i] * factor);
      const auto q = static_cast<int8_t>(std::isnan(wrong) ? 0.0F : rounded);
      to.q[group * layout.group + i] = q;
      to.sums[group] += q;
    }
  }
}
#endif

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <fmt/format.h>

namespace anneal::cpu {

std::string FourBitLayout::form() const {
  return fmt::format("4 bits: {}x{}, scales{} of {}", k, n, has_zeros ? " and zero points" : "",
                     group);
}

namespace {

// The four numbers of 2 bits in a byte, as numbers of 4 bits.
uint32_t widened(uint8_t codes) {
  const uint32_t pairs = (codes | codes << 4) & 0x0f0fU;
  return (pairs | pairs << 2) & 0x3333U;
}

// The four numbers of 4 bits in the low 16 bits, each in the low half of a byte.
uint32_t spread(uint32_t halves) {
  halves = (halves | halves << 8) & 0x00ff00ff;
  return (halves | halves << 4) & 0x0f0f0f0f;
}

}  // namespace

void pack_four_bits(const FourBitLayout& layout, const FourBitSource& source, int64_t panel,
                    std::byte* to) {
  const int64_t first = panel * FourBitLayout::kColumns;
  const int64_t width = std::min(FourBitLayout::kColumns, layout.n - first);
  to += panel * layout.panel_bytes();
  std::memset(to, 0, static_cast<size_t>(layout.panel_bytes()));
  const int64_t groups = layout.groups(), step = source.bits;  // bytes of eight codes
  // Of 2 bits without zero points: the difference of the middles.
  const uint32_t raise = source.bits == 2 && !layout.has_zeros ? 0x66666666 : 0;
  for (int64_t column = 0; column < width; ++column) {
    const uint8_t* from = source.codes + (first + column) * (layout.k * source.bits / 8);
    const int64_t factor = (first + column) * source.factor_stride;
    std::byte* at = to;
    for (int64_t group = 0; group < groups; ++group, at += layout.group_bytes()) {
      auto* out = reinterpret_cast<uint8_t*>(at) + column * 4;
      for (int64_t k = 0; k < layout.group; k += 8, out += 64, from += step) {
        uint32_t codes;
        if (source.bits == 4)
          std::memcpy(&codes, from, sizeof codes);
        else
          codes = (widened(from[0]) | widened(from[1]) << 16) + raise;
        codes = spread(codes & 0xffff) | spread(codes >> 16) << 4;
        std::memcpy(out, &codes, sizeof codes);
      }
      std::memcpy(at + layout.scales_at() + column * 4, source.scales + factor + group,
                  sizeof(float));
      if (layout.has_zeros)
        at[layout.zeros_at() + column] = std::byte{source.zeros[factor + group]};
    }
  }
}

RoundRow round_row(Isa isa) { return ANNEAL_BY_ISA(isa, round_one); }
FourBitDots four_bit_dots(Isa isa) { return ANNEAL_BY_ISA(isa, dots); }

}  // namespace anneal::cpu
#endif
