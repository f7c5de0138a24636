#include "anneal/kernels/cpu/reduce/reduction_loops.h"

#include "anneal/kernels/cpu/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/kernels/cpu/reduce/reduction_loops.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "anneal/kernels/cpu/program/tape_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr int64_t kLanes = HWY_LANES(float);

template <Reduction kFold>
HWY_INLINE V folded(V so_far, V x, V shift) {
  switch (kFold) {
    case Reduction::kSum:
      return hn::Add(so_far, x);
    case Reduction::kProd:
      return hn::Mul(so_far, x);
    case Reduction::kMax:
      return max_nan(D(), so_far, x);
    case Reduction::kMin:
      return min_nan(D(), so_far, x);
    case Reduction::kDifferences:
      return hn::Add(so_far, hn::Sub(x, shift));
    case Reduction::kSquares: {
      const V centred = hn::Sub(x, shift);
      return hn::MulAdd(centred, centred, so_far);
    }
    case Reduction::kExp:
      return hn::Add(so_far, exp_f32(D(), hn::Sub(x, shift)));
  }
  return so_far;
}

// Merges partial results.
template <Reduction kFold>
HWY_INLINE V merged(V a, V b) {
  if constexpr (kFold == Reduction::kProd || kFold == Reduction::kMax || kFold == Reduction::kMin)
    return folded<kFold>(a, b, a);
  return hn::Add(a, b);
}

hn::Mask<D> first_lanes(int64_t count) { return hn::FirstN(D(), static_cast<size_t>(count)); }

// `count` elements in the first lanes, 0 in the others. REQUIRES: count < kLanes
HWY_INLINE V load_first(const float* x, int64_t count) {
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN float lanes[kLanes] = {};
  std::memcpy(lanes, x, static_cast<size_t>(count) * sizeof(float));
  return hn::Load(D(), lanes);
#else
  return hn::MaskedLoad(first_lanes(count), D(), x);
#endif
}
HWY_INLINE void store_first(V v, int64_t count, float* out) {
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN float lanes[kLanes];
  hn::Store(v, D(), lanes);
  std::memcpy(out, lanes, static_cast<size_t>(count) * sizeof(float));
#else
  hn::BlendedStore(v, first_lanes(count), D(), out);
#endif
}

// Of all lanes. Those of the lower half are merged with those of the upper half, and so on.
#if HWY_TARGET == HWY_SCALAR
template <Reduction kFold>
HWY_INLINE double across(V v) {
  return hn::GetLane(v);
}
#else
template <Reduction kFold, class W>
HWY_INLINE double across(W v) {
  const hn::DFromV<W> d;
  if constexpr (hn::MaxLanes(hn::DFromV<W>()) == 1) {
    return hn::GetLane(v);
  } else {
    const hn::Half<decltype(d)> half;
    const auto a = hn::LowerHalf(half, v), b = hn::UpperHalf(half, v);
    if constexpr (kFold == Reduction::kMax) {
      return across<kFold>(max_nan(half, a, b));
    } else if constexpr (kFold == Reduction::kMin) {
      return across<kFold>(min_nan(half, a, b));
    } else if constexpr (std::is_same_v<hn::TFromV<W>, float>) {
      const hn::Rebind<double, decltype(half)> wide;
      const auto of_a = hn::PromoteTo(wide, a), of_b = hn::PromoteTo(wide, b);
      return across<kFold>(kFold == Reduction::kProd ? hn::Mul(of_a, of_b) : hn::Add(of_a, of_b));
    } else {
      return across<kFold>(kFold == Reduction::kProd ? hn::Mul(a, b) : hn::Add(a, b));
    }
  }
}
#endif

template <Reduction kFold>
double reduce_row(const float* x, int64_t n, float shift) {
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
  if (i < n)
    parts[0] = hn::IfThenElse(first_lanes(n - i),
                              folded<kFold>(parts[0], load_first(x + i, n - i), shifts), parts[0]);
  return across<kFold>(
      merged<kFold>(merged<kFold>(parts[0], parts[1]), merged<kFold>(parts[2], parts[3])));
}

// exp((x - shift) * scale)
template <bool kScales>
HWY_INLINE V exponential(V x, V shift, [[maybe_unused]] V scale) {
  const V moved = hn::Sub(x, shift);
  return exp_up_to_one(D(), kScales ? hn::Mul(moved, scale) : moved);
}

