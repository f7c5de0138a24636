#include "anneal/kernels/cpu/gemm/few_rows.h"

#include "anneal/kernels/cpu/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/kernels/cpu/gemm/few_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using Vector = hn::Vec<D>;
constexpr int64_t kLanes = HWY_LANES(float);
// Rows of a cache may lie far apart, where the CPU does not foresee the next one.
constexpr int64_t kKeysAhead = 16;

// Two keys at a time, so that sums hide each other's latency.
template <int kRows>
void scores_of(const float* k, int64_t stride, int64_t keys, int64_t depth,
               const float* const* rows, float* scores, int64_t pitch) {
  for (int64_t key = 0; key < keys; key += 2, k += 2 * stride) {
    // The last one of an odd number is computed twice.
    const float* const second = key + 1 < keys ? k + stride : k;
    Vector sums[kRows][2];
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) sums[row][0] = sums[row][1] = hn::Zero(D());
    for (int64_t i = 0; i < depth; i += kLanes) {
      __builtin_prefetch(k + kKeysAhead * stride + i);
      __builtin_prefetch(second + kKeysAhead * stride + i);
      const Vector a = hn::LoadU(D(), k + i), b = hn::LoadU(D(), second + i);
#pragma GCC unroll 4
      for (int row = 0; row < kRows; ++row) {
        const Vector q = hn::LoadU(D(), rows[row] + i);
        sums[row][0] = hn::MulAdd(q, a, sums[row][0]);
        sums[row][1] = hn::MulAdd(q, b, sums[row][1]);
      }
    }
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) {
      float* const to = scores + row * pitch + key;
      if (key + 1 < keys) to[1] = hn::GetLane(hn::SumOfLanes(D(), sums[row][1]));
      to[0] = hn::GetLane(hn::SumOfLanes(D(), sums[row][0]));
    }
  }
}

// kVectors of columns of v.
template <int kRows, int kVectors>
void sums_of(const float* v, int64_t stride, int64_t keys, const float* weights, int64_t pitch,
             float* y, int64_t y_pitch) {
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
      columns[i] = hn::LoadU(D(), v + i * kLanes);
    }
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) {
      const Vector weight = hn::Set(D(), weights[row * pitch + key]);
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i)
        sums[row][i] = hn::MulAdd(weight, columns[i], sums[row][i]);
    }
  }
#pragma GCC unroll 4
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i)
      hn::StoreU(sums[row][i], D(), y + row * y_pitch + i * kLanes);
}

template <int kRows>
void all_sums(const float* v, int64_t stride, int64_t keys, int64_t width, const float* weights,
              int64_t pitch, float* y, int64_t y_pitch) {
  constexpr int kVectors = HWY_TARGET == HWY_AVX3 ? 4 : 2;
  int64_t column = 0;
  for (; column + kVectors * kLanes <= width; column += kVectors * kLanes)
    sums_of<kRows, kVectors>(v + column, stride, keys, weights, pitch, y + column, y_pitch);
  for (; column < width; column += kLanes) {
    // The last vector may overlap the one before, with the same sums.
    const int64_t at = std::max<int64_t>(std::min(column, width - kLanes), 0);
    sums_of<kRows, 1>(v + at, stride, keys, weights, pitch, y + at, y_pitch);
  }
}

}  // namespace

void few_scores(const float* k, int64_t stride, int64_t keys, int64_t depth,
                const float* const* rows, int count, float* scores, int64_t pitch) {
  switch (count) {
    case 1:
      return scores_of<1>(k, stride, keys, depth, rows, scores, pitch);
    case 2:
      return scores_of<2>(k, stride, keys, depth, rows, scores, pitch);
    case 3:
      return scores_of<3>(k, stride, keys, depth, rows, scores, pitch);
    default:
      return scores_of<4>(k, stride, keys, depth, rows, scores, pitch);
  }
}

void few_sums(const float* v, int64_t stride, int64_t keys, int64_t width, const float* weights,
              int64_t pitch, int count, float* y, int64_t y_pitch) {
  switch (count) {
    case 1:
      return all_sums<1>(v, stride, keys, width, weights, pitch, y, y_pitch);
    case 2:
      return all_sums<2>(v, stride, keys, width, weights, pitch, y, y_pitch);
    case 3:
      return all_sums<3>(v, stride, keys, width, weights, pitch, y, y_pitch);
    default:
      return all_sums<4>(v, stride, keys, width, weights, pitch, y, y_pitch);
  }
}

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anneal::cpu {

FewRows few_rows(Isa isa) { return {ANNEAL_BY_ISA(isa, few_scores), ANNEAL_BY_ISA(isa, few_sums)}; }

}  // namespace anneal::cpu
#endif
