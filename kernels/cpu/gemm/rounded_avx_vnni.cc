#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "anneal/kernels/cpu/gemm/rounded_dots.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,avxvnni")
namespace anneal::cpu {
namespace {

struct NarrowQuads {
  using Integer = __m256i;
  using Float = __m256;
  static constexpr int kLanes = 8;
  static constexpr int64_t kTermsOfLoop = 8;
  static constexpr bool kIsWhole = true;
  static constexpr int64_t kMostTerms = CodeLayout::kMostGroup;
  static HWY_INLINE Integer dot(Integer sum, Integer codes, Integer q) {
    return _mm256_dpbusd_avx_epi32(sum, codes, q);
  }
  static constexpr int kByteZero = 0;
  static HWY_INLINE Integer dot_bytes(Integer sum, Integer codes, Integer q) {
    return dot(sum, codes, q);
  }
  static HWY_INLINE Integer set(int32_t x) { return _mm256_set1_epi32(x); }
  static HWY_INLINE Float set(float x) { return _mm256_set1_ps(x); }
  static HWY_INLINE Integer load_integers(const std::byte* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static HWY_INLINE Integer load_bytes(const std::byte* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  static HWY_INLINE Float load_halves(const std::byte* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static HWY_INLINE Float load_floats(const std::byte* p) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  }
  static HWY_INLINE void store(Float x, float* p) { _mm256_storeu_ps(p, x); }
  static HWY_INLINE Integer both(Integer a, Integer b) { return _mm256_and_si256(a, b); }
  template <int kBits>
  static HWY_INLINE Integer shift(Integer a) {
    return _mm256_srli_epi32(a, kBits);
  }
  static HWY_INLINE Integer subtract(Integer a, Integer b) { return _mm256_sub_epi32(a, b); }
  static HWY_INLINE Integer multiply(Integer a, Integer b) { return _mm256_mullo_epi32(a, b); }
  static HWY_INLINE Float multiply(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static HWY_INLINE Float multiply_add(Float a, Float b, Float c) {
    return _mm256_fmadd_ps(a, b, c);
  }
  static HWY_INLINE Float to_float(Integer a) { return _mm256_cvtepi32_ps(a); }
};

#include "anneal/kernels/cpu/gemm/rounded_tile-inl.h"

}  // namespace

void rounded_avx_vnni(const RoundedBlock& block) { rounded_block<NarrowQuads>(block); }

}  // namespace anneal::cpu
HWY_POP_ATTRIBUTES
