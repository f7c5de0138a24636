// Depthwise convolutions of bytes by AVX-512 VNNI: lanes of four rows of taps.
#include <hwy/base.h>
#include <immintrin.h>

#include "anneal/core/dtype_kinds.h"
#include "anneal/kernels/cpu/conv/depthwise_int8.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
namespace anneal::cpu {
namespace {

struct FourRows {
  static constexpr int64_t kLanes = 16;
  static constexpr int kPixels = 8;
  using Vector = __m512i;
  using Sum = __m512i;
  static HWY_INLINE Vector load(const std::byte* p) { return _mm512_loadu_si512(p); }
  static HWY_INLINE Sum dot(Sum sum, Vector x, Vector weight) {
    return _mm512_dpbusd_epi32(sum, x, weight);
  }
  static HWY_INLINE Sum repeat(int32_t lane) { return _mm512_set1_epi32(lane); }
  static HWY_INLINE Sum load_sum(const int32_t* p) { return _mm512_loadu_si512(p); }
  static HWY_INLINE void store_sum(int32_t* p, Sum sum) { _mm512_storeu_si512(p, sum); }

  static constexpr bool kFinishes = true, kQuantizes = true;
  static HWY_INLINE __m512 to_f32(Sum sum) { return _mm512_cvtepi32_ps(sum); }
};

#include "anneal/kernels/cpu/gemm/register_epilogue-inl.h"
//
#include "anneal/kernels/cpu/conv/depthwise_dots-inl.h"

void dots(const DepthwiseDots& run) { depthwise_dots<FourRows>(run); }

// Swaps which quarter 32 bits are in with their place in it, as if they were a 4 x 4 matrix.
HWY_INLINE __m512i transposed_quarters(__m512i v) {
  const __m512i from = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_epi32(from, v);
}

// Columns of 64 channels.
void stage_64(const DepthwiseStage& stage, __m512i moved) {
  const std::byte *a = stage.rows[0], *b = stage.rows[1], *c = stage.rows[2], *d = stage.rows[3];
  std::byte* to = stage.to + stage.before * static_cast<int64_t>(sizeof(__m512i));
  const int64_t stride = stage.vector_stride, columns = stage.columns;
  const auto [step_a, step_b, step_c, step_d] = stage.steps;
  const auto row = [&](const std::byte* p) {
    return transposed_quarters(_mm512_xor_si512(_mm512_loadu_si512(p), moved));
  };
  for (int64_t i = 0; i < columns; ++i, to += sizeof(__m512i)) {
    const __m512i va = row(a), vb = row(b), vc = row(c), vd = row(d);
    const __m512i ab = _mm512_unpacklo_epi8(va, vb), more_ab = _mm512_unpackhi_epi8(va, vb);
    const __m512i cd = _mm512_unpacklo_epi8(vc, vd), more_cd = _mm512_unpackhi_epi8(vc, vd);
    _mm512_storeu_si512(to, _mm512_unpacklo_epi16(ab, cd));
    _mm512_storeu_si512(to + stride, _mm512_unpackhi_epi16(ab, cd));
    _mm512_storeu_si512(to + 2 * stride, _mm512_unpacklo_epi16(more_ab, more_cd));
    _mm512_storeu_si512(to + 3 * stride, _mm512_unpackhi_epi16(more_ab, more_cd));
    a += step_a, b += step_b, c += step_c, d += step_d;
  }
}

// Columns of 16 channels, from `offset` on.
void stage_16(const DepthwiseStage& stage, __m512i moved, int64_t offset, std::byte* to) {
  const std::byte *a = stage.rows[0] + offset, *b = stage.rows[1] + offset,
                  *c = stage.rows[2] + offset, *d = stage.rows[3] + offset;
  const int64_t columns = stage.columns;
  const auto [step_a, step_b, step_c, step_d] = stage.steps;
  to += stage.before * static_cast<int64_t>(sizeof(__m512i));
  const __m512i transposed =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  for (int64_t i = 0; i < columns; ++i, to += sizeof(__m512i)) {
    const auto* pa = reinterpret_cast<const __m128i*>(a);
    const auto* pb = reinterpret_cast<const __m128i*>(b);
    const auto* pc = reinterpret_cast<const __m128i*>(c);
    const auto* pd = reinterpret_cast<const __m128i*>(d);
    __m512i rows = _mm512_castsi128_si512(_mm_loadu_si128(pa));
    rows = _mm512_inserti32x4(rows, _mm_loadu_si128(pb), 1);
    rows = _mm512_inserti32x4(rows, _mm_loadu_si128(pc), 2);
    rows = _mm512_inserti32x4(rows, _mm_loadu_si128(pd), 3);
    rows = transposed_quarters(_mm512_xor_si512(rows, moved));
    _mm512_storeu_si512(to, _mm512_shuffle_epi8(rows, transposed));
    a += step_a, b += step_b, c += step_c, d += step_d;
  }
}

void stage_rows(const DepthwiseStage& stage) {
  stage_padding<FourRows>(stage);
  const __m512i moved = _mm512_set1_epi8(stage.dtype == DataType::kI8 ? -128 : 0);
  if (stage.vectors == 4) return stage_64(stage, moved);
  for (int64_t v = 0; v < stage.vectors; ++v)
    stage_16(stage, moved, v * FourRows::kLanes, stage.to + v * stage.vector_stride);
}

}  // namespace

DepthwiseInt8 depthwise_vnni() { return {FourRows::kLanes, 4, stage_rows, dots, is_8bit}; }

}  // namespace anneal::cpu
HWY_POP_ATTRIBUTES
