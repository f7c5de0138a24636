#include "anneal/kernels/cpu/recurrent/linear_columns.h"

#include "anneal/kernels/cpu/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/kernels/cpu/recurrent/linear_columns.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "anneal/core/integer.h"
#include "anneal/kernels/cpu/program/tape_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using LinearD = hn::ScalableTag<float>;
using LinearV = hn::Vec<LinearD>;
constexpr int64_t kLinearLanes = HWY_LANES(float);
constexpr int kVectors = kStateColumns / kLinearLanes;

HWY_INLINE LinearV linear_number(float x) { return hn::Set(LinearD(), x); }

constexpr int kMostPositions = 4;  // that go through the state together

// The vectors of columns that `positions` positions take at once: as many as have registers.
template <int positions>
constexpr int kAtOnce = positions == 1 ? kVectors : HWY_MIN(kVectors, 2);

// sums[t] = state' * vectors[t]
template <int positions>
HWY_NOINLINE void weigh(StateRows state, int64_t rows, const float* const (&vectors)[positions],
                        float (*sums)[kStateColumns]) {
  constexpr int kCount = kAtOnce<positions>;
  const LinearD d;
  const float* weights[positions];
  std::copy(vectors, vectors + positions, weights);
  for (int64_t first = 0; first < kStateColumns; first += kCount * kLinearLanes) {
    LinearV sum[positions][kCount];
#pragma GCC unroll 4
    for (int t = 0; t < positions; ++t)
#pragma GCC unroll 32
      for (int i = 0; i < kCount; ++i) sum[t][i] = hn::Zero(d);
    for (int64_t row = 0; row < rows; ++row) {
      const float* const from = state.data + row * state.pitch + first;
#pragma GCC unroll 4
      for (int t = 0; t < positions; ++t) {
        const LinearV weight = linear_number(weights[t][row]);
#pragma GCC unroll 32
        for (int i = 0; i < kCount; ++i)
          sum[t][i] = hn::MulAdd(weight, hn::LoadU(d, from + i * kLinearLanes), sum[t][i]);
      }
    }
#pragma GCC unroll 4
    for (int t = 0; t < positions; ++t)
#pragma GCC unroll 32
      for (int i = 0; i < kCount; ++i) hn::StoreU(sum[t][i], d, sums[t] + first + i * kLinearLanes);
  }
}

// to = from, each row times its factor, plus the products of vectors[t] and added[t]'.
template <int positions>
HWY_NOINLINE void update(StateRows from, StateRows to, int64_t rows,
                         const float* const (&vectors)[positions], PositionRows factors,
                         const float (*added)[kStateColumns]) {
  constexpr int kCount = kAtOnce<positions>;
  const LinearD d;
  const float* keys[positions];
  std::copy(vectors, vectors + positions, keys);
  for (int64_t first = 0; first < kStateColumns; first += kCount * kLinearLanes) {
    LinearV x[positions][kCount];
#pragma GCC unroll 4
    for (int t = 0; t < positions; ++t)
#pragma GCC unroll 32
      for (int i = 0; i < kCount; ++i) x[t][i] = hn::LoadU(d, added[t] + first + i * kLinearLanes);
    for (int64_t row = 0; row < rows; ++row) {
      const float* const read = from.data + row * from.pitch + first;
      float* const written = to.data + row * to.pitch + first;
      LinearV state[kCount];
#pragma GCC unroll 32
      for (int i = 0; i < kCount; ++i) {
        const LinearV factor = linear_number(factors.data[row * factors.step]);
        state[i] = hn::Mul(factor, hn::LoadU(d, read + i * kLinearLanes));
      }
#pragma GCC unroll 4
      for (int t = 0; t < positions; ++t) {
        const LinearV key = linear_number(keys[t][row]);
#pragma GCC unroll 32
        for (int i = 0; i < kCount; ++i) state[i] = hn::MulAdd(key, x[t][i], state[i]);
      }
#pragma GCC unroll 32
      for (int i = 0; i < kCount; ++i) hn::StoreU(state[i], d, written + i * kLinearLanes);
    }
  }
}

float product(const float* x, const float* y, int64_t count) {
  const LinearD d;
  LinearV even = hn::Zero(d), odd = even;
  int64_t i = 0;
  for (; i + 2 * kLinearLanes <= count; i += 2 * kLinearLanes) {
    even = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), even);
    odd = hn::MulAdd(hn::LoadU(d, x + i + kLinearLanes), hn::LoadU(d, y + i + kLinearLanes), odd);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
  for (; i < count; ++i) sum += x[i] * y[i];
  return sum;
}

// to += factor * x, and to = factor * x
void add_scaled(float factor, const float* x, float* to) {
  const LinearD d;
  for (int64_t i = 0; i < kStateColumns; i += kLinearLanes)
    hn::StoreU(hn::MulAdd(linear_number(factor), hn::LoadU(d, x + i), hn::LoadU(d, to + i)), d,
               to + i);
}
void scale(float factor, const float* x, float* to) {
  const LinearD d;
  for (int64_t i = 0; i < kStateColumns; i += kLinearLanes)
    hn::StoreU(hn::Mul(linear_number(factor), hn::LoadU(d, x + i)), d, to + i);
}

