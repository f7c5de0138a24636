#include "anneal/kernels/cpu/gemm/few_rows_product.h"

#include <algorithm>

namespace anneal::cpu {
namespace {

constexpr int64_t kMostDepth = 512;  // of columns that are copied

// One column, or a few where a has few rows, too.
bool has_few_columns(const FewRowsOperands& o) {
  constexpr int64_t kFewRows = 16;
  if (!o.b_is_f32 || o.k < FewRows::kMultiple) return false;
  if (o.columns == 1) return o.b_k == 1 || o.k <= kMostDepth;
  return o.columns <= FewRows::kMost && o.rows <= kFewRows && o.k <= kMostDepth;
}

}  // namespace

bool FewRowsProduct::takes(const FewRowsOperands& o) {
  if (has_few_columns(o)) return true;
  constexpr int64_t kFewRows = 16, kManyRows = 128, kNearElements = 64 << 10;
  if (o.b_column != 1) return o.b_k == 1 && o.k >= FewRows::kMultiple && o.rows <= kFewRows;
  return o.columns >= FewRows::kMultiple &&
         o.rows <= (o.k * o.columns <= kNearElements ? kManyRows : kFewRows);
}

// c^T = b^T a^T: the columns of b are the few rows, those of a the matrix.
void FewRowsProduct::run_few_columns(const FewRowsOperands& o) const {
  constexpr int64_t kRowsAtOnce = 64;
  float copied[FewRows::kMost * kMostDepth], sums[FewRows::kMost * kRowsAtOnce];
  const auto* const b = reinterpret_cast<const float*>(o.b);
  const float* columns[FewRows::kMost];
  for (int64_t column = 0; column < o.columns; ++column) {
    columns[column] = o.b_k == 1 ? b + column * o.b_column : copied + column * kMostDepth;
    for (int64_t k = 0; k < o.k && o.b_k != 1; ++k)
      copied[column * kMostDepth + k] = b[k * o.b_k + column * o.b_column];
  }
  const int64_t whole = o.k / FewRows::kMultiple * FewRows::kMultiple;
  for (int64_t first = 0; first < o.rows; first += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, o.rows - first);
    const float* const a = o.a + first * o.a_stride;
    loops.scores(reinterpret_cast<const std::byte*>(a), o.a_stride, count, whole, columns,
                 static_cast<int>(o.columns), sums, kRowsAtOnce);
    for (int64_t row = 0; row < count; ++row)
      for (int64_t column = 0; column < o.columns; ++column) {
        float sum = sums[column * kRowsAtOnce + row];
        for (int64_t k = whole; k < o.k; ++k) sum += a[row * o.a_stride + k] * columns[column][k];
        o.c[(first + row) * o.c_stride + column] = sum;
      }
  }
}

void FewRowsProduct::run(const FewRowsOperands& o) const {
  if (has_few_columns(o)) return run_few_columns(o);
  const int64_t whole = o.k / FewRows::kMultiple * FewRows::kMultiple;
  for (int64_t first = 0; first < o.rows; first += FewRows::kMost) {
    const int count = static_cast<int>(std::min<int64_t>(o.rows - first, FewRows::kMost));
    const float* const a = o.a + first * o.a_stride;
    float* const c = o.c + first * o.c_stride;
    if (o.b_column == 1) {
      loops.sums(o.b, 0, o.b_k, o.k, o.columns, a, o.a_stride, count, c, o.c_stride);
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
