// Depthwise convolutions of bf16 by AVX-512 BF16: two rows of taps at a time.
//
// The instruction multiplies the elements of two rows at one column, channel by channel side by
// side, by two weights of each channel and adds them up. Interleaving 32 channels of both rows
// leaves them in the order of kOrder, which is also the order of the weights; sums are reordered at
// the end.
#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "anneal/core/float16.h"
#include "anneal/kernels/cpu/conv/direct.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
namespace anneal::cpu {
namespace {

#include "anneal/kernels/cpu/gemm/register_epilogue-inl.h"
//
#include "anneal/kernels/cpu/gemm/register_epilogue_bf16-inl.h"

struct ToF32 : FinishedF32 {
  static HWY_INLINE __m512 to_f32(__m512 sum) { return sum; }
};
struct ToBf16 : FinishedBf16 {
  static HWY_INLINE __m512 to_f32(__m512 sum) { return sum; }
};

constexpr int kPixels = 4;
constexpr int kHalves = 2;  // of a group of channels

// Channels of the lanes of both halves of a group.
constexpr std::array<int, kDotChannels> kOrder = [] {
  std::array<int, kDotChannels> order{};
  for (int half = 0; half < kHalves; ++half)
    for (int lane = 0; lane < 16; ++lane)
      order[half * 16 + lane] = lane / 4 * 8 + half * 4 + lane % 4;
  return order;
}();

// Two rows of taps: the run's first column, and the kernel's columns of weights.
struct RowPair {
  const std::byte *first, *second;
  bool is_pair;  // false: what is second are zeros, and counts for all columns and channels
  const std::byte* weights;
};
struct RowPairs {
  alignas(64) static constexpr std::byte kZeros[64] = {};
  explicit RowPairs(const DirectRun& run) {
    const PixelTaps& taps = run.taps;
    const auto row = [&](int64_t i) {
      return run.x +
             (taps.row_offsets[static_cast<size_t>(i)] + run.first_column * taps.column_step) * 2;
    };
    for (int64_t i = 0; i < taps.rows; ++i) {
      const int64_t kernel_row = taps.kernel_rows[static_cast<size_t>(i)];
      const bool is_pair =
          i + 1 < taps.rows && taps.kernel_rows[static_cast<size_t>(i + 1)] == kernel_row + 1;
      all[count++] = {row(i), is_pair ? row(i + 1) : kZeros, is_pair,
                      run.dot_taps + (2 * kernel_row + (is_pair ? 0 : 1)) * run.dot_row};
      if (is_pair) ++i;
    }
  }
  size_t count = 0;
  std::array<RowPair, PixelTaps::kMostRows> all;
};

HWY_INLINE void put_in_order(__m512 (&sums)[kHalves]) {
  const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
  const __m512 a = sums[0], b = sums[1];
  sums[0] = _mm512_permutex2var_ps(a, low, b);
  sums[1] = _mm512_permutex2var_ps(a, high, b);
}

template <int kCount>
HWY_INLINE void put(const DirectRun& run, int64_t first, int64_t channel,
                    const __m512 (&sums)[kCount][kHalves], float* out) {
  if (run.finish == nullptr) {
#pragma GCC unroll 4
    for (int i = 0; i < kCount; ++i)
#pragma GCC unroll 2
      for (int half = 0; half < kHalves; ++half)
        _mm512_storeu_ps(out + (first + i) * run.channels + channel + half * 16, sums[i][half]);
  } else if (run.finish->storage == DataType::kBF16) {
    finish_tile<ToBf16>(*run.finish, first, channel, sums);
  } else {
    finish_tile<ToF32>(*run.finish, first, channel, sums);
  }
}
template <int kCount>
HWY_NOINLINE void put_seldom(const DirectRun& run, int64_t first, int64_t channel,
                             const __m512 (&sums)[kCount][kHalves], float* out) {
  put(run, first, channel, sums, out);
}

// Pixels [first, first + kCount) and a group of channels. kBorder: columns are padding but for
// those in `inside`, bit by bit.
template <int kColumns, int kStride, int kCount, bool kBorder>
HWY_INLINE void slide(const DirectRun& run, const RowPairs& rows, int64_t first, int64_t channel,
                      uint32_t inside, float* out) {
  constexpr int kMet = (kCount - 1) * kStride + kColumns;
  const int64_t step = run.taps.column_step * 2;
  const int64_t x = first * kStride * step + channel * 2;
  const int64_t weights = DotTaps::bytes_of(kColumns, channel);
  __m512 sums[kCount][kHalves];
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i) sums[i][0] = sums[i][1] = _mm512_setzero_ps();
  for (size_t i = 0; i < rows.count; ++i) {
    const RowPair& pair = rows.all[i];
    const std::byte* const first_row = pair.first + x;
    const std::byte* const second_row = pair.second + (pair.is_pair ? x : 0);
    const int64_t second_step = pair.is_pair ? step : 0;
    __m512bh w[kColumns][kHalves];
#pragma GCC unroll 8
    for (int k = 0; k < kColumns; ++k)
#pragma GCC unroll 2
      for (int half = 0; half < kHalves; ++half)
        w[k][half] = reinterpret_cast<__m512bh>(
            _mm512_loadu_si512(pair.weights + weights + (k * kHalves + half) * 64));
#pragma GCC unroll 16
    for (int c = 0; c < kMet; ++c) {
      if (kBorder && (inside >> c & 1) == 0) continue;
      const __m512i a = _mm512_loadu_si512(first_row + c * step);
      const __m512i b = _mm512_loadu_si512(second_row + c * second_step);
      const __m512bh met[kHalves] = {reinterpret_cast<__m512bh>(_mm512_unpacklo_epi16(a, b)),
                                     reinterpret_cast<__m512bh>(_mm512_unpackhi_epi16(a, b))};
#pragma GCC unroll 8
      for (int k = c % kStride; k < kColumns; k += kStride)
        if (const int at = (c - k) / kStride; c >= k && at < kCount)
#pragma GCC unroll 2
          for (int half = 0; half < kHalves; ++half)
            sums[at][half] = _mm512_dpbf16_ps(sums[at][half], met[half], w[k][half]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i) put_in_order(sums[i]);
  kCount == 1 ? put_seldom(run, first, channel, sums, out) : put(run, first, channel, sums, out);
}

// The same, wherever the border is.
template <int kColumns, int kStride, int kCount>
HWY_NOINLINE void slide_at_border(const DirectRun& run, const RowPairs& rows, int64_t first,
                                  int64_t channel, float* out) {
  const int64_t begin = run.first_column + first * kStride;
  uint32_t inside = 0;
  for (int c = 0; c < (kCount - 1) * kStride + kColumns; ++c)
    if (begin + c >= 0 && begin + c < run.input_columns) inside |= uint32_t{1} << c;
  slide<kColumns, kStride, kCount, true>(run, rows, first, channel, inside, out);
}

// Channels outermost, so that what a row of pixels has in common stays in the first-level cache.
// The last few pixels may be computed twice.
template <int kColumns, int kStride>
void slide_all(const DirectRun& run, float* out) {
  constexpr int kMet = (kPixels - 1) * kStride + kColumns;
  const RowPairs rows(run);
  for (int64_t channel = 0; channel + kDotChannels <= run.channels; channel += kDotChannels) {
    int64_t i = 0;
    for (; run.count >= kPixels && i < run.count; i += kPixels) {
      const int64_t first = std::min(i, run.count - kPixels);
      const int64_t begin = run.first_column + first * kStride;
      if (begin >= 0 && begin + kMet <= run.input_columns)
        slide<kColumns, kStride, kPixels, false>(run, rows, first, channel, 0, out);
      else
        slide_at_border<kColumns, kStride, kPixels>(run, rows, first, channel, out);
    }
    for (; i < run.count; ++i) slide_at_border<kColumns, kStride, 1>(run, rows, i, channel, out);
  }
}

}  // namespace

void pack_dot_taps(const DotTaps& taps, const float* weights, std::byte* to) {
  const auto bits = [&](int64_t row, int64_t column, int64_t channel) {
    uint32_t word = 0;
    if (row < taps.rows)
      std::memcpy(&word, weights + (row * taps.columns + column) * taps.padded + channel,
                  sizeof(word));
    return word >> 16;
  };
  for (int64_t row = 0; row < taps.rows; ++row)
    for (const bool is_pair : {true, false})
      for (int64_t group = 0; group < taps.channels; group += kDotChannels)
        for (int64_t column = 0; column < taps.columns; ++column)
          for (const int place : kOrder) {
            const uint32_t second = is_pair ? bits(row + 1, column, group + place) : 0;
            const uint32_t pair = bits(row, column, group + place) | second << 16;
            std::memcpy(to, &pair, sizeof(pair));
            to += sizeof(pair);
          }
}

void depthwise_dots(const DirectRun& run, float* out) {
  const bool one = run.stride == 1;
  if (run.kernel_columns == 3) return one ? slide_all<3, 1>(run, out) : slide_all<3, 2>(run, out);
  one ? slide_all<5, 1>(run, out) : slide_all<5, 2>(run, out);
}

}  // namespace anneal::cpu
HWY_POP_ATTRIBUTES
