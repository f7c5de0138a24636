#include "anneal/kernels/cpu/gemm/f64_tile.h"

#include "anneal/kernels/cpu/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/kernels/cpu/gemm/f64_tile.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Doubles = hn::ScalableTag<double>;
constexpr int64_t kDoubles = HWY_LANES(double);
// Of a row of sums at a time, so that the sums of all rows stay in registers.
constexpr int64_t kVectors = 2;

template <int kRows>
void sums_of_rows(const double* a, int64_t a_row, int64_t a_k, const double* panel, int64_t depth,
                  double* sums) {
  hn::Vec<Doubles> registers[kRows][kVectors];
#pragma GCC unroll 4
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 4
    for (int64_t i = 0; i < kVectors; ++i) registers[row][i] = hn::Zero(Doubles());
  for (int64_t k = 0; k < depth; ++k, panel += F64Tile::kColumns, a += a_k) {
    hn::Vec<Doubles> columns[kVectors];
#pragma GCC unroll 4
    for (int64_t i = 0; i < kVectors; ++i) columns[i] = hn::Load(Doubles(), panel + i * kDoubles);
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) {
      const auto factor = hn::Set(Doubles(), a[row * a_row]);
#pragma GCC unroll 4
      for (int64_t i = 0; i < kVectors; ++i)
        registers[row][i] = hn::MulAdd(factor, columns[i], registers[row][i]);
    }
  }
#pragma GCC unroll 4
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 4
    for (int64_t i = 0; i < kVectors; ++i)
      hn::StoreU(registers[row][i], Doubles(), sums + row * F64Tile::kColumns + i * kDoubles);
}

template <int kRows>
void all_columns(const double* a, int64_t a_row, int64_t a_k, const double* panel, int64_t depth,
                 double* sums) {
  for (int64_t column = 0; column < F64Tile::kColumns; column += kVectors * kDoubles)
    sums_of_rows<kRows>(a, a_row, a_k, panel + column, depth, sums + column);
}

}  // namespace

void f64_tile_of(const double* a, int64_t a_row, int64_t a_k, int rows, const double* panel,
                 int64_t depth, double* sums) {
  if (rows == F64Tile::kRows) return all_columns<F64Tile::kRows>(a, a_row, a_k, panel, depth, sums);
  for (int row = 0; row < rows; ++row)
    all_columns<1>(a + row * a_row, a_row, a_k, panel, depth, sums + row * F64Tile::kColumns);
}

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anneal::cpu {

F64Tile f64_tile(Isa isa) { return {ANNEAL_BY_ISA(isa, f64_tile_of)}; }

}  // namespace anneal::cpu
#endif
