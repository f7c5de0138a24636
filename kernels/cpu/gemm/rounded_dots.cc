#include "anneal/kernels/cpu/gemm/rounded_dots.h"

#include "anneal/core/float16.h"
#include "anneal/kernels/cpu/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/kernels/cpu/gemm/rounded_dots.cc"
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
// Smaller numbers count as 0: their reciprocals are infinite, or scales of them, which scale_factor
// divides, are 0.
float least_magnitude(const CodeLayout& layout) { return layout.has_f32_scales ? 1e-36F : 1e-30F; }

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
using Floats = hn::ScalableTag<float>;
using Integers = hn::ScalableTag<int32_t>;
constexpr int kLanes = HWY_LANES(float);

struct Pairs {
  using Integer = hn::Vec<Integers>;
  using Float = hn::Vec<Floats>;
  static constexpr int kLanes = HWY_LANES(float);
  static constexpr int64_t kTermsOfLoop = 8;
  static constexpr bool kIsWhole = false;
  // The 16-bit sums of at most 16 products of up to 15 * 127 cannot overflow.
  static constexpr int64_t kMostTerms = 32;
  static HWY_INLINE Integer dot(Integer sum, Integer codes, Integer q) {
#if HWY_TARGET == HWY_AVX3
    return Integer{_mm512_add_epi16(sum.raw, _mm512_maddubs_epi16(codes.raw, q.raw))};
#else
    return Integer{_mm256_add_epi16(sum.raw, _mm256_maddubs_epi16(codes.raw, q.raw))};
#endif
  }
  static HWY_INLINE Integer whole(Integer pairs) {
#if HWY_TARGET == HWY_AVX3
    return Integer{_mm512_madd_epi16(pairs.raw, _mm512_set1_epi16(1))};
#else
    return Integer{_mm256_madd_epi16(pairs.raw, _mm256_set1_epi16(1))};
#endif
  }
  // Sums of two products of a magnitude of up to 128 and one of up to 127 fit 16 bits, those of
  // unsigned codes do not.
  static constexpr int kByteZero = 128;
  static HWY_INLINE Integer dot_bytes(Integer sum, Integer codes, Integer q) {
    const auto number = hn::Xor(codes, hn::Set(Integers(), static_cast<int32_t>(0x80808080)));
#if HWY_TARGET == HWY_AVX3
    const __m512i signed_q =
        _mm512_mask_sub_epi8(q.raw, _mm512_movepi8_mask(number.raw), _mm512_setzero_si512(), q.raw);
    const __m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(number.raw), signed_q);
#else
    const __m256i pairs =
        _mm256_maddubs_epi16(_mm256_abs_epi8(number.raw), _mm256_sign_epi8(q.raw, number.raw));
#endif
    return add(sum, whole(Integer{pairs}));
  }
  static HWY_INLINE Integer set(int32_t x) { return hn::Set(Integers(), x); }
  static HWY_INLINE Float set(float x) { return hn::Set(Floats(), x); }
  static HWY_INLINE Integer load_integers(const std::byte* p) {
    return hn::LoadU(Integers(), reinterpret_cast<const int32_t*>(p));
  }
  static HWY_INLINE Integer load_bytes(const std::byte* p) {
    return hn::PromoteTo(Integers(), hn::LoadU(hn::Rebind<uint8_t, Integers>(),
                                               reinterpret_cast<const uint8_t*>(p)));
  }
  static HWY_INLINE Float load_halves(const std::byte* p) {
    return hn::PromoteTo(Floats(), hn::LoadU(hn::Rebind<hwy::float16_t, Floats>(),
                                             reinterpret_cast<const hwy::float16_t*>(p)));
  }
  static HWY_INLINE Float load_floats(const std::byte* p) {
    return hn::LoadU(Floats(), reinterpret_cast<const float*>(p));
  }
  static HWY_INLINE void store(Float x, float* p) { hn::StoreU(x, Floats(), p); }
  static HWY_INLINE Integer both(Integer a, Integer b) { return hn::And(a, b); }
  template <int kBits>
  static HWY_INLINE Integer shift(Integer a) {
    return hn::ShiftRight<kBits>(a);
  }
  static HWY_INLINE Integer add(Integer a, Integer b) { return hn::Add(a, b); }
  static HWY_INLINE Integer subtract(Integer a, Integer b) { return hn::Sub(a, b); }
  static HWY_INLINE Integer multiply(Integer a, Integer b) { return hn::Mul(a, b); }
  static HWY_INLINE Float multiply(Float a, Float b) { return hn::Mul(a, b); }
  static HWY_INLINE Float multiply_add(Float a, Float b, Float c) { return hn::MulAdd(a, b, c); }
  static HWY_INLINE Float to_float(Integer a) { return hn::ConvertTo(Floats(), a); }
};

