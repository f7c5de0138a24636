// Products of a few rows of f32 by matrices that are read once and where they lie, such as
// attention's k and v: f32, f16, bf16, i8 or u8, elements of a row next to each other. A row of u8
// has two numbers of 4 bits in each byte, with 8 added: first all of the low bits, then all of the
// high bits.
#pragma once
#include <cstddef>
#include <cstdint>

#include "anneal/core/dtype.h"
#include "anneal/core/isa.h"

namespace anneal::cpu {

struct FewRows {
  static constexpr int kMost = 4;       // rows at a time
  static constexpr int kMultiple = 16;  // elements of vectors of any instruction set
  // scores[row * pitch + key] = rows[row] * k[key], for rows of k of `depth` elements, a multiple
  // of kMultiple; `stride` elements from one row of k to the next.
  void (*scores)(const std::byte* k, int64_t stride, int64_t keys, int64_t depth,
                 const float* const* rows, int count, float* scores, int64_t pitch);
  // y[row * y_pitch + i] = sum of weights[row * pitch + key] * v[key][i], in the order of the keys,
  // for i < width. part: 0, or 1 for the numbers of the high bits of u8. REQUIRES: width >=
  // kMultiple, or rows of v and y that have as many elements
  void (*sums)(const std::byte* v, int part, int64_t stride, int64_t keys, int64_t width,
               const float* weights, int64_t pitch, int count, float* y, int64_t y_pitch);
};
// matrix: the type of k and v. REQUIRES: f32, f16, bf16, i8 or u8
FewRows few_rows(Isa isa, DataType matrix);

}  // namespace anneal::cpu
