// The members of a Dot with bf16 results, for AVX512_BF16. Included after
// gemm/register_epilogue-inl.h.

struct FinishedBf16 {
  static constexpr bool kQuantizes = false;
  using Stored = uint16_t;
  static HWY_INLINE __m512 load_stored(const std::byte* p) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  template <int kRows, int kVectors>
  static HWY_INLINE void store(std::byte* y, int64_t stride,
                               const __m512 (&values)[kRows][kVectors]) {
    // The instruction that rounds makes denormal numbers zeros.
    constexpr int kDenormal = 0x20;
    __mmask16 denormal = 0;
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i)
        denormal = _kor_mask16(denormal, _mm512_fpclass_ps_mask(values[row][i], kDenormal));
    }
    if (denormal != 0) [[unlikely]]
      return store_rounded(y, stride, &values[0][0], kRows, kVectors);
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row, y += stride) {
#pragma GCC unroll 8
      for (int i = 0; i + 2 <= kVectors; i += 2) {  // Highway's AVX3 knows no such instructions
        __m512i converted;
        asm("vcvtne2ps2bf16 %2, %1, %0"
            : "=v"(converted)
            : "v"(values[row][i + 1]), "v"(values[row][i]));
        _mm512_storeu_si512(y + i * 32, converted);
      }
      if constexpr (kVectors % 2 != 0) {
        constexpr int kLast = kVectors - 1;
        __m256i converted;
        asm("vcvtneps2bf16 %1, %0" : "=v"(converted) : "v"(values[row][kLast]));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(y + kLast * 32), converted);
      }
    }
  }

 private:
  static HWY_NOINLINE void store_rounded(std::byte* y, int64_t stride, const __m512* values,
                                         int rows, int vectors) {
    for (int row = 0; row < rows; ++row, y += stride)
      for (int i = 0; i < vectors; ++i) {
        alignas(64) float lanes[16];
        _mm512_store_ps(lanes, *values++);
        for (int lane = 0; lane < 16; ++lane) {
          const BFloat16 rounded = to_bf16(lanes[lane]);
          std::memcpy(y + (i * 16 + lane) * 2, &rounded, sizeof(rounded));
        }
      }
  }
};
