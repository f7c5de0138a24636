#include "anneal/kernels/cpu/fold.h"

#include "anneal/kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/kernels/cpu/fold.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "anneal/kernels/cpu/tape_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr int64_t kLanes = HWY_LANES(float);

template <Fold kFold>
HWY_INLINE V folded(V so_far, V x, V shift) {
  switch (kFold) {
    case Fold::kSum:
      return hn::Add(so_far, x);
    case Fold::kProd:
      return hn::Mul(so_far, x);
    case Fold::kMax:
      return max_nan(D(), so_far, x);
    case Fold::kMin:
      return min_nan(D(), so_far, x);
    case Fold::kDifferences:
      return hn::Add(so_far, hn::Sub(x, shift));
    case Fold::kSquares: {
      const V centred = hn::Sub(x, shift);
      return hn::MulAdd(centred, centred, so_far);
    }
    case Fold::kExp:
      return hn::Add(so_far, exp_f32(D(), hn::Sub(x, shift)));
  }
  return so_far;
}

// Of results so far.
template <Fold kFold>
HWY_INLINE V merged(V a, V b) {
  if constexpr (kFold == Fold::kProd || kFold == Fold::kMax || kFold == Fold::kMin)
    return folded<kFold>(a, b, a);
  return hn::Add(a, b);
}

template <Fold kFold>
double fold_row(const float* x, int64_t n, float shift) {
  const D d;
  const V start = hn::Set(d, start_of(kFold));
  const V shifts = hn::Set(d, shift);
  V parts[4] = {start, start, start, start};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v)
      parts[v] = folded<kFold>(parts[v], hn::LoadU(d, x + i + v * kLanes), shifts);
  }
  for (; i + kLanes <= n; i += kLanes)
    parts[0] = folded<kFold>(parts[0], hn::LoadU(d, x + i), shifts);
  HWY_ALIGN float lanes[kLanes];
  if (i < n) {
    // Lanes beyond the end stay as they were.
    HWY_ALIGN float rest[kLanes] = {};
    std::memcpy(rest, x + i, static_cast<size_t>(n - i) * sizeof(float));
    const V next = folded<kFold>(parts[0], hn::Load(d, rest), shifts);
    HWY_ALIGN float after[kLanes];
    hn::Store(parts[0], d, lanes);
    hn::Store(next, d, after);
    std::memcpy(lanes, after, static_cast<size_t>(n - i) * sizeof(float));
    parts[0] = hn::Load(d, lanes);
  }
  const V all = merged<kFold>(merged<kFold>(parts[0], parts[1]), merged<kFold>(parts[2], parts[3]));
  hn::Store(all, d, lanes);
  double result = lanes[0];
  for (int64_t lane = 1; lane < kLanes; ++lane) result = combined(kFold, result, lanes[lane]);
  return result;
}

template <Fold kFold, int kVectors>
HWY_INLINE void fold_column_vectors(const FoldBlock& block, int64_t column, const float* shift,
                                    float* result) {
  const D d;
  V sums[kVectors], shifts[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    sums[v] = hn::Set(d, start_of(kFold));
    shifts[v] = shift == nullptr ? hn::Zero(d) : hn::LoadU(d, shift + column + v * kLanes);
  }
  const float* x = block.x + column;
  for (int64_t row = 0; row < block.rows; ++row, x += block.row_stride) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      sums[v] = folded<kFold>(sums[v], hn::LoadU(d, x + v * kLanes), shifts[v]);
  }
  for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[v], d, result + column + v * kLanes);
}

template <Fold kFold>
void fold_columns(const FoldBlock& block, const float* shift, float* result) {
  int64_t column = 0;
  for (; column + 4 * kLanes <= block.columns; column += 4 * kLanes)
    fold_column_vectors<kFold, 4>(block, column, shift, result);
  for (; column + kLanes <= block.columns; column += kLanes)
    fold_column_vectors<kFold, 1>(block, column, shift, result);
  if (column == block.columns) return;
  const D d;
  const auto bytes = static_cast<size_t>(block.columns - column) * sizeof(float);
  HWY_ALIGN float lanes[kLanes] = {};
  if (shift != nullptr) std::memcpy(lanes, shift + column, bytes);
  const V shifts = hn::Load(d, lanes);
  V sum = hn::Set(d, start_of(kFold));
  for (int64_t row = 0; row < block.rows; ++row) {
    std::memcpy(lanes, block.x + row * block.row_stride + column, bytes);
    sum = folded<kFold>(sum, hn::Load(d, lanes), shifts);
  }
  hn::Store(sum, d, lanes);
  std::memcpy(result + column, lanes, bytes);
}