#include "anneal/kernels/cpu/gemm/rounded_tile-inl.h"

#endif

}  // namespace

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
void dots(const RoundedBlock& block) { rounded_block<Pairs>(block); }

void round_one(const CodeLayout& layout, const float* row, const RoundedRow& to) {
  const hn::Rebind<int8_t, Integers> bytes;
  for (int64_t group = 0; group < layout.groups(); ++group) {
    const float* const in = row + group * layout.group;
    auto most = hn::Zero(Floats()), wrong = hn::Zero(Floats());
    for (int64_t i = 0; i < layout.group; i += kLanes) {
      const auto x = hn::LoadU(Floats(), in + i);
      most = hn::Max(most, hn::Abs(x));
      wrong = hn::MulAdd(x, hn::Zero(Floats()), wrong);  // NaN if x is not finite
    }
    const float magnitude = hn::GetLane(hn::MaxOfLanes(Floats(), most));
    const bool is_zero = magnitude < least_magnitude(layout);
    const auto factor = hn::Set(Floats(), is_zero ? 0 : kMostRounded / magnitude);
    to.scales[group] = (is_zero ? 0 : magnitude / kMostRounded / layout.scale_factor) +
                       hn::GetLane(hn::SumOfLanes(Floats(), wrong));
    auto sum = hn::Zero(Integers());
    for (int64_t i = 0; i < layout.group; i += kLanes) {
      const auto q =
          hn::DemoteTo(bytes, hn::NearestInt(hn::Mul(hn::LoadU(Floats(), in + i), factor)));
      sum = hn::Add(sum, hn::PromoteTo(Integers(), q));
      hn::StoreU(q, bytes, to.q + group * layout.group + i);
    }
    to.sums[group] = hn::GetLane(hn::SumOfLanes(Integers(), sum));
  }
}

void rest_of_row(const CodeLayout& layout, const float* row, const RoundedRow& rounded,
                 float* rest) {
  const hn::Rebind<int8_t, Integers> bytes;
  for (int64_t k = 0; k < layout.k; k += kLanes) {
    const float scale = rounded.scales[k / layout.group] * layout.scale_factor;
    const auto q =
        hn::ConvertTo(Floats(), hn::PromoteTo(Integers(), hn::LoadU(bytes, rounded.q + k)));
    hn::StoreU(hn::NegMulAdd(q, hn::Set(Floats(), scale), hn::LoadU(Floats(), row + k)), Floats(),
               rest + k);
  }
}
#else
float packed_scale(const CodeLayout& layout, const std::byte* scales, int64_t i) {
  if (layout.has_f32_scales) return reinterpret_cast<const float*>(scales)[i];
  return to_f32(reinterpret_cast<const Float16*>(scales)[i]);
}

