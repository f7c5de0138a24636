#include "anneal/kernels/cpu/gemm/few_rows_product.h"

#include <algorithm>

namespace anneal::cpu {

bool FewRowsProduct::takes(const FewRowsOperands& o) {
  constexpr int64_t kFewRows = 16, kManyRows = 128, kNearElements = 64 << 10;
  if (o.b_column != 1) return o.b_k == 1 && o.k >= FewRows::kMultiple && o.rows <= kFewRows;
  return o.columns >= FewRows::kMultiple &&
         o.rows <= (o.k * o.columns <= kNearElements ? kManyRows : kFewRows);
}

void FewRowsProduct::run(const FewRowsOperands& o) const {
  const int64_t whole = o.k / FewRows::kMultiple * FewRows::kMultiple;
  for (int64_t first = 0; first < o.rows; first += FewRows::kMost) {
    const int count = static_cast<int>(std::min<int64_t>(o.rows - first, FewRows::kMost));
    const float* const a = o.a + first * o.a_stride;
    float* const c = o.c + first * o.c_stride;
    if (o.b_column == 1) {
      loops.sums(o.b, o.b_k, o.k, o.columns, a, o.a_stride, count, c, o.c_stride);
      continue;
    }
    const float* rows[FewRows::kMost];
    for (int row = 0; row < count; ++row) rows[row] = a + row * o.a_stride;
    loops.scores(o.b, o.b_column, o.columns, whole, rows, count, c, o.c_stride);
    const auto* const b = reinterpret_cast<const float*>(o.b);
    for (int row = 0; whole < o.k && row < count; ++row)
      for (int64_t column = 0; column < o.columns; ++column)
        for (int64_t k = whole; k < o.k; ++k)
          c[row * o.c_stride + column] += rows[row][k] * b[column * o.b_column + k];
  }
}

}  // namespace anneal::cpu