// Of `count` numbers of a vector of all columns.
HWY_INLINE void copy_columns(const float* from, float* to, int64_t count) {
  if (count == kStateColumns)
    scale(1, from, to);
  else
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
}

// Takes the state through the positions, several at a time where all rows have one decay, so that
// it is read and written less often. Position i then reads the state before the first position, and
// adds for each earlier position j the product of their vectors times what j adds to the state,
// each times the decays between.
class LinearRun {
 public:
  explicit LinearRun(const LinearColumns& columns) : columns_(columns), state_(columns.first) {}

  void run() {
    int64_t t = 0;
    if (!columns_.decay_is_by_row)
      for (; t + kMostPositions <= columns_.positions; t += kMostPositions)
        advance<kMostPositions>(t);
    for (; t < columns_.positions; ++t) advance<1>(t);
  }

 private:
  static const float* at(const PositionRows& of, int64_t t) { return of.data + t * of.step; }
  float decay(int64_t t) const {
    if (columns_.decay.data == nullptr || columns_.decay_is_by_row) return 1;
    return hn::GetLane(exp_f32(LinearD(), linear_number(*at(columns_.decay, t))));
  }

  template <int positions>
  void advance(int64_t t) {
    const int64_t rows = columns_.rows;
    float added[positions][kStateColumns], sums[positions][kStateColumns];
    const float *keys[positions], *weights[positions], *queries[positions];
    // all[i]: the decays of positions 0 to i; since[i][j]: of those behind j, up to i.
    float all[positions], since[positions][positions];
    for (int i = 0; i < positions; ++i) {
      keys[i] = at(columns_.k, t + i);
      queries[i] = at(columns_.q, t + i);
      const float own = decay(t + i);
      all[i] = i == 0 ? own : all[i - 1] * own;
      for (int j = 0; j < i; ++j) since[i][j] = since[i - 1][j] * own;
      since[i][i] = 1;
    }
    const auto weigh_by = [&](const float* const(&vectors)[positions]) {
      for (int i = 0; i < positions; ++i)
        weights[i] = columns_.decay_is_by_row ? faded(vectors[i]) : vectors[i];
      weigh<positions>(state_, rows, weights, sums);
    };
    if (columns_.decay_is_by_row) fade(t);
    if (columns_.beta.data != nullptr) weigh_by(keys);
    for (int i = 0; i < positions; ++i) {
      std::fill(added[i] + columns_.columns, added[i] + kStateColumns, 0.0F);
      copy_columns(at(columns_.v, t + i), added[i], columns_.columns);
      if (columns_.beta.data == nullptr) continue;
      add_scaled(-all[i], sums[i], added[i]);
      for (int j = 0; j < i; ++j)
        add_scaled(-since[i][j] * product(keys[i], keys[j], rows), added[j], added[i]);
      scale(*at(columns_.beta, t + i), added[i], added[i]);
    }
    float* y = columns_.y + t * columns_.y_step;
    for (int64_t reader = 0; reader < columns_.readers; ++reader) {
      weigh_by(queries);
      for (int i = 0; i < positions; ++i) {
        scale(all[i], sums[i], sums[i]);
        for (int j = 0; j <= i; ++j)
          add_scaled(since[i][j] * product(queries[i], keys[j], rows), added[j], sums[i]);
        scale(columns_.scale, sums[i], sums[i]);
        copy_columns(sums[i], y + i * columns_.y_step, columns_.columns);
        queries[i] += columns_.reader_step;
      }
      y += columns_.y_reader_step;
    }
    for (int j = 0; j + 1 < positions; ++j) scale(since[positions - 1][j], added[j], added[j]);
    const StateRows to = t + positions == columns_.positions ? columns_.last : columns_.between;
    const PositionRows factors = columns_.decay_is_by_row ? PositionRows{columns_.scratch, 1}
                                                          : PositionRows{&all[positions - 1], 0};
    update<positions>(state_, to, rows, keys, factors, added);
    state_ = to;
  }

  // The exponentials of the decays of all rows, in scratch memory.
  void fade(int64_t t) {
    const LinearD d;
    const int64_t rows = columns_.rows, padded = linear_columns_scratch(rows) / 2;
    float* const factors = columns_.scratch;
    std::memcpy(factors, at(columns_.decay, t), static_cast<size_t>(rows) * sizeof(float));
    std::fill(factors + rows, factors + padded, 0.0F);
    for (int64_t i = 0; i < padded; i += kLinearLanes)
      hn::StoreU(exp_f32(d, hn::LoadU(d, factors + i)), d, factors + i);
  }
  // x, number by number times these.
  const float* faded(const float* x) {
    const int64_t rows = columns_.rows;
    float* const to = columns_.scratch + linear_columns_scratch(rows) / 2;
    for (int64_t i = 0; i < rows; ++i) to[i] = columns_.scratch[i] * x[i];
    return to;
  }

  const LinearColumns& columns_;
  StateRows state_;  // before the next position
};

}  // namespace

void run_linear_columns(const LinearColumns& columns) { LinearRun(columns).run(); }

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anneal::cpu {

int64_t linear_columns_scratch(int64_t rows) { return 2 * align_up(rows, int64_t{16}); }

LinearColumnsFunction linear_columns(Isa isa) { return ANNEAL_BY_ISA(isa, run_linear_columns); }

}  // namespace anneal::cpu
#endif