void dots(const RoundedBlock& block) {
  const CodeLayout& layout = *block.layout;
  constexpr int64_t kColumns = CodeLayout::kColumns;
  for (int64_t row = 0; row < block.row_count; ++row)
    for (int64_t n = 0; n < block.panels * kColumns; ++n) {
      const std::byte* const panel = block.panel + n / kColumns * layout.panel_bytes();
      const int64_t column = n % kColumns;
      float sum = 0;
      for (int64_t group = 0; group < layout.groups(); ++group) {
        int32_t dot = 0;
        for (int64_t k = group * layout.group; k < (group + 1) * layout.group; ++k) {
          const int64_t terms = 32 / layout.bits;  // in the four bytes of a column
          const auto byte = std::to_integer<int>(panel[k / terms * 64 + column * 4 + k % 4]);
          const int64_t shift = k % terms / 4 * layout.bits;
          const int code = byte >> shift & ((1 << layout.bits) - 1);
          dot += block.rows.q[row * layout.k + k] * code;
        }
        const int64_t of_group = row * layout.groups() + group;
        const int64_t factor = group * kColumns + column;
        const float scale = packed_scale(layout, panel + layout.scales_at(), factor);
        const int zero = layout.has_zeros ? std::to_integer<int>(panel[layout.zeros_at() + factor])
                                          : layout.zero;
        sum = std::fma(static_cast<float>(dot - zero * block.rows.sums[of_group]),
                       scale * block.rows.scales[of_group], sum);
      }
      block.c[row * block.c_stride + n] = sum;
    }
}

void round_one(const CodeLayout& layout, const float* row, const RoundedRow& to) {
  for (int64_t group = 0; group < layout.groups(); ++group) {
    const float* const in = row + group * layout.group;
    float most = 0, wrong = 0;
    for (int64_t i = 0; i < layout.group; ++i) {
      most = std::max(most, std::abs(in[i]));
      wrong += in[i] * 0;
    }
    const bool is_zero = most < least_magnitude(layout);
    const float factor = is_zero ? 0 : kMostRounded / most;
    to.scales[group] = (is_zero ? 0 : most / kMostRounded / layout.scale_factor) + wrong;
    to.sums[group] = 0;
    for (int64_t i = 0; i < layout.group; ++i) {
      const float rounded = std::nearbyint(in[i] * factor);
      const auto q = static_cast<int8_t>(std::isnan(wrong) ? 0.0F : rounded);
      to.q[group * layout.group + i] = q;
      to.sums[group] += q;
    }
  }
}

void rest_of_row(const CodeLayout& layout, const float* row, const RoundedRow& rounded,
                 float* rest) {
  for (int64_t k = 0; k < layout.k; ++k)
    rest[k] = std::fma(static_cast<float>(-rounded.q[k]),
                       rounded.scales[k / layout.group] * layout.scale_factor, row[k]);
}
#endif

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <fmt/format.h>

#include <limits>

