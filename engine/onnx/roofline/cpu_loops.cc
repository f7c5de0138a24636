#include "anneal/engine/onnx/roofline/cpu_loops.h"

#include <immintrin.h>

// One function for each instruction set: the attribute lets the compiler use its instructions, and
// current_isa() says whether the CPU has them.
#define ANNEAL_BASELINE __attribute__((target("sse2")))
#define ANNEAL_AVX2 __attribute__((target("avx2,fma")))
#define ANNEAL_AVX512 __attribute__((target("avx512f,avx512bw")))
#define ANNEAL_VNNI __attribute__((target("avx512f,avx512bw,avx512vnni")))
#define ANNEAL_BF16 __attribute__((target("avx512f,avx512bw,avx512bf16")))

// NOLINTBEGIN(bugprone-macro-parentheses): types and attributes
//
// Sums that do not wait for each other: two units, each with a latency of at most 5 or 6 cycles.
// The empty assembly changes an operand as far as the compiler knows, so that no product is
// computed before the loop.
#define ANNEAL_PEAK_LOOP(name, target, count, Vector, zero, one, add_product) \
  target void name(int64_t rounds) {                                          \
    Vector sums[count];                                                       \
    for (Vector & sum : sums) sum = zero;                                     \
    Vector a = one;                                                           \
    const Vector b = one;                                                     \
    for (int64_t round = 0; round < rounds; ++round) {                        \
      _Pragma("GCC unroll 16") for (int k = 0; k < count; ++k) {              \
        __asm__ volatile("" : "+x"(a));                                       \
        sums[k] = add_product;                                                \
      }                                                                       \
    }                                                                         \
    for (Vector & sum : sums) __asm__ volatile("" : : "x"(sum));              \
  }

// Eight registers a turn.
#define ANNEAL_STREAM_LOOPS(read_name, copy_name, target, Vector, load, store)        \
  target void read_name(const std::byte* from, size_t bytes) {                        \
    for (size_t at = 0; at < bytes; at += 8 * sizeof(Vector)) {                       \
      _Pragma("GCC unroll 8") for (size_t k = 0; k < 8; ++k) {                        \
        const Vector loaded =                                                         \
            load(reinterpret_cast<const Vector*>(from + at + k * sizeof(Vector)));    \
        __asm__ volatile("" : : "x"(loaded));                                         \
      }                                                                               \
    }                                                                                 \
  }                                                                                   \
  target void copy_name(std::byte* to, const std::byte* from, size_t bytes) {         \
    for (size_t at = 0; at < bytes; at += 8 * sizeof(Vector)) {                       \
      _Pragma("GCC unroll 8") for (size_t k = 0; k < 8; ++k) {                        \
        store(reinterpret_cast<Vector*>(to + at + k * sizeof(Vector)),                \
              load(reinterpret_cast<const Vector*>(from + at + k * sizeof(Vector)))); \
      }                                                                               \
    }                                                                                 \
  }

// NOLINTEND(bugprone-macro-parentheses)