// Exponentials and their sum.
template <bool kScales>
double exp_of_row(const float* x, int64_t n, float shift, float scale, float* out) {
  const D d;
  const V shifts = hn::Set(d, shift), scales = hn::Set(d, scale);
  V sums[2] = {hn::Zero(d), hn::Zero(d)};
  const auto exponentials = [&](int64_t i, V& sum) HWY_ATTR {
    const V y = exponential<kScales>(hn::LoadU(d, x + i), shifts, scales);
    hn::StoreU(y, d, out + i);
    sum = hn::Add(sum, y);
  };
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    exponentials(i, sums[0]);
    exponentials(i + kLanes, sums[1]);
  }
  for (; i + kLanes <= n; i += kLanes) exponentials(i, sums[0]);
  if (i < n) {
    const V y = exponential<kScales>(load_first(x + i, n - i), shifts, scales);
    sums[0] = hn::Add(sums[0], hn::IfThenElseZero(first_lanes(n - i), y));
    store_first(y, n - i, out + i);
  }
  return across<Reduction::kSum>(hn::Add(sums[0], sums[1]));
}

template <bool kKeepsHidden>
double masked_row(float* x, const float* mask, int64_t n, float scale) {
  const D d;
  const V scales = hn::Set(d, scale), hidden = hn::Set(d, start_of(Reduction::kMax));
  const auto masked = [&](V score, V add) HWY_ATTR {
    const V sum = hn::Add(hn::Mul(score, scales), add);
    return kKeepsHidden ? hn::IfThenElse(hn::Eq(add, hidden), hidden, sum) : sum;
  };
  V parts[2] = {hidden, hidden};
  const auto mask_vector = [&](int64_t i, V& part) HWY_ATTR {
    const V y = masked(hn::LoadU(d, x + i), hn::LoadU(d, mask + i));
    hn::StoreU(y, d, x + i);
    part = max_nan(d, part, y);
  };
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    mask_vector(i, parts[0]);
    mask_vector(i + kLanes, parts[1]);
  }
  for (; i + kLanes <= n; i += kLanes) mask_vector(i, parts[0]);
  if (i < n) {
    const V y = masked(load_first(x + i, n - i), load_first(mask + i, n - i));
    store_first(y, n - i, x + i);
    parts[1] = hn::IfThenElse(first_lanes(n - i), max_nan(d, parts[1], y), parts[1]);
  }
  return across<Reduction::kMax>(max_nan(d, parts[0], parts[1]));
}