namespace anneal::cpu {

std::string CodeLayout::form() const {
  return fmt::format("{} bits: {}x{}, {} scales{} of {}, {}", bits, k, n,
                     has_f32_scales ? "f32" : "f16", has_zeros ? " and zero points" : "", group,
                     scale_factor);
}

namespace {

// The four numbers of `bits` bits in the low bits, each in the low bits of a byte.
uint32_t spread(uint32_t numbers, int bits) {
  if (bits == 2) {
    numbers = (numbers | numbers << 12) & 0x000f000f;
    return (numbers | numbers << 6) & 0x03030303;
  }
  numbers = (numbers | numbers << 8) & 0x00ff00ff;
  return (numbers | numbers << 4) & 0x0f0f0f0f;
}

}  // namespace

std::optional<float> scale_factor_of(std::span<const float> scales, int64_t groups) {
  // The largest scale of all becomes 2^14 to 2^15, and the largest of each column is at least 2^-6.
  // f16 has an error of at most 2^-11 of a scale from 2^-14 on, and of 2^-25 below.
  constexpr int kMost = 15, kLeast = -5, kMostRaised = 30;
  const auto exponent_of = [](float magnitude) {
    int exponent = 0;
    std::frexp(magnitude, &exponent);
    return exponent;
  };
  float most = 0, least = std::numeric_limits<float>::infinity();  // of the columns' largest ones
  for (size_t at = 0; at < scales.size(); at += static_cast<size_t>(groups)) {
    float of_column = 0;
    for (const float scale : scales.subspan(at, static_cast<size_t>(groups))) {
      if (!std::isfinite(scale)) return std::nullopt;
      of_column = std::max(of_column, std::abs(scale));
    }
    most = std::max(most, of_column);
    if (of_column > 0) least = std::min(least, of_column);
  }
  if (most == 0) return 1;
  const int raised = kMost - exponent_of(most);
  if (exponent_of(least) + raised < kLeast || std::abs(raised) > kMostRaised) return std::nullopt;
  return std::ldexp(1.0F, raised);
}

void pack_code_panel(const CodeLayout& layout, const CodeSource& source, int64_t panel,
                     std::byte* to) {
  const int64_t first = panel * CodeLayout::kColumns;
  const int64_t width = std::min(CodeLayout::kColumns, layout.n - first);
  to += panel * layout.panel_bytes();
  std::memset(to, 0, static_cast<size_t>(layout.panel_bytes()));
  const uint32_t sign = source.is_signed ? 0x80808080 : 0;
  // Column by column within four rows, since rows may be what follows each other.
  for (int64_t k = 0; layout.bits == 8 && k < layout.k; k += 4) {
    for (int64_t column = 0; column < width; ++column) {
      const uint8_t* const from =
          source.codes + (first + column) * source.column_bytes + k * source.k_bytes;
      uint32_t codes = 0;
      for (int i = 0; i < 4; ++i) codes |= uint32_t{from[i * source.k_bytes]} << 8 * i;
      codes ^= sign;
      std::memcpy(to + k * CodeLayout::kColumns + column * 4, &codes, sizeof codes);
    }
  }
  for (int64_t column = 0; column < width; ++column) {
    const uint8_t* from = source.codes + (first + column) * source.column_bytes;
    std::byte* out = to + column * 4;
    const int bits = layout.bits;
    for (int64_t k = 0; bits < 8 && k < layout.k; k += 32 / bits, out += 64, from += 4) {
      uint32_t numbers, codes = 0;
      std::memcpy(&numbers, from, sizeof numbers);
      for (int shift = 0; shift < 8; shift += bits, numbers >>= 4 * bits)
        codes |= spread(numbers & ((1U << 4 * bits) - 1), bits) << shift;
      std::memcpy(out, &codes, sizeof codes);
    }
    for (int64_t group = 0; group < layout.groups(); ++group) {
      const int64_t at = group * CodeLayout::kColumns + column;
      const int64_t factor = (first + column) * source.factor_stride +
                             group / source.groups_of_factor * source.group_stride;
      const float scale = source.scales[factor] * layout.scale_factor;
      const Float16 half = to_f16(scale);
      if (layout.has_f32_scales)
        std::memcpy(to + layout.scales_at() + at * 4, &scale, sizeof scale);
      else
        std::memcpy(to + layout.scales_at() + at * 2, &half, sizeof half);
      if (layout.has_zeros)
        to[layout.zeros_at() + at] = static_cast<std::byte>(source.zeros[factor] ^ (sign & 0xff));
    }
  }
}

RoundRow round_row(Isa isa) { return ANNEAL_BY_ISA(isa, round_one); }
RoundingRest rounding_rest(Isa isa) { return ANNEAL_BY_ISA(isa, rest_of_row); }
RoundedDots rounded_dots(Isa isa) {
  if (isa == Isa::kFull) return rounded_vnni;
  return isa == Isa::kAvx2 && has_avx_vnni() ? rounded_avx_vnni : ANNEAL_BY_ISA(isa, dots);
}

}  // namespace anneal::cpu
#endif
