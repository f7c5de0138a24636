#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "anneal/kernels/cpu/gemm/rounded_dots.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
namespace anneal::cpu {
namespace {

struct Quads {
  using Integer = __m512i;
  using Float = __m512;
  static constexpr int kLanes = 16;
  static constexpr int64_t kTermsOfLoop = 16;
  static constexpr bool kIsWhole = true;
  static constexpr int64_t kMostTerms = CodeLayout::kMostGroup;
  static HWY_INLINE Integer dot(Integer sum, Integer codes, Integer q) {
    return _mm512_dpbusd_epi32(sum, codes, q);
  }
  static constexpr int kByteZero = 0;
  static HWY_INLINE Integer dot_bytes(Integer sum, Integer codes, Integer q) {
    return dot(sum, codes, q);
  }
  static HWY_INLINE Integer set(int32_t x) { return _mm512_set1_epi32(x); }
  static HWY_INLINE Float set(float x) { return _mm512_set1_ps(x); }
  static HWY_INLINE Integer load_integers(const std::byte* p) { return _mm512_loadu_si512(p); }
  static HWY_INLINE Integer load_bytes(const std::byte* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static HWY_INLINE Float load_halves(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static HWY_INLINE Float load_floats(const std::byte* p) { return _mm512_loadu_ps(p); }
  static HWY_INLINE void store(Float x, float* p) { _mm512_storeu_ps(p, x); }
  static HWY_INLINE Integer both(Integer a, Integer b) { return _mm512_and_si512(a, b); }
  template <int kBits>
  static HWY_INLINE Integer shift(Integer a) {
    return _mm512_srli_epi32(a, kBits);
  }
  static HWY_INLINE Integer subtract(Integer a, Integer b) { return _mm512_sub_epi32(a, b); }
  static HWY_INLINE Integer multiply(Integer a, Integer b) { return _mm512_mullo_epi32(a, b); }
  static HWY_INLINE Float multiply(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static HWY_INLINE Float multiply_add(Float a, Float b, Float c) {
    return _mm512_fmadd_ps(a, b, c);
  }
  static HWY_INLINE Float to_float(Integer a) { return _mm512_cvtepi32_ps(a); }
};

#include "anneal/kernels/cpu/gemm/rounded_tile-inl.h"

}  // namespace

void rounded_vnni(const RoundedBlock& block) { rounded_block<Quads>(block); }

}  // namespace anneal::cpu
HWY_POP_ATTRIBUTES
