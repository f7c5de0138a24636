// Products of a few rows by a matrix, or of a matrix by a few columns, that read the matrix once,
// where it lies: packing it would take longer.
#pragma once
#include <cstddef>
#include <cstdint>

#include "anneal/kernels/cpu/gemm/few_rows.h"

namespace anneal::cpu {

// Of f32, but for b. Distances count elements.
struct FewRowsOperands {
  const float* a = nullptr;
  int64_t rows = 0, a_stride = 0;  // of adjacent elements
  const std::byte* b = nullptr;    // of the loops' type
  int64_t k = 0, columns = 0;
  int64_t b_k = 0, b_column = 0;  // from element to element of b
  bool b_is_f32 = true;
  float* c = nullptr;
  int64_t c_stride = 0;
};

struct FewRowsProduct {
  // Whether b can be read where it lies: its columns, or its rows, are adjacent elements, of which
  // there are enough for a vector; and whether that is faster than to pack it. More rows pay where
  // b stays in the second-level cache. Or whether b has few columns, and the
  // products of each row of a by each column are faster.
  static bool takes(const FewRowsOperands& operands);

  FewRows loops;
  // REQUIRES: takes() the sizes and distances; b is f32, or b_column is 1
  void run(const FewRowsOperands& operands) const;

 private:
  void run_few_columns(const FewRowsOperands& operands) const;
};

}  // namespace anneal::cpu
