#include "anneal/optimizer/precision/round_weights.h"

#include "anneal/kernels/cpu/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/optimizer/precision/round_weights.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "anneal/core/float16.h"
#include "anneal/core/new_tensor.h"
#include "anneal/core/parallel.h"
#include "anneal/kernels/cpu/base/transpose_square.h"
#include "anneal/optimizer/precision/half_weights.h"
// In this order, which formatting must not change:
#include "anneal/kernels/cpu/program/tape_math-inl.h"
//
#include "anneal/kernels/cpu/program/vector_lanes-inl.h"

#ifndef ANNEAL_ROUNDED_CHANNELS
#define ANNEAL_ROUNDED_CHANNELS
namespace anneal {
namespace {

// The weight of the squared sum of errors against the sum of squared errors, for a channel and for
// each of its windows: the part that inputs have in common against the part of each input. After a
// ReLU the square of the mean is about half of the variance, more in pictures, whose neighbours are
// alike. Between a half and 4 the results differ little.
constexpr double kCommon = 1, kWithinWindow = 1;
// A weight may be turned to its other neighbour if the square of its error grows by no more than
// this, in units in the last place: first those in the middle, which cost nothing.
constexpr std::array kCosts = {0.125, 0.25, 0.5, 1.0};

// The next number of f16 or bf16 of larger or smaller magnitude. REQUIRES: the number is one of the
// type and finite; it is not zero unless the magnitude grows.
float neighbour(float number, bool is_longer, DataType half) {
  const auto bits = std::bit_cast<uint32_t>(number);
  const bool is_f16 = half == DataType::kF16;
  if (is_f16 && (bits & 0x7fffffff) <= kLeastNormalF16) {
    const uint16_t short_bits = to_f16(number).bits;
    return to_f32(Float16{static_cast<uint16_t>(is_longer ? short_bits + 1 : short_bits - 1)});
  }
  const uint32_t unit = is_f16 ? 0x2000 : 0x10000;
  // Without a branch: half of the calls ask for each direction.
  const uint32_t found = bits + unit - 2 * unit * static_cast<uint32_t>(!is_longer);
  constexpr uint32_t kLargestF16 = 0x477fe000;
  if (is_f16 && (found & 0x7fffffff) > kLargestF16) return std::numeric_limits<float>::infinity();
  return std::bit_cast<float>(found);  // infinity behind the largest one of bf16
}

// The numbers of f16 or bf16 among those of f32, as bits.
struct Grid {
  explicit Grid(DataType half_type) : half(half_type), is_f16(half == DataType::kF16) {}
  DataType half;
  bool is_f16;
  int zeros = is_f16 ? 13 : 16;  // the last bits of each
  uint32_t unit = 1U << zeros;
  // Magnitudes from `least` to `end`: their neighbours are normal numbers, `unit` apart.
  int32_t least = is_f16 ? static_cast<int32_t>(kLeastNormalF16 + unit) : 0;
  int32_t end = is_f16 ? 0x477f0000 : 0x7f000000;
};

struct Choices {
  float nearest, step;  // what a weight is rounded to, and how far its other neighbour is from that
};
Choices choices_of(float weight, DataType half) {
  const float nearest = in_half(weight, half);
  if (nearest == weight || !std::isfinite(nearest)) return {nearest, 0};
  const float other = neighbour(nearest, std::abs(nearest) < std::abs(weight), half);
  return {nearest, std::isfinite(other) ? other - nearest : 0};
}

// Columns, as channels, are rounded in groups: the more, the more of a page each row of them is,
// but their numbers shall stay in the second-level cache.
constexpr int64_t kFewColumns = 32, kMostColumns = 128;
constexpr int64_t kNumbersAtOnce = 1 << 18;
int64_t columns_at_once(int64_t rows) {
  return std::clamp(kNumbersAtOnce / rows / kFewColumns * kFewColumns, kFewColumns, kMostColumns);
}
// Rows of columns that are fetched ahead: the hardware does not see strides of several pages.
constexpr size_t kRowsAhead = 8;

constexpr int32_t kSign = std::numeric_limits<int32_t>::min();
constexpr int32_t kInfinity = 0x7f800000;  // as the bits of f32
// Signed, since vectors of SSE2 compare signed numbers only.
constexpr int32_t magnitude_of(uint32_t bits) { return static_cast<int32_t>(bits) & ~kSign; }
// All bits, or none.
constexpr int32_t mask(bool is_set) { return -static_cast<int32_t>(is_set); }

// Channels [begin, end) of those of all matrices, in groups of `at_once`, go to `rounded`, which
// has the weights' layout.
struct ChannelsToRound {
  std::span<const float> weights;
  const ChannelWeights& layout;
  DataType half, stored;
  int64_t at_once;
  std::byte* rounded;
};

}  // namespace
}  // namespace anneal
#endif

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Rounds the weights of an output channel: some windows of `inner` weights each. Its loops over
// blocks have no branches, for the compiler's vectors.
class ChannelRounder {
 public:
  ChannelRounder(size_t windows, size_t inner, DataType half)
      : grid_(half),
        inner_(inner),
        of_windows_(inner == 1 ? 0 : windows),
        quiet_sums_((windows * inner + kBlock - 1) / kBlock),
        step_(room() + kLargestVector),
        error_(room() + kLargestVector) {}

