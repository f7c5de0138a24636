#include "anneal/optimizer/precision/round_weights.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "anneal/core/float16.h"
#include "anneal/core/new_tensor.h"
#include "anneal/core/parallel.h"
#include "anneal/optimizer/precision/half_weights.h"

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

// Columns, as channels, are rounded in groups of this size: a row of them is two lines of the
// cache.
constexpr int64_t kColumnsAtOnce = 32;
// Rows of columns that are fetched ahead: the hardware does not see strides of several pages.
constexpr size_t kRowsAhead = 8;

constexpr int32_t kSign = std::numeric_limits<int32_t>::min();
constexpr int32_t kInfinity = 0x7f800000;  // as the bits of f32
// Signed, since vectors of SSE2 compare signed numbers only.
constexpr int32_t magnitude_of(uint32_t bits) { return static_cast<int32_t>(bits) & ~kSign; }
// All bits, or none.
constexpr int32_t mask(bool is_set) { return -static_cast<int32_t>(is_set); }

// Rounds the weights of an output channel: some windows of `inner` weights each. Its loops over
// blocks have no branches, for the compiler's vectors.
class ChannelRounder {
 public:
  ChannelRounder(size_t windows, size_t inner, DataType half)
      : grid_(half),
        inner_(inner),
        of_windows_(inner == 1 ? 0 : windows),
        quiet_sums_((windows * inner + kBlock - 1) / kBlock),
        step_(room()),
        error_(room()) {}

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
        for (size_t k = window * inner_; k < (window + 1) * inner_; ++k)
          turn_if_better(k, of_windows_[window], sum, most);
  }

 private:
  static constexpr size_t kBlock = 64;

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
    double sum = 0;
    for (const float each : error) sum += double{each};
    return sum;
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

  // Of windows of one weight each, whose sum is the weight's error.
  void round_single(double sum) {
    for (size_t block = 0; block < quiet_sums_.size(); ++block)
      quiet_sums_[block] = quiet_sum(block);
    for (const double most : kCosts)
      for (size_t block = 0; block < quiet_sums_.size(); ++block) {
        // The sum becomes small after a few turns, and few blocks have weights to turn.
        if (std::abs(sum) <= double{quiet_sums_[block]}) continue;
        const double before = sum;
        for (size_t k = block * kBlock; k < (block + 1) * kBlock; ++k) {
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

// Some channels of a tensor; all have as many windows.
class Channels {
 public:
  Channels(const ChannelWeights& layout, DataType half)
      : layout_(layout),
        half_(half),
        inner_(static_cast<size_t>(layout.inner)),
        windows_(windows_of(layout, 0, 0)),
        rounder_(windows_.count, inner_, half),
        // Not a multiple of a page: the channels' numbers lie in different sets of a cache.
        pitch_(rounder_.room() + 16) {}

  // Of `count` channels from number `first` on. T: float, or the bits of 16-bit numbers.
  template <class T>
  void round(int64_t first, int64_t count, std::span<const float> weights, T* rounded) {
    begins_.clear();
    for (int64_t channel = first; channel < first + count; ++channel)
      begins_.push_back(
          windows_of(layout_, channel / layout_.written_count, channel % layout_.written_count)
              .begin);
    numbers_.resize(std::max(numbers_.size(), begins_.size() * pitch_));
    for (size_t window = 0; window < windows_.count; ++window) {
      const size_t ahead = begins_[0] + (window + kRowsAhead) * windows_.stride;
      if (ahead < weights.size()) __builtin_prefetch(&weights[ahead]);
      for_each_channel(window, [&](size_t at, float* numbers) {
        for (size_t k = 0; k < inner_; ++k) numbers[k] = weights[at + k];
      });
    }
    for (size_t c = 0; c < begins_.size(); ++c) rounder_.round(numbers_.data() + c * pitch_);
    for (size_t window = 0; window < windows_.count; ++window)
      for_each_channel(window, [&](size_t at, const float* numbers) {
        for (size_t k = 0; k < inner_; ++k) rounded[at + k] = stored<T>(numbers[k]);
      });
  }

 private:
  template <class T>
  T stored(float number) const {
    if constexpr (std::is_same_v<T, float>)
      return number;
    else
      return half_bits(number, half_);
  }

  // Calls f(at, numbers) with the place of the channel's window in the tensor, and its numbers.
  template <class F>
  void for_each_channel(size_t window, F&& f) {
    const size_t beyond = window * windows_.stride, within = window * inner_;
    for (size_t c = 0; c < begins_.size(); ++c)
      f(begins_[c] + beyond, numbers_.data() + c * pitch_ + within);
  }

  const ChannelWeights& layout_;
  const DataType half_;
  const size_t inner_;
  const ChannelWindows windows_;  // of the first channel; the others have as many, as far apart
  ChannelRounder rounder_;
  const size_t pitch_;
  std::vector<size_t> begins_;  // of the channels, in the tensor
  std::vector<float> numbers_;  // of each channel, with zeros behind
};

template <class T>
void round_all(std::span<const float> weights, const ChannelWeights& layout, DataType half,
               int threads, T* rounded) {
  const int64_t at_once = layout.writes.adds_j ? kColumnsAtOnce : 1;
  ThreadTeam team(threads > 0 ? threads : hardware_threads());
  team.for_ranges(layout.outer * layout.written_count, at_once, [&](int64_t begin, int64_t end) {
    Channels channels(layout, half);
    for (int64_t first = begin; first < end; first += at_once)
      channels.round(first, std::min(end - first, at_once), weights, rounded);
  });
}

}  // namespace

Tensor round_weights(const Tensor& weights, const ChannelWeights& layout, DataType half,
                     int threads, DataType stored) {
  NewTensor fresh = allocate_tensor(stored, weights.dims());
  std::byte* const data = fresh.data.data();
  if (stored == DataType::kF32)
    round_all(weights.as<float>(), layout, half, threads, reinterpret_cast<float*>(data));
  else
    round_all(weights.as<float>(), layout, half, threads, reinterpret_cast<uint16_t*>(data));
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