namespace anneal {
namespace {

// Of 16 registers in AVX2, and of 32 in AVX-512. Where a product is an instruction of its own, it
// takes a register as well.
constexpr int kSums = 12, kManySums = 16, kFewSums = 8;
constexpr int kHalfInBf16 = 0x3F003F00;  // two

// Without FMA a product and a sum are two instructions.
ANNEAL_PEAK_LOOP(f32_baseline, ANNEAL_BASELINE, kFewSums, __m128, _mm_setzero_ps(),
                 _mm_set1_ps(0.5F), _mm_add_ps(sums[k], _mm_mul_ps(a, b)))
ANNEAL_PEAK_LOOP(f32_avx2, ANNEAL_AVX2, kSums, __m256, _mm256_setzero_ps(), _mm256_set1_ps(0.5F),
                 _mm256_fmadd_ps(a, b, sums[k]))
ANNEAL_PEAK_LOOP(f32_avx512, ANNEAL_AVX512, kManySums, __m512, _mm512_setzero_ps(),
                 _mm512_set1_ps(0.5F), _mm512_fmadd_ps(a, b, sums[k]))
// Bytes as pairs of 16 bits, where there is no VNNI.
ANNEAL_PEAK_LOOP(i16_baseline, ANNEAL_BASELINE, kFewSums, __m128i, _mm_setzero_si128(),
                 _mm_set1_epi16(1), _mm_add_epi32(sums[k], _mm_madd_epi16(a, b)))
ANNEAL_PEAK_LOOP(i16_avx2, ANNEAL_AVX2, kFewSums, __m256i, _mm256_setzero_si256(),
                 _mm256_set1_epi16(1), _mm256_add_epi32(sums[k], _mm256_madd_epi16(a, b)))
ANNEAL_PEAK_LOOP(i16_avx512, ANNEAL_AVX512, kFewSums, __m512i, _mm512_setzero_si512(),
                 _mm512_set1_epi16(1), _mm512_add_epi32(sums[k], _mm512_madd_epi16(a, b)))
ANNEAL_PEAK_LOOP(bytes_vnni, ANNEAL_VNNI, kSums, __m512i, _mm512_setzero_si512(),
                 _mm512_set1_epi8(1), _mm512_dpbusd_epi32(sums[k], a, b))
ANNEAL_PEAK_LOOP(bf16_avx512, ANNEAL_BF16, kManySums, __m512, _mm512_setzero_ps(),
                 _mm512_castsi512_ps(_mm512_set1_epi32(kHalfInBf16)),
                 _mm512_dpbf16_ps(sums[k], reinterpret_cast<__m512bh>(a),
                                  reinterpret_cast<__m512bh>(b)))

ANNEAL_STREAM_LOOPS(read_baseline, copy_baseline, ANNEAL_BASELINE, __m128i, _mm_load_si128,
                    _mm_store_si128)
ANNEAL_STREAM_LOOPS(read_avx2, copy_avx2, ANNEAL_AVX2, __m256i, _mm256_load_si256,
                    _mm256_store_si256)
ANNEAL_STREAM_LOOPS(read_avx512, copy_avx512, ANNEAL_AVX512, __m512i, _mm512_load_si512,
                    _mm512_store_si512)

// The operations of a round. bytes: of a register; terms: of each of its 32-bit lanes.
constexpr double operations_in_round(int bytes, int terms, int sums) {
  return sums * (bytes / 4.0) * terms * 2;
}

constexpr PeakLoop kBaselineLoops[] = {
    {ProductType::kF32, f32_baseline, operations_in_round(16, 1, kFewSums)},
    {ProductType::kInt8, i16_baseline, operations_in_round(16, 2, kFewSums)}};
constexpr PeakLoop kAvx2Loops[] = {
    {ProductType::kF32, f32_avx2, operations_in_round(32, 1, kSums)},
    {ProductType::kInt8, i16_avx2, operations_in_round(32, 2, kFewSums)}};
constexpr PeakLoop kAvx512Loops[] = {
    {ProductType::kF32, f32_avx512, operations_in_round(64, 1, kManySums)},
    {ProductType::kInt8, i16_avx512, operations_in_round(64, 2, kFewSums)}};
constexpr PeakLoop kFullLoops[] = {
    {ProductType::kF32, f32_avx512, operations_in_round(64, 1, kManySums)},
    {ProductType::kInt8, bytes_vnni, operations_in_round(64, 4, kSums)},
    {ProductType::kBF16, bf16_avx512, operations_in_round(64, 2, kManySums)}};

}  // namespace

std::span<const PeakLoop> peak_loops(Isa isa, bool has_bf16) {
  switch (isa) {
    case Isa::kBaseline:
      return kBaselineLoops;
    case Isa::kAvx2:
      return kAvx2Loops;
    case Isa::kAvx512:
      return kAvx512Loops;
    case Isa::kFull:
      return std::span(kFullLoops).first(has_bf16 ? 3 : 2);
  }
  return {};
}

StreamLoops stream_loops(Isa isa) {
  if (isa >= Isa::kAvx512) return {read_avx512, copy_avx512};
  return isa == Isa::kAvx2 ? StreamLoops{read_avx2, copy_avx2}
                           : StreamLoops{read_baseline, copy_baseline};
}

}  // namespace anneal