  // Numbers of a channel that round() reads: those behind the weights are zeros.
  size_t room() const { return quiet_sums_.size() * kBlock; }

  // The weights become their rounded numbers.
  void round(float* weights) {
    numbers_ = weights;
    double sum = 0;
    for (size_t block = 0; block < quiet_sums_.size(); ++block) sum += take_nearest(block);
    if (inner_ == 1) return round_single(sum);
    for (size_t window = 0; window < of_windows_.size(); ++window) {
      of_windows_[window] = 0;
      for (size_t k = window * inner_; k < (window + 1) * inner_; ++k)
        of_windows_[window] += double{error_[k]};
    }
    for (const double most : kCosts)
      for (size_t window = 0; window < of_windows_.size(); ++window)
        round_window(window, sum, most);
  }

 private:
  static constexpr size_t kBlock = 64;
  static constexpr size_t kLargestVector =
      16;  // of f32: the last window may be read beyond its end

  // Returns the sum of the block's errors.
  double take_nearest(size_t block) {
    float* const numbers = numbers_ + block * kBlock;
    uint32_t weights[kBlock], nearest[kBlock];
    float step[kBlock], error[kBlock];
    std::memcpy(weights, numbers, sizeof weights);
    int32_t outside = 0;
    for (size_t k = 0; k < kBlock; ++k) {
      const uint32_t bits = weights[k];
      const int32_t magnitude = magnitude_of(bits);
      outside |= mask(magnitude < grid_.least) | mask(magnitude >= grid_.end);
      // Halfway between two numbers, the even one.
      nearest[k] = (bits + (grid_.unit / 2 - 1) + (bits >> grid_.zeros & 1)) & ~(grid_.unit - 1);
    }
    for (size_t k = 0; k < kBlock; ++k) {
      const auto off = static_cast<int32_t>(weights[k] - nearest[k]);
      const auto taken = std::bit_cast<float>(nearest[k]);
      const auto other =
          std::bit_cast<float>(off > 0 ? nearest[k] + grid_.unit : nearest[k] - grid_.unit);
      step[k] = std::bit_cast<float>(std::bit_cast<int32_t>(other - taken) & mask(off != 0));
      error[k] = taken - std::bit_cast<float>(weights[k]);
    }
    std::memcpy(numbers, nearest, sizeof nearest);
    for (size_t k = 0; outside != 0 && k < kBlock; ++k) {
      const int32_t magnitude = magnitude_of(weights[k]);
      if (magnitude >= grid_.least && magnitude < grid_.end) continue;
      const auto weight = std::bit_cast<float>(weights[k]);
      const Choices choices = choices_of(weight, grid_.half);
      numbers[k] = choices.nearest;
      step[k] = choices.step;
      error[k] = std::isfinite(choices.nearest) ? choices.nearest - weight : 0;
    }
    std::memcpy(step_.data() + block * kBlock, step, sizeof step);
    std::memcpy(error_.data() + block * kBlock, error, sizeof error);
    return sum_of_block(error);
  }

  // By as many sums as vectors have lanes of f64, which do not wait for each other.
  static double sum_of_block(const float (&numbers)[kBlock]) {
    constexpr size_t kSums = 8;
    double sums[kSums] = {};
    for (size_t k = 0; k < kBlock; k += kSums)
      for (size_t i = 0; i < kSums; ++i) sums[i] += double{numbers[k + i]};
    return ((sums[0] + sums[4]) + (sums[1] + sums[5])) +
           ((sums[2] + sums[6]) + (sums[3] + sums[7]));
  }

  // The change of all squares by a turn. The square of a sum of errors grows by
  // step * (2 * sum + step).
  static double growth(double step, double error, double of_window, double sum) {
    const double sums = error + kWithinWindow * of_window + kCommon * sum;
    return step * (2 * sums + (1 + kWithinWindow + kCommon) * step);
  }