template <Reduction kFold, int kVectors>
HWY_INLINE void reduce_column_vectors(const ReductionBlock& block, int64_t column,
                                      const float* shift, float* result) {
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

// Fewer columns than lanes, row after row: kLanes rows are `columns` vectors. Rows of up to
// kShortRow elements, which are columns here, never are: their number is that of a batch.
bool is_narrow(const ReductionBlock& block) {
  constexpr int64_t kLeastRows = 16;
  return block.columns < kLanes && block.row_stride == block.columns && block.rows >= kLeastRows;
}
// One number for each column, for each element of kLanes rows.
struct NarrowNumbers {
  HWY_ALIGN float numbers[kLanes * kLanes];
  NarrowNumbers(const float* of_columns, int64_t columns) {
    for (int64_t row = 0; row < kLanes; ++row)
      for (int64_t i = 0; i < columns; ++i)
        numbers[row * columns + i] = of_columns == nullptr ? 0 : of_columns[i];
  }
  HWY_INLINE V operator[](int64_t vector) const { return hn::Load(D(), numbers + vector * kLanes); }
};
// f(which vector of kLanes rows, x, where it is) for all elements, then f of the last ones with how
// many they are.
template <class F>
HWY_INLINE void for_narrow(const ReductionBlock& block, const F& f) {
  const int64_t n = block.rows * block.columns;
  int64_t i = 0, vector = 0;
  for (; i + kLanes <= n; i += kLanes) {
    f(vector, hn::LoadU(D(), block.x + i), i, kLanes);
    if (++vector == block.columns) vector = 0;
  }
  if (i < n) f(vector, load_first(block.x + i, n - i), i, n - i);
}

template <Reduction kFold>
void reduce_narrow(const ReductionBlock& block, const float* shift, float* result) {
  const D d;
  const NarrowNumbers shifts(shift, block.columns);
  HWY_ALIGN float folds[kLanes * kLanes];
  std::fill(folds, folds + kLanes * block.columns, start_of(kFold));
  for_narrow(block, [&](int64_t vector, V x, int64_t, int64_t count) HWY_ATTR {
    float* const at = folds + vector * kLanes;
    const V before = hn::Load(d, at), after = folded<kFold>(before, x, shifts[vector]);
    hn::Store(count == kLanes ? after : hn::IfThenElse(first_lanes(count), after, before), d, at);
  });
  for (int64_t column = 0; column < block.columns; ++column) {
    double total = start_of(kFold);
    for (int64_t row = 0; row < kLanes; ++row)
      total = combined(kFold, total, double{folds[row * block.columns + column]});
    result[column] = static_cast<float>(total);
  }
}

template <Reduction kFold>
void reduce_columns(const ReductionBlock& block, const float* shift, float* result) {
  if (is_narrow(block)) return reduce_narrow<kFold>(block, shift, result);
  int64_t column = 0;
  for (; column + 4 * kLanes <= block.columns; column += 4 * kLanes)
    reduce_column_vectors<kFold, 4>(block, column, shift, result);
  for (; column + kLanes <= block.columns; column += kLanes)
    reduce_column_vectors<kFold, 1>(block, column, shift, result);
  const int64_t rest = block.columns - column;
  if (rest == 0) return;
  const V shifts = shift == nullptr ? hn::Zero(D()) : load_first(shift + column, rest);
  V sum = hn::Set(D(), start_of(kFold));
  for (int64_t row = 0; row < block.rows; ++row)
    sum = folded<kFold>(sum, load_first(block.x + row * block.row_stride + column, rest), shifts);
  store_first(sum, rest, result + column);
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
  if (i < n)
    store_first(mapped<kMap>(load_first(x + i, n - i), shifts, scales, offsets), n - i, out + i);
}

template <Map kMap>
void map_narrow(const ReductionBlock& block, const float* shift, const float* scale,
                const float* offset, float* out) {
  const NarrowNumbers shifts(shift, block.columns), scales(scale, block.columns),
      offsets(offset, block.columns);
  for_narrow(block, [&](int64_t vector, V x, int64_t at, int64_t count) HWY_ATTR {
    const V y = mapped<kMap>(x, shifts[vector], scales[vector], offsets[vector]);
    count == kLanes ? hn::StoreU(y, D(), out + at) : store_first(y, count, out + at);
  });
}

template <Map kMap>
void map_columns_of(const ReductionBlock& block, const float* shift, const float* scale,
                    const float* offset, float* out) {
  if (is_narrow(block)) return map_narrow<kMap>(block, shift, scale, offset, out);
  const D d;
  for (int64_t row = 0; row < block.rows; ++row, out += block.columns) {
    const float* const x = block.x + row * block.row_stride;
    int64_t i = 0;
    for (; i + kLanes <= block.columns; i += kLanes)
      hn::StoreU(mapped<kMap>(hn::LoadU(d, x + i), hn::LoadU(d, shift + i), hn::LoadU(d, scale + i),
                              hn::LoadU(d, offset + i)),
                 d, out + i);
    const int64_t rest = block.columns - i;
    if (rest == 0) continue;
    const V y = mapped<kMap>(load_first(x + i, rest), load_first(shift + i, rest),
                             load_first(scale + i, rest), load_first(offset + i, rest));
    store_first(y, rest, out + i);
  }
}

}  // namespace

double row(Reduction fold, const float* x, int64_t n, float shift) {
  switch (fold) {
    case Reduction::kSum:
      return reduce_row<Reduction::kSum>(x, n, shift);
    case Reduction::kProd:
      return reduce_row<Reduction::kProd>(x, n, shift);
    case Reduction::kMax:
      return reduce_row<Reduction::kMax>(x, n, shift);
    case Reduction::kMin:
      return reduce_row<Reduction::kMin>(x, n, shift);
    case Reduction::kDifferences:
      return reduce_row<Reduction::kDifferences>(x, n, shift);
    case Reduction::kSquares:
      return reduce_row<Reduction::kSquares>(x, n, shift);
    case Reduction::kExp:
      return reduce_row<Reduction::kExp>(x, n, shift);
  }
  return 0;
}

