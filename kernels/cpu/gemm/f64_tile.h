// A product of a few rows of f64 by a panel of columns.
#pragma once
#include <cstdint>

#include "anneal/core/isa.h"

namespace anneal::cpu {

struct F64Tile {
  static constexpr int kRows = 4;
  static constexpr int64_t kColumns = 16;  // of a panel, whose rows are adjacent
  // sums[row * kColumns + column] = sum of a[row * a_row + k * a_k] * panel[k * kColumns + column]
  // in the order of k. REQUIRES: 1 <= rows <= kRows; a panel that is aligned to 64 bytes
  void (*run)(const double* a, int64_t a_row, int64_t a_k, int rows, const double* panel,
              int64_t depth, double* sums);
};
F64Tile f64_tile(Isa isa);

}  // namespace anneal::cpu