  // Of a block of a channel with windows of one weight each: none is turned while the magnitude of
  // the sum of the channel's errors is at most this.
  float quiet_sum(size_t block) const {
    const float* const steps = step_.data() + block * kBlock;
    const float* const errors = error_.data() + block * kBlock;
    int32_t least = kInfinity;  // of numbers as bits, any of the negative ones if there are some
    for (size_t k = 0; k < kBlock; ++k) {
      // growth() is 0 for this sum, if both have the sign of the step. The margin is more than
      // rounding errors.
      const auto step = std::bit_cast<int32_t>(steps[k]);
      const auto error = std::bit_cast<float>(std::bit_cast<int32_t>(errors[k]) ^ (step & kSign));
      const auto size = std::bit_cast<float>(step & ~kSign);
      const auto quiet = std::bit_cast<int32_t>(2 * error + (1.5F - 0x1p-20F) * size);
      const int32_t has_step = mask((step & ~kSign) != 0);
      least = std::min(least, (quiet & has_step) | (kInfinity & ~has_step));
    }
    return std::bit_cast<float>(least);
  }

  void round_window(size_t window, double& sum, double most) {
    const size_t end = (window + 1) * inner_, lanes = hn::Lanes(hn::ScalableTag<double>());
    for (size_t first = window * inner_; first < end; first += lanes)
      for (size_t k = first; k < std::min(first + lanes, end); ++k) {
        k = first_better<false>(first, k, of_windows_[window], sum, most);
        if (k < end) turn_if_better(k, of_windows_[window], sum, most);
      }
  }

  // The first weight from `begin` on, of the vector from `first` on, that turn_if_better() turns,
  // by the same arithmetic. Else the one behind the vector, or more. kIsSingle: windows of one
  // weight, whose sum is the weight's error.
  template <bool kIsSingle>
  size_t first_better(size_t first, size_t begin, double of_window, double sum, double most) const {
    const hn::ScalableTag<double> d;
    const hn::Rebind<float, decltype(d)> of_floats;
    const auto step = hn::PromoteTo(d, hn::LoadU(of_floats, &step_[first]));
    const auto error = hn::PromoteTo(d, hn::LoadU(of_floats, &error_[first]));
    const auto two = hn::Set(d, 2);
    const auto within =
        kIsSingle ? hn::Set(d, kWithinWindow) * error : hn::Set(d, kWithinWindow * of_window);
    const auto sums = error + within + hn::Set(d, kCommon * sum);
    const auto all = step * (two * sums + hn::Set(d, 1 + kWithinWindow + kCommon) * step);
    const auto own = step * (two * error + step);
    const auto is_better = hn::And(all < hn::Zero(d), own <= hn::Set(d, most) * step * step);
    const auto found = hn::FindFirstTrue(d, hn::AndNot(hn::FirstN(d, begin - first), is_better));
    return found < 0 ? first + hn::Lanes(d) : first + static_cast<size_t>(found);
  }

  void round_single(double sum) {
    for (size_t block = 0; block < quiet_sums_.size(); ++block)
      quiet_sums_[block] = quiet_sum(block);
    for (const double most : kCosts)
      for (size_t block = 0; block < quiet_sums_.size(); ++block) {
        // The sum becomes small after a few turns, and few blocks have weights to turn.
        if (std::abs(sum) <= double{quiet_sums_[block]}) continue;
        const double before = sum;
        const size_t end = (block + 1) * kBlock, lanes = hn::Lanes(hn::ScalableTag<double>());
        for (size_t first = block * kBlock; first < end; first += lanes)
          for (size_t k = first; k < first + lanes; ++k) {
            k = first_better<true>(first, k, 0, sum, most);
            if (k == first + lanes) break;
            double of_window = error_[k];
            turn_if_better(k, of_window, sum, most);
          }
        if (sum != before) quiet_sums_[block] = quiet_sum(block);
      }
  }

  void turn_if_better(size_t k, double& of_window, double& sum, double most) {
    const double step = step_[k], error = error_[k];
    if (growth(step, error, of_window, sum) >= 0) return;
    if (step * (2 * error + step) > most * step * step) return;
    numbers_[k] = std::copysign(numbers_[k] + step_[k], numbers_[k]);  // also of zero
    error_[k] += step_[k];
    step_[k] = -step_[k];
    of_window += step;
    sum += step;
  }

  const Grid grid_;
  const size_t inner_;
  std::vector<double> of_windows_;  // sums of errors
  std::vector<float> quiet_sums_;   // by block
  // How far a weight's other neighbour is, and the error of what is taken. These differences are
  // numbers of f32, but for weights far below the least number of f16.
  std::vector<float> step_, error_;
  float* numbers_ = nullptr;  // what the weights have become
};