void columns(Reduction fold, const ReductionBlock& block, const float* shift, float* result) {
  switch (fold) {
    case Reduction::kSum:
      return reduce_columns<Reduction::kSum>(block, shift, result);
    case Reduction::kProd:
      return reduce_columns<Reduction::kProd>(block, shift, result);
    case Reduction::kMax:
      return reduce_columns<Reduction::kMax>(block, shift, result);
    case Reduction::kMin:
      return reduce_columns<Reduction::kMin>(block, shift, result);
    case Reduction::kDifferences:
      return reduce_columns<Reduction::kDifferences>(block, shift, result);
    case Reduction::kSquares:
      return reduce_columns<Reduction::kSquares>(block, shift, result);
    case Reduction::kExp:
      return reduce_columns<Reduction::kExp>(block, shift, result);
  }
}

double exp_row(const float* x, int64_t n, float shift, float scale, float* out) {
  return scale == 1 ? exp_of_row<false>(x, n, shift, scale, out)
                    : exp_of_row<true>(x, n, shift, scale, out);
}

double mask_row(float* x, const float* mask, int64_t n, float scale, bool keeps_hidden) {
  return keeps_hidden ? masked_row<true>(x, mask, n, scale) : masked_row<false>(x, mask, n, scale);
}

void map_row(Map map, const float* x, int64_t n, float shift, float scale, float offset,
             float* out) {
  if (map == Map::kExp) return map_row_of<Map::kExp>(x, n, shift, scale, offset, out);
  map_row_of<Map::kAffine>(x, n, shift, scale, offset, out);
}

void rows(Reduction fold, const float* x, int64_t rows, int64_t n, int64_t stride,
          double* results) {
  with_kind(fold, [&](auto kind) {
    for (int64_t i = 0; i < rows; ++i) results[i] = reduce_row<kind>(x + i * stride, n, 0);
  });
}

// Softmax's exponentials are at most 1, since the largest element is the shift.
void norm_rows(const NormRows& r) {
  const float* x = r.x;
  float* out = r.out;
  for (int64_t row = 0; row < r.rows; ++row, x += r.x_stride, out += r.out_stride) {
    if (r.is_softmax) {
      const auto shift = static_cast<float>(reduce_row<Reduction::kMax>(x, r.n, 0));
      if (r.is_log) {
        const double sum = reduce_row<Reduction::kExp>(x, r.n, shift);
        map_row_of<Map::kAffine>(x, r.n, shift, 1, static_cast<float>(-std::log(sum)), out);
        continue;
      }
      const double sum = exp_of_row<false>(x, r.n, shift, 1, out);
      map_row_of<Map::kAffine>(out, r.n, 0, static_cast<float>(1 / sum), 0, out);
      continue;
    }
    // Differences from one of the elements keep their digits where the mean is large.
    const double mean = r.subtract_mean ? x[0] + reduce_row<Reduction::kDifferences>(x, r.n, x[0]) /
                                                     static_cast<double>(r.n)
                                        : 0;
    const double squares = reduce_row<Reduction::kSquares>(x, r.n, static_cast<float>(mean));
    const AffineNumbers n = normalization(mean, squares, r.n, r.epsilon);
    map_row_of<Map::kAffine>(x, r.n, n.shift, n.scale, n.offset, out);
  }
}

void map_columns(Map map, const ReductionBlock& block, const float* shift, const float* scale,
                 const float* offset, float* out) {
  if (map == Map::kExp) return map_columns_of<Map::kExp>(block, shift, scale, offset, out);
  map_columns_of<Map::kAffine>(block, shift, scale, offset, out);
}

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anneal::cpu {

ReductionLoops reduction_loops(Isa isa) {
  return {ANNEAL_BY_ISA(isa, row),         ANNEAL_BY_ISA(isa, rows),
          ANNEAL_BY_ISA(isa, columns),     ANNEAL_BY_ISA(isa, map_row),
          ANNEAL_BY_ISA(isa, map_columns), ANNEAL_BY_ISA(isa, exp_row),
          ANNEAL_BY_ISA(isa, mask_row),    ANNEAL_BY_ISA(isa, norm_rows)};
}

}  // namespace anneal::cpu
#endif
