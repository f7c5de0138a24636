// The epilogue of a tile's sums while they are in registers (RegisterEpilogue), for AVX-512.
// Included like gemm/tile-inl.h, before it. A Dot that runs it has, beside the members named there:
//   to_f32(sum);
//   for results of 8 bits, kQuantizes; else Stored, load_stored(p) and store(p, stride, values).

HWY_INLINE __m512 per_column(const float* numbers, int64_t column, float otherwise) {
  return numbers == nullptr ? _mm512_set1_ps(otherwise) : _mm512_loadu_ps(numbers + column);
}

// As vector programs have it, where NaN is the result: x86 gives the second operand if one is NaN.
HWY_INLINE __m512 limited(const RegisterEpilogue& finish, __m512 v) {
  v = _mm512_max_ps(_mm512_set1_ps(finish.low), v);
  return _mm512_min_ps(_mm512_set1_ps(finish.high), v);
}

template <int kRows, int kVectors>
HWY_INLINE void quantize(const RegisterEpilogue& finish, const __m512 (&values)[kRows][kVectors],
                         std::byte* y) {
  const __m512 factor = _mm512_set1_ps(finish.factor);
  const __m512 low = _mm512_set1_ps(finish.low), high = _mm512_set1_ps(finish.high);
  const __m512i zero = _mm512_set1_epi32(finish.zero);
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row, y += finish.y_stride) {
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      const __m512 v = _mm512_max_ps(_mm512_mul_ps(values[row][i], factor), low);
      const __m512i whole = _mm512_cvtps_epi32(_mm512_min_ps(v, high));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(y + i * 16),
                       _mm512_cvtepi32_epi8(_mm512_add_epi32(whole, zero)));
    }
  }
}

// Of the tile whose first sum is [row, column] of the block.
template <class Dot, class Sum, int kRows, int kVectors>
HWY_INLINE void finish_tile(const RegisterEpilogue& finish, int64_t row, int64_t column,
                            const Sum (&sums)[kRows][kVectors]) {
  __m512 values[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    const __m512 scale = per_column(finish.scale, column + i * 16, 1.0f);
    const __m512 offset = per_column(finish.offset, column + i * 16, -0.0f);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
      values[r][i] = _mm512_add_ps(_mm512_mul_ps(Dot::to_f32(sums[r][i]), scale), offset);
  }
  if constexpr (Dot::kQuantizes) {
    quantize(finish, values, finish.y + row * finish.y_stride + column);
  } else {
    using Stored = typename Dot::Stored;
    constexpr auto kSize = static_cast<int64_t>(sizeof(Stored));
    if (finish.addend != nullptr) {
      const std::byte* from = finish.addend + row * finish.addend_stride + column * kSize;
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r, from += finish.addend_stride) {
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i)
          values[r][i] = _mm512_add_ps(values[r][i], Dot::load_stored(from + i * 16 * kSize));
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) values[r][i] = limited(finish, values[r][i]);
    }
    Dot::store(finish.y + row * finish.y_stride + column * kSize, finish.y_stride, values);
  }
}

// The members of a Dot whose results are f32.
struct FinishedF32 {
  static constexpr bool kQuantizes = false;
  using Stored = float;
  static HWY_INLINE __m512 load_stored(const std::byte* p) { return _mm512_loadu_ps(p); }
  template <int kRows, int kVectors>
  static HWY_INLINE void store(std::byte* y, int64_t stride,
                               const __m512 (&values)[kRows][kVectors]) {
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row, y += stride) {
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) _mm512_storeu_ps(y + i * 64, values[row][i]);
    }
  }
};