// Groups of channels; all channels have as many windows.
class Channels {
 public:
  explicit Channels(const ChannelsToRound& work)
      : work_(work),
        inner_(static_cast<size_t>(work.layout.inner)),
        windows_(windows_of(work.layout, 0, 0)),
        rounder_(windows_.count, inner_, work.half),
        // Not a multiple of a page: the channels' numbers lie in different sets of a cache.
        pitch_(rounder_.room() + 16) {}

  // Rounds `count` channels from number `first` on.
  void round(int64_t first, int64_t count) {
    begins_.clear();
    for (int64_t channel = first; channel < first + count; ++channel)
      begins_.push_back(windows_of(work_.layout, channel / work_.layout.written_count,
                                   channel % work_.layout.written_count)
                            .begin);
    numbers_.resize(std::max(numbers_.size(), begins_.size() * pitch_));
    const bool are_columns = inner_ == 1 && are_adjacent();
    are_columns ? take_columns() : take_windows();
    for (size_t c = 0; c < begins_.size(); ++c) rounder_.round(numbers_of(c));
    are_columns ? store_columns() : store_windows();
  }

 private:
  static constexpr size_t kSide = 4;  // of the squares that are transposed
  static constexpr size_t kNumbersOfALine = 16;

  float* numbers_of(size_t channel) { return numbers_.data() + channel * pitch_; }

  bool are_adjacent() const {
    for (size_t c = 0; c < begins_.size(); ++c)
      if (begins_[c] != begins_[0] + c) return false;
    return true;
  }

  // Calls f(at, numbers) for each window: its place in the tensor, and its numbers.
  template <class F>
  void for_each_window(F&& f) {
    for (size_t c = 0; c < begins_.size(); ++c)
      for (size_t window = 0; window < windows_.count; ++window)
        f(begins_[c] + window * windows_.stride, numbers_of(c) + window * inner_);
  }
  void take_windows() {
    for_each_window([&](size_t at, float* numbers) {
      std::memcpy(numbers, &work_.weights[at], inner_ * sizeof(float));
    });
  }
  void store_windows() {
    for_each_window([&](size_t at, const float* numbers) { store(numbers, inner_, at); });
  }

  // Calls square(row, channel) for the squares of 4 rows and 4 channels, then one(row, channel) for
  // the rest, and done(row, rows) after each 4 rows.
  template <class Square, class One, class Done>
  void for_each_square(Square&& square, One&& one, Done&& done) {
    const size_t channels = begins_.size(), whole = channels / kSide * kSide;
    for (size_t row = 0; row < windows_.count; row += kSide) {
      const size_t rows = std::min(kSide, windows_.count - row);
      const size_t in_squares = rows == kSide ? whole : 0;
      for (size_t c = 0; c < in_squares; c += kSide) square(row, c);
      for (size_t i = row; i < row + rows; ++i)
        for (size_t c = in_squares; c < channels; ++c) one(i, c);
      done(row, rows);
    }
  }
  size_t begin_of_row(size_t row) const { return begins_[0] + row * windows_.stride; }
  void take_columns() {
    const std::span<const float> weights = work_.weights;
    for_each_square(
        [&](size_t row, size_t c) {
          transpose_square(&weights[begin_of_row(row) + c], static_cast<int64_t>(windows_.stride),
                           numbers_of(c) + row, static_cast<int64_t>(pitch_));
        },
        [&](size_t row, size_t c) { numbers_of(c)[row] = weights[begin_of_row(row) + c]; },
        [&](size_t row, size_t rows) {
          for (size_t i = 0; i < rows; ++i)
            for (size_t c = 0; c < begins_.size(); c += kNumbersOfALine)
              if (const size_t ahead = begin_of_row(row + i + kRowsAhead) + c;
                  ahead < weights.size())
                __builtin_prefetch(&weights[ahead]);
        });
  }
  void store_columns() {
    HWY_ALIGN float rows[kSide][kMostColumns];
    for_each_square(
        [&](size_t row, size_t c) {
          transpose_square(numbers_of(c) + row, static_cast<int64_t>(pitch_), &rows[0][c],
                           kMostColumns);
        },
        [&](size_t row, size_t c) { rows[row % kSide][c] = numbers_of(c)[row]; },
        [&](size_t row, size_t count) {
          for (size_t i = 0; i < count; ++i) store(rows[i], begins_.size(), begin_of_row(row + i));
        });
  }

