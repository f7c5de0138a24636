#include "anneal/kernels/cpu/base/byte_lookup.h"

#include <hwy/base.h>
#include <immintrin.h>

namespace anneal::cpu {
namespace {

// With AVX2, sixteen shuffles are no faster than this loop.
void one_by_one(const uint8_t* table, const uint8_t* from, uint8_t* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = table[from[i]];
}

}  // namespace
}  // namespace anneal::cpu

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vbmi")
namespace anneal::cpu {
namespace {

// Two registers hold half of the table; the highest bit of an index selects the half.
void with_vbmi(const uint8_t* table, const uint8_t* from, uint8_t* to, int64_t n) {
  const __m512i first = _mm512_loadu_si512(table), second = _mm512_loadu_si512(table + 64);
  const __m512i third = _mm512_loadu_si512(table + 128), fourth = _mm512_loadu_si512(table + 192);
  for (int64_t i = 0; i < n; i += 64) {
    const __mmask64 mask = n - i >= 64 ? ~__mmask64{0} : (__mmask64{1} << (n - i)) - 1;
    const __m512i index = _mm512_maskz_loadu_epi8(mask, from + i);
    const __m512i low = _mm512_permutex2var_epi8(first, index, second);
    const __m512i high = _mm512_permutex2var_epi8(third, index, fourth);
    _mm512_mask_storeu_epi8(to + i, mask,
                            _mm512_mask_blend_epi8(_mm512_movepi8_mask(index), low, high));
  }
}

}  // namespace
}  // namespace anneal::cpu
HWY_POP_ATTRIBUTES

namespace anneal::cpu {

LookUpBytes look_up_bytes(Isa isa) {
  __builtin_cpu_init();
  const bool vbmi = isa == Isa::kFull && __builtin_cpu_supports("avx512vbmi") != 0;
  return vbmi ? with_vbmi : one_by_one;
}

}  // namespace anneal::cpu
