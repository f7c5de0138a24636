#include "anneal/kernels/cpu/gemm/avx_vnni.h"

#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

HWY_PUSH_ATTRIBUTES("avx2,fma,avxvnni")
namespace anneal::cpu {
namespace {

struct PairDot {
  static constexpr int kRows = 6, kVectors = 2, kLanes = 8, kColumnBits = 32;
  static constexpr bool kScales = false, kFinishes = false;
  using Vector = __m256i;
  using Number = int32_t;
  static HWY_INLINE Vector zero() { return _mm256_setzero_si256(); }
  static HWY_INLINE Vector load(const std::byte* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static HWY_INLINE Vector broadcast(const std::byte* p) {
    int32_t pair;
    std::memcpy(&pair, p, sizeof pair);
    return _mm256_set1_epi32(pair);
  }
  static HWY_INLINE Vector dot(Vector sum, Vector a, Vector b) {
    return _mm256_dpwssd_avx_epi32(sum, a, b);
  }
  static HWY_INLINE Vector load_sum(const int32_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static HWY_INLINE void store_sum(int32_t* p, Vector sum) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), sum);
  }
};

#include "anneal/kernels/cpu/gemm/tile-inl.h"

}  // namespace

void avx_vnni_block(const GemmBlock& block) { gemm_block<PairDot>(block); }

}  // namespace anneal::cpu
HWY_POP_ATTRIBUTES