  void store(const float* numbers, size_t count, size_t at) const {
    if (work_.stored == DataType::kF32) {
      std::memcpy(work_.rounded + at * sizeof(float), numbers, count * sizeof(float));
      return;
    }
    auto* const to = reinterpret_cast<uint16_t*>(work_.rounded) + at;
    constexpr size_t kLanes = HWY_LANES(float);
    const hn::ScalableTag<float> d;
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      const auto lanes = hn::LoadU(d, numbers + i);
      if (work_.half == DataType::kF16)
        narrow_f16(d, lanes, reinterpret_cast<Float16*>(to + i));
      else
        narrow_bf16(d, lanes, to + i);
    }
    for (; i < count; ++i) to[i] = half_bits(numbers[i], work_.half);
  }

  const ChannelsToRound& work_;
  const size_t inner_;
  const ChannelWindows windows_;  // of the first channel; the others have as many, as far apart
  ChannelRounder rounder_;
  const size_t pitch_;
  std::vector<size_t> begins_;  // of the channels, in the tensor
  std::vector<float> numbers_;  // of each channel, with zeros behind
};

}  // namespace

void round_channels(const ChannelsToRound& work, int64_t begin, int64_t end) {
  Channels channels(work);
  for (int64_t first = begin; first < end; first += work.at_once)
    channels.round(first, std::min(end - first, work.at_once));
}

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anneal::cpu {
namespace {

auto channel_rounder() { return ANNEAL_BY_ISA(current_isa(), round_channels); }

}  // namespace
}  // namespace anneal::cpu

namespace anneal {
namespace {

// Channels of more weights gain little by a scale.
constexpr size_t kFewWeights = 64;

// To 12 digits, so that its products with numbers of 8 digits, or 11, are exact.
double to_12_digits(double value) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, 12)), exponent - 12);
}

double scale_for(std::span<const float> channel, DataType half) {
  double most = 0;
  for (const float weight : channel) most = std::max(most, std::abs(double{weight}));
  // Beyond these, what is divided, or multiplied again, could leave f32's normal numbers.
  if (most < 0x1p-100 || most > 0x1p100) return 1;
  const auto error = [&](double scale) {
    double squares = 0;
    for (const float weight : channel) {
      const auto divided = static_cast<float>(weight / scale);
      const double off = in_half(divided, half) * scale - weight;
      squares += off * off;
    }
    return squares;
  };
  double best = 1, least = error(1) / 2;
  const int digits = half == DataType::kF16 ? 11 : 8;
  const int end = 1 << digits;
  // The largest weight becomes each of the numbers that there are between a power of two and the
  // next.
  for (int largest = end / 2; largest < end; ++largest) {
    const double scale = to_12_digits(most / largest);
    if (const double found = error(scale); found < least) {
      least = found;
      best = scale;
    }
  }
  return best;
}

}  // namespace

Tensor round_weights(const Tensor& weights, const ChannelWeights& layout, DataType half,
                     int threads, DataType stored) {
  NewTensor fresh = allocate_tensor(stored, weights.dims());
  const ChannelsToRound work{.weights = weights.as<float>(),
                             .layout = layout,
                             .half = half,
                             .stored = stored,
                             .at_once = layout.writes.adds_j ? columns_at_once(layout.i_count) : 1,
                             .rounded = fresh.data.data()};
  const auto round = cpu::channel_rounder();
  ThreadTeam team(threads > 0 ? threads : hardware_threads());
  team.for_ranges(layout.outer * layout.written_count, work.at_once,
                  [&](int64_t begin, int64_t end) { round(work, begin, end); });
  return fresh.tensor;
}

std::vector<double> weight_scales(const Tensor& weights, const ChannelWeights& layout,
                                  DataType half, bool may_be_ones) {
  const auto inner = static_cast<size_t>(layout.inner);
  std::vector<double> scales;
  if (layout.outer != 1) return scales;
  for (int64_t written = 0; written < layout.written_count; ++written) {
    const ChannelWindows windows = windows_of(layout, 0, written);
    if (windows.count * inner > kFewWeights) return {};
    std::vector<float> channel;
    for (size_t window = 0; window < windows.count; ++window) {
      const std::span<const float> of_window =
          weights.as<float>().subspan(windows.begin + window * windows.stride, inner);
      channel.insert(channel.end(), of_window.begin(), of_window.end());
    }
    const auto fits = [half](float weight) { return std::isfinite(in_half(weight, half)); };
    if (!std::ranges::all_of(channel, fits)) return {};
    scales.push_back(scale_for(channel, half));
  }
  const bool are_ones = std::ranges::all_of(scales, [](double scale) { return scale == 1; });
  return are_ones && !may_be_ones ? std::vector<double>() : scales;
}

}  // namespace anneal
#endif
