#include "anneal/optimizer/precision/constant_statistics.h"

#include "anneal/kernels/cpu/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/optimizer/precision/constant_statistics.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <mutex>
#include <numeric>

#include "anneal/core/float16.h"
// In this order, which formatting must not change:
#include "anneal/kernels/cpu/program/tape_math-inl.h"
//
#include "anneal/kernels/cpu/program/vector_lanes-inl.h"

#ifndef ANNEAL_CHANNEL_SUMS
#define ANNEAL_CHANNEL_SUMS
namespace anneal {
namespace {

// The sums of channels beside each other, to which rows of weights are added, one to each sum; or
// parts of the sums of one channel. A whole vector fits behind the last one.
struct NormSums {
  std::vector<double> magnitudes, squares, sums;
  float most = 0;
  bool is_integer = true;
};
struct LossSums {
  DataType half = DataType::kF16;
  std::vector<float> most = {};
  std::vector<double> squares = {}, lost = {};
};

}  // namespace
}  // namespace anneal
#endif

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Doubles = hn::ScalableTag<double>;
using Floats = hn::Rebind<float, Doubles>;  // as many

// Calls f(i, weights) for vectors of a row. Behind the last weight are zeros.
template <class F>
HWY_INLINE void for_weights(std::span<const float> row, F&& f) {
  constexpr size_t kLanes = HWY_LANES(double);
  size_t i = 0;
  for (; i + kLanes <= row.size(); i += kLanes) f(i, hn::LoadU(Floats(), &row[i]));
  if (i == row.size()) return;
  HWY_ALIGN float rest[kLanes] = {};
  std::copy(row.begin() + static_cast<std::ptrdiff_t>(i), row.end(), rest);
  f(i, hn::Load(Floats(), rest));
}

template <class V>
HWY_INLINE V finite_or_zero(V weights) {
  return hn::IfThenElseZero(hn::IsFinite(weights), weights);
}

template <class V>
HWY_INLINE void add_to(double* sums, V values) {
  const Doubles d;
  hn::StoreU(hn::Add(hn::LoadU(d, sums), values), d, sums);
}

// Sets `fractions` where a number has one.
template <class V>
HWY_INLINE void note_fractions(V numbers, V& fractions) {
  const auto is_whole = hn::Eq(numbers, hn::Floor(numbers));
  fractions = hn::IfThenElse(is_whole, fractions, hn::Set(Floats(), 1.0F));
}
template <class V>
HWY_INLINE bool are_zero(V lanes) {
  return hn::AllTrue(Floats(), hn::Eq(lanes, hn::Zero(Floats())));
}

}  // namespace

void widen_range(std::span<const float> numbers, FloatRange& range) {
  const Floats d;
  auto least = hn::Set(d, range.least), most = hn::Set(d, range.most), fractions = hn::Zero(d);
  const auto widen = [&](auto lanes) HWY_ATTR {
    const auto known = hn::IfThenZeroElse(hn::IsNaN(lanes), lanes);
    least = hn::Min(least, known);
    most = hn::Max(most, known);
    note_fractions(known, fractions);
  };
  constexpr size_t kLanes = HWY_LANES(double);
  size_t i = 0;
  for (; i + kLanes <= numbers.size(); i += kLanes) widen(hn::LoadU(d, &numbers[i]));
  for (; i < numbers.size(); ++i) widen(hn::Set(d, numbers[i]));
  range.least = hn::GetLane(hn::MinOfLanes(d, least));
  range.most = hn::GetLane(hn::MaxOfLanes(d, most));
  range.is_integer = range.is_integer && are_zero(fractions);
}

void add_norms(std::span<const float> weights, NormSums& to) {
  const Floats df;
  const Doubles d;
  auto most = hn::Set(df, to.most);
  auto fractions = hn::Zero(df);
  for_weights(weights, [&](size_t i, auto row) HWY_ATTR {
    note_fractions(row, fractions);
    const auto finite = finite_or_zero(row);
    most = hn::Max(most, hn::Abs(finite));
    const auto wide = hn::PromoteTo(d, finite);
    add_to(&to.magnitudes[i], hn::Abs(wide));
    add_to(&to.squares[i], hn::Mul(wide, wide));
    add_to(&to.sums[i], wide);
  });
  to.most = hn::GetLane(hn::MaxOfLanes(df, most));
  to.is_integer = to.is_integer && are_zero(fractions);
}

void add_losses(std::span<const float> weights, LossSums& to) {
  const Floats df;
  const Doubles d;
  const bool is_f16 = to.half == DataType::kF16;
  for_weights(weights, [&](size_t i, auto row) HWY_ATTR {
    const auto finite = finite_or_zero(row);
    const auto rounded = is_f16 ? round_f16(df, finite) : round_bf16(df, finite);
    const auto wide = hn::PromoteTo(d, finite);
    const auto error = hn::Sub(wide, hn::PromoteTo(d, rounded));
    hn::StoreU(hn::Max(hn::LoadU(df, &to.most[i]), hn::Abs(finite)), df, &to.most[i]);
    add_to(&to.squares[i], hn::Mul(wide, wide));
    add_to(&to.lost[i], hn::Mul(error, error));
  });
}

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anneal::cpu {
namespace {

auto range_widener() { return ANNEAL_BY_ISA(current_isa(), widen_range); }
auto norms_adder() { return ANNEAL_BY_ISA(current_isa(), add_norms); }
auto losses_adder() { return ANNEAL_BY_ISA(current_isa(), add_losses); }

}  // namespace
}  // namespace anneal::cpu

