#include "anneal/optimizer/precision/round_weights.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <span>
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
  const auto found =
      std::bit_cast<float>(bits + unit - 2 * unit * static_cast<uint32_t>(!is_longer));
  return in_half(found, half);  // infinity behind the largest one of f16
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

// The weights of one output channel, being rounded.
class Channel {
 public:
  // Of `windows` windows of `inner` weights each.
  void resize(size_t windows, size_t inner) {
    inner_ = inner;
    of_windows_.resize(windows);
    taken_.resize(windows * inner);
    step_.resize(windows * inner);
    error_.resize(windows * inner);
  }
  // Weight k of the channel. It has a second choice, unless it is exact or that choice is infinite.
  void set(size_t k, float weight, DataType half) {
    const float nearest = in_half(weight, half);
    taken_[k] = nearest;
    step_[k] = error_[k] = 0;
    if (nearest == weight || !std::isfinite(nearest)) return;
    const float other = neighbour(nearest, std::abs(nearest) < std::abs(weight), half);
    if (std::isfinite(other)) step_[k] = other - nearest;
    error_[k] = double{nearest} - weight;
  }
  float rounded(size_t k) const { return taken_[k]; }

  void round() {
    double sum = 0;
    for (size_t window = 0; window < of_windows_.size(); ++window) {
      of_windows_[window] = 0;
      for (size_t k = window * inner_; k < (window + 1) * inner_; ++k) {
        of_windows_[window] += error_[k];
        sum += error_[k];
      }
    }
    for (const double most : kCosts)
      for (size_t window = 0; window < of_windows_.size(); ++window)
        for (size_t k = window * inner_; k < (window + 1) * inner_; ++k)
          turn_if_better(k, of_windows_[window], sum, most);
  }

 private:
  // The square of a sum of errors grows by step * (2 * sum + step).
  void turn_if_better(size_t k, double& of_window, double& sum, double most) {
    const double step = step_[k], error = error_[k];
    // This condition comes first: the sum becomes small after a few turns, and few weights pass.
    const double sums = error + kWithinWindow * of_window + kCommon * sum;
    if (step * (2 * sums + (1 + kWithinWindow + kCommon) * step) >= 0) return;
    if (step * (2 * error + step) > most * step * step) return;
    taken_[k] = std::copysign(taken_[k] + step_[k], taken_[k]);  // also of zero
    error_[k] += step;
    step_[k] = -step_[k];
    of_window += step;
    sum += step;
  }

  size_t inner_ = 1;
  std::vector<float> taken_, step_;  // what a weight has become, and how far its other neighbour is
  std::vector<double> error_, of_windows_;  // of what is taken; sums of errors
};

// Some channels of a tensor, from number `first` on; all have as many windows.
class Channels {
 public:
  Channels(const ChannelWeights& layout, int64_t first, int64_t count)
      : inner_(static_cast<size_t>(layout.inner)) {
    for (int64_t channel = first; channel < first + count; ++channel)
      windows_.push_back(
          windows_of(layout, channel / layout.written_count, channel % layout.written_count));
    channels_.resize(windows_.size());
    for (Channel& channel : channels_) channel.resize(windows_[0].count, inner_);
  }

  void round(std::span<const float> weights, std::span<float> rounded, DataType half) {
    for (size_t window = 0; window < windows_[0].count; ++window) {
      const size_t ahead = place(0, window + kRowsAhead);
      if (ahead < weights.size()) __builtin_prefetch(&weights[ahead]);
      for (size_t c = 0; c < channels_.size(); ++c)
        for (size_t k = 0; k < inner_; ++k)
          channels_[c].set(window * inner_ + k, weights[place(c, window) + k], half);
    }
    for (Channel& channel : channels_) channel.round();
    for (size_t window = 0; window < windows_[0].count; ++window)
      for (size_t c = 0; c < channels_.size(); ++c)
        for (size_t k = 0; k < inner_; ++k)
          rounded[place(c, window) + k] = channels_[c].rounded(window * inner_ + k);
  }

 private:
  size_t place(size_t channel, size_t window) const {
    return windows_[channel].begin + window * windows_[channel].stride;
  }

  size_t inner_;
  std::vector<ChannelWindows> windows_;
  std::vector<Channel> channels_;
};

}  // namespace

Tensor round_weights(const Tensor& weights, const ChannelWeights& layout, DataType half,
                     int threads) {
  const std::span<const float> values = weights.as<float>();
  NewTensor fresh = allocate_tensor(DataType::kF32, weights.dims());
  const std::span<float> rounded(reinterpret_cast<float*>(fresh.data.data()), values.size());
  const int64_t at_once = layout.writes.adds_j ? kColumnsAtOnce : 1;
  ThreadTeam team(threads > 0 ? threads : hardware_threads());
  team.for_ranges(layout.outer * layout.written_count, at_once, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += at_once)
      Channels(layout, first, std::min(end - first, at_once)).round(values, rounded, half);
  });
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
