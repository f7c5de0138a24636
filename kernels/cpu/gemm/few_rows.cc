#include "anneal/kernels/cpu/gemm/few_rows.h"

#include "anneal/kernels/cpu/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/kernels/cpu/gemm/few_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>

#include "anneal/core/float16.h"
// In this order, which formatting must not change:
#include "anneal/kernels/cpu/program/tape_math-inl.h"
//
#include "anneal/kernels/cpu/program/vector_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using Vector = hn::Vec<D>;
constexpr int64_t kLanes = HWY_LANES(float);
// Rows of a cache may lie far apart, where the CPU does not foresee the next one.
constexpr int64_t kKeysAhead = 16;

// Numbers of 4 bits with 8 added, two in each byte. part: 0, those of the low bits, or 1.
struct StoredBits {
  using Element = uint8_t;
  static HWY_INLINE Vector load(const uint8_t* p, int part) {
    const hn::RebindToSigned<D> di;
    const hn::Rebind<uint8_t, D> dn;
    const auto bytes = hn::PromoteTo(di, hn::LoadU(dn, p));
    const auto codes = hn::And(hn::ShiftRightSame(bytes, 4 * part), hn::Set(di, 15));
    return hn::ConvertTo(D(), hn::Sub(codes, hn::Set(di, 8)));
  }
};

// Numbers in an element.
template <class Stored>
constexpr int kParts = std::is_same_v<Stored, StoredBits> ? 2 : 1;

template <class Stored>
HWY_INLINE Vector load_part(const typename Stored::Element* p, [[maybe_unused]] int part) {
  if constexpr (kParts<Stored> == 2) {
    return Stored::load(p, part);
  } else {
    return Stored::load(p);
  }
}

// Two keys at a time, so that sums hide each other's latency. count: of rows, kRows or fewer.
template <class Stored, int kRows>
void scores_of(const typename Stored::Element* k, int64_t stride, int64_t keys, int64_t depth,
               const float* const* rows, int count, float* scores, int64_t pitch) {
  const float* all[kRows];
  for (int row = 0; row < kRows; ++row) all[row] = rows[std::min(row, count - 1)];
  for (int64_t key = 0; key < keys; key += 2, k += 2 * stride) {
    // The last one of an odd number is computed twice.
    const auto* const second = key + 1 < keys ? k + stride : k;
    Vector sums[kRows][2];
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) sums[row][0] = sums[row][1] = hn::Zero(D());
    for (int64_t i = 0; i < depth; i += kLanes) {
      __builtin_prefetch(k + kKeysAhead * stride + i);
      __builtin_prefetch(second + kKeysAhead * stride + i);
      for (int part = 0; part < kParts<Stored>; ++part) {
        const Vector a = load_part<Stored>(k + i, part), b = load_part<Stored>(second + i, part);
#pragma GCC unroll 4
        for (int row = 0; row < kRows; ++row) {
          const Vector q = hn::LoadU(D(), all[row] + part * depth + i);
          sums[row][0] = hn::MulAdd(q, a, sums[row][0]);
          sums[row][1] = hn::MulAdd(q, b, sums[row][1]);
        }
      }
    }
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) {
      if (row >= count) break;
      float* const to = scores + row * pitch + key;
      if (key + 1 < keys) to[1] = hn::GetLane(hn::SumOfLanes(D(), sums[row][1]));
      to[0] = hn::GetLane(hn::SumOfLanes(D(), sums[row][0]));
    }
  }
}