namespace anneal {
namespace {

// Parts of the sum of one channel: independent of the vectors' length, so that every instruction
// set gives the same sums.
constexpr size_t kParts = 64;
constexpr size_t kRoom = 8;  // lanes of the longest vector

void clear(NormSums& row, size_t count) {
  for (auto* sums : {&row.magnitudes, &row.squares, &row.sums}) sums->assign(count + kRoom, 0);
}
void clear(LossSums& row, size_t count) {
  row.most.assign(count + kRoom, 0);
  for (auto* sums : {&row.squares, &row.lost}) sums->assign(count + kRoom, 0);
}

void join(std::vector<double>& parts) { parts[0] = std::reduce(parts.begin(), parts.end()); }
void join_parts(NormSums& row) {
  for (auto* sums : {&row.magnitudes, &row.squares, &row.sums}) join(*sums);
}
void join_parts(LossSums& row) {
  row.most[0] = *std::ranges::max_element(row.most);
  for (auto* sums : {&row.squares, &row.lost}) join(*sums);
}

// Adds each channel's weights to a row by add(weights, row), and calls store(matrix, channel, row,
// i) for its sums, those at i. For a part of the channels, [begin, end).
template <class Row, class Add, class Store>
void sum_channels(std::span<const float> weights, const ChannelWeights& layout, int64_t begin,
                  int64_t end, Row& row, Add add, Store store) {
  const bool are_columns = layout.writes.adds_j && layout.writes.factor == 0 && layout.inner == 1;
  const auto inner = static_cast<size_t>(layout.inner);
  const auto columns = static_cast<size_t>(end - begin);
  for (int64_t matrix = 0; matrix < layout.outer; ++matrix) {
    if (are_columns) {
      const ChannelWindows windows = windows_of(layout, matrix, begin);
      clear(row, columns);
      for (size_t window = 0; window < windows.count; ++window)
        add(weights.subspan(windows.begin + window * windows.stride, columns), row);
      for (size_t i = 0; i < columns; ++i) store(matrix, begin + static_cast<int64_t>(i), row, i);
      continue;
    }
    for (int64_t channel = begin; channel < end; ++channel) {
      ChannelWindows windows = windows_of(layout, matrix, channel);
      const bool is_run = windows.stride == inner;
      const size_t length = is_run ? windows.count * inner : inner;
      clear(row, kParts);
      for (size_t window = 0; window < (is_run ? 1 : windows.count); ++window)
        for (size_t i = 0; i < length; i += kParts)
          add(weights.subspan(windows.begin + window * windows.stride + i,
                              std::min(kParts, length - i)),
              row);
      join_parts(row);
      store(matrix, channel, row, 0);
    }
  }
}

// All weights as one channel.
ChannelWeights one_channel(std::span<const float> weights) {
  ChannelWeights layout;
  layout.j_count = std::ssize(weights);
  layout.written_count = 1;
  return layout;
}

}  // namespace

FloatRange range_of_floats(std::span<const float> numbers) {
  FloatRange range;
  cpu::range_widener()(numbers, range);
  return range;
}

ChannelNorms channel_norms(std::span<const float> weights,
                           const std::optional<ChannelWeights>& layout, int threads) {
  const ChannelWeights channels = layout ? *layout : one_channel(weights);
  const auto count = static_cast<size_t>(channels.outer * channels.written_count);
  ChannelNorms norms{std::vector<double>(count), std::vector<double>(count),
                     std::vector<double>(count)};
  const auto add = cpu::norms_adder();
  std::mutex merging;
  for_written_channels(channels, threads, [&](int64_t begin, int64_t end) {
    NormSums row;
    sum_channels(weights, channels, begin, end, row, add,
                 [&](int64_t matrix, int64_t channel, const NormSums& of_row, size_t i) {
                   const auto at = static_cast<size_t>(matrix * channels.written_count + channel);
                   norms.magnitudes[at] = of_row.magnitudes[i];
                   norms.squares[at] = of_row.squares[i];
                   norms.sums[at] = of_row.sums[i];
                 });
    const std::lock_guard lock(merging);
    norms.most = std::max(norms.most, double{row.most});
    norms.is_integer = norms.is_integer && row.is_integer;
  });
  return norms;
}

ChannelLosses channel_losses(std::span<const float> weights,
                             const std::optional<ChannelWeights>& layout, DataType half,
                             int threads) {
  const ChannelWeights channels = layout ? *layout : one_channel(weights);
  const auto count = static_cast<size_t>(channels.written_count);
  ChannelLosses losses{std::vector<float>(count), std::vector<double>(count),
                       std::vector<double>(count)};
  const auto add = cpu::losses_adder();
  for_written_channels(channels, threads, [&](int64_t begin, int64_t end) {
    LossSums row{.half = half};
    sum_channels(weights, channels, begin, end, row, add,
                 [&](int64_t, int64_t channel, const LossSums& of_row, size_t i) {
                   const auto at = static_cast<size_t>(channel);
                   losses.most[at] = std::max(losses.most[at], of_row.most[i]);
                   losses.squares[at] += of_row.squares[i];
                   losses.lost[at] += of_row.lost[i];
                 });
  });
  return losses;
}

}  // namespace anneal
#endif
