// Transposition of columns into panels of weights.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "anneal/core/float16.h"
#include "anneal/kernels/cpu/base/transpose_square.h"

namespace anneal::cpu {

// store(i, row) with row[column] = in[column * step + i], for i in [0, depth). A line of the cache
// of each column is read at a time, and rows of few columns stay in it.
// REQUIRES: columns <= kMostTransposed
inline constexpr int64_t kMostTransposed = 64;
template <class Store>
inline void transpose_columns(const float* in, int64_t step, int64_t columns, int64_t depth,
                              const Store& store) {
  constexpr int64_t kLine = 16;
  alignas(64) float rows[kLine][kMostTransposed] = {};
  for (int64_t line = 0; line < depth; line += kLine, in += kLine) {
    const int64_t n = std::min(kLine, depth - line), squares = n / 4 * 4;
    int64_t column = 0;
    for (; column + 4 <= columns; column += 4) {
      const float* const from = in + column * step;
      for (int64_t i = 0; i < squares; i += 4)
        transpose_square(from + i, step, &rows[i][column], kMostTransposed);
      for (int64_t i = squares; i < n; ++i)
        for (int64_t k = 0; k < 4; ++k) rows[i][column + k] = from[k * step + i];
    }
    for (; column < columns; ++column)
      for (int64_t i = 0; i < n; ++i) rows[i][column] = in[column * step + i];
    for (int64_t i = 0; i < n; ++i) store(line + i, rows[i]);
  }
}

// out[i] = in[i]
inline void widen(const BFloat16* in, int64_t count, float* out) {
  using Halves = uint16_t __attribute__((vector_size(16)));
  using Words = uint32_t __attribute__((vector_size(32)));
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    Halves halves;
    std::memcpy(&halves, in + i, sizeof(halves));
    const Words words = __builtin_convertvector(halves, Words) << 16;
    std::memcpy(out + i, &words, sizeof(words));
  }
  for (; i < count; ++i) out[i] = to_f32(in[i]);
}

}  // namespace anneal::cpu