// kVectors of columns of v. count: of rows, kRows or fewer.
template <class Stored, int kRows, int kVectors>
void sums_of(const typename Stored::Element* v, int part, int64_t stride, int64_t keys,
             const float* weights, int64_t pitch, int count, float* y, int64_t y_pitch) {
  const float* all[kRows];
  for (int row = 0; row < kRows; ++row) all[row] = weights + std::min(row, count - 1) * pitch;
  Vector sums[kRows][kVectors];
#pragma GCC unroll 4
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) sums[row][i] = hn::Zero(D());
  for (int64_t key = 0; key < keys; ++key, v += stride) {
    Vector columns[kVectors];
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      __builtin_prefetch(v + kKeysAhead * stride + i * kLanes);
      columns[i] = load_part<Stored>(v + i * kLanes, part);
    }
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) {
      const Vector weight = hn::Set(D(), all[row][key]);
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i)
        sums[row][i] = hn::MulAdd(weight, columns[i], sums[row][i]);
    }
  }
#pragma GCC unroll 4
  for (int row = 0; row < kRows; ++row) {
    if (row >= count) break;
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i)
      hn::StoreU(sums[row][i], D(), y + row * y_pitch + i * kLanes);
  }
}

template <class Stored, int kRows>
void all_sums(const typename Stored::Element* v, int part, int64_t stride, int64_t keys,
              int64_t width, const float* weights, int64_t pitch, int count, float* y,
              int64_t y_pitch) {
  constexpr int kVectors = HWY_TARGET == HWY_AVX3 ? 4 : 2;
  int64_t column = 0;
  for (; column + kVectors * kLanes <= width; column += kVectors * kLanes)
    sums_of<Stored, kRows, kVectors>(v + column, part, stride, keys, weights, pitch, count,
                                     y + column, y_pitch);
  for (; column < width; column += kLanes) {
    // The last vector may overlap the one before, with the same sums.
    const int64_t at = std::max<int64_t>(std::min(column, width - kLanes), 0);
    sums_of<Stored, kRows, 1>(v + at, part, stride, keys, weights, pitch, count, y + at, y_pitch);
  }
}

// Calls f with the number of rows of the loop that `count` rows use. Only f32 has loops for 2 and 3
// rows, so that the code stays small.
template <class Stored, class F>
void for_row_count(int count, const F& f) {
  if (count == 1) return f(std::integral_constant<int, 1>());
  if constexpr (std::is_same_v<Stored, StoredF32>) {
    if (count == 2) return f(std::integral_constant<int, 2>());
    if (count == 3) return f(std::integral_constant<int, 3>());
  }
  f(std::integral_constant<int, 4>());
}

template <class Stored>
void few_scores(const std::byte* k, int64_t stride, int64_t keys, int64_t depth,
                const float* const* rows, int count, float* scores, int64_t pitch) {
  for_row_count<Stored>(count, [&](auto of_loop) {
    scores_of<Stored, decltype(of_loop)::value>(
        reinterpret_cast<const typename Stored::Element*>(k), stride, keys, depth, rows, count,
        scores, pitch);
  });
}

template <class Stored>
void few_sums(const std::byte* v, int part, int64_t stride, int64_t keys, int64_t width,
              const float* weights, int64_t pitch, int count, float* y, int64_t y_pitch) {
  for_row_count<Stored>(count, [&](auto of_loop) {
    all_sums<Stored, decltype(of_loop)::value>(reinterpret_cast<const typename Stored::Element*>(v),
                                               part, stride, keys, width, weights, pitch, count, y,
                                               y_pitch);
  });
}

}  // namespace

FewRows few_rows_of(DataType matrix) {
  switch (matrix) {
    case DataType::kF16:
      return {few_scores<StoredF16>, few_sums<StoredF16>};
    case DataType::kBF16:
      return {few_scores<StoredBf16>, few_sums<StoredBf16>};
    case DataType::kI8:
      return {few_scores<StoredI8>, few_sums<StoredI8>};
    case DataType::kU8:
      return {few_scores<StoredBits>, few_sums<StoredBits>};
    default:
      return {few_scores<StoredF32>, few_sums<StoredF32>};
  }
}

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anneal::cpu {

FewRows few_rows(Isa isa, DataType matrix) { return ANNEAL_BY_ISA(isa, few_rows_of)(matrix); }

}  // namespace anneal::cpu
#endif