template <Map kMap>
HWY_INLINE V mapped(V x, V shift, V scale, V offset) {
  const V moved = hn::Sub(x, shift);
  if constexpr (kMap == Map::kExp) return hn::Mul(exp_f32(D(), moved), scale);
  return hn::Add(hn::Mul(moved, scale), offset);
}

template <Map kMap>
void map_row_of(const float* x, int64_t n, float shift, float scale, float offset, float* out) {
  const D d;
  const V shifts = hn::Set(d, shift), scales = hn::Set(d, scale), offsets = hn::Set(d, offset);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    hn::StoreU(mapped<kMap>(hn::LoadU(d, x + i), shifts, scales, offsets), d, out + i);
  if (i == n) return;
  HWY_ALIGN float lanes[kLanes] = {};
  const auto bytes = static_cast<size_t>(n - i) * sizeof(float);
  std::memcpy(lanes, x + i, bytes);
  hn::Store(mapped<kMap>(hn::Load(d, lanes), shifts, scales, offsets), d, lanes);
  std::memcpy(out + i, lanes, bytes);
}

template <Map kMap>
void map_columns_of(const FoldBlock& block, const float* shift, const float* scale,
                    const float* offset, float* out) {
  const D d;
  const auto rest = static_cast<size_t>(block.columns % kLanes) * sizeof(float);
  for (int64_t row = 0; row < block.rows; ++row, out += block.columns) {
    const float* const x = block.x + row * block.row_stride;
    int64_t i = 0;
    for (; i + kLanes <= block.columns; i += kLanes)
      hn::StoreU(mapped<kMap>(hn::LoadU(d, x + i), hn::LoadU(d, shift + i), hn::LoadU(d, scale + i),
                              hn::LoadU(d, offset + i)),
                 d, out + i);
    if (rest == 0) continue;
    HWY_ALIGN float lanes[4][kLanes] = {};
    const float* const from[4] = {x + i, shift + i, scale + i, offset + i};
    for (int k = 0; k < 4; ++k) std::memcpy(lanes[k], from[k], rest);
    hn::Store(mapped<kMap>(hn::Load(d, lanes[0]), hn::Load(d, lanes[1]), hn::Load(d, lanes[2]),
                           hn::Load(d, lanes[3])),
              d, lanes[0]);
    std::memcpy(out + i, lanes[0], rest);
  }
}

}  // namespace

double row(Fold fold, const float* x, int64_t n, float shift) {
  switch (fold) {
    case Fold::kSum:
      return fold_row<Fold::kSum>(x, n, shift);
    case Fold::kProd:
      return fold_row<Fold::kProd>(x, n, shift);
    case Fold::kMax:
      return fold_row<Fold::kMax>(x, n, shift);
    case Fold::kMin:
      return fold_row<Fold::kMin>(x, n, shift);
    case Fold::kDifferences:
      return fold_row<Fold::kDifferences>(x, n, shift);
    case Fold::kSquares:
      return fold_row<Fold::kSquares>(x, n, shift);
    case Fold::kExp:
      return fold_row<Fold::kExp>(x, n, shift);
  }
  return 0;
}

void columns(Fold fold, const FoldBlock& block, const float* shift, float* result) {
  switch (fold) {
    case Fold::kSum:
      return fold_columns<Fold::kSum>(block, shift, result);
    case Fold::kProd:
      return fold_columns<Fold::kProd>(block, shift, result);
    case Fold::kMax:
      return fold_columns<Fold::kMax>(block, shift, result);
    case Fold::kMin:
      return fold_columns<Fold::kMin>(block, shift, result);
    case Fold::kDifferences:
      return fold_columns<Fold::kDifferences>(block, shift, result);
    case Fold::kSquares:
      return fold_columns<Fold::kSquares>(block, shift, result);
    case Fold::kExp:
      return fold_columns<Fold::kExp>(block, shift, result);
  }
}

void map_row(Map map, const float* x, int64_t n, float shift, float scale, float offset,
             float* out) {
  if (map == Map::kExp) return map_row_of<Map::kExp>(x, n, shift, scale, offset, out);
  map_row_of<Map::kAffine>(x, n, shift, scale, offset, out);
}

void map_columns(Map map, const FoldBlock& block, const float* shift, const float* scale,
                 const float* offset, float* out) {
  if (map == Map::kExp) return map_columns_of<Map::kExp>(block, shift, scale, offset, out);
  map_columns_of<Map::kAffine>(block, shift, scale, offset, out);
}

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anneal::cpu {

FoldLoops fold_loops(Isa isa) {
  return {ANNEAL_BY_ISA(isa, row), ANNEAL_BY_ISA(isa, columns), ANNEAL_BY_ISA(isa, map_row),
          ANNEAL_BY_ISA(isa, map_columns)};
}

}  // namespace anneal::cpu
#endif
