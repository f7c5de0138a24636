#include "anneal/optimizer/precision/round_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "anneal/core/float16.h"
#include "anneal/core/new_tensor.h"
#include "anneal/core/parallel.h"

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

uint16_t bits_of(float value, DataType half) {
  return half == DataType::kF16 ? to_f16(value).bits : to_bf16(value).bits;
}
float from_bits(uint16_t bits, DataType half) {
  return half == DataType::kF16 ? to_f32(Float16{bits}) : to_f32(BFloat16{bits});
}

// The positions at which the windows of a channel begin.
using Windows = std::vector<size_t>;

// Where the windows of each channel begin, `outer` times.
std::vector<Windows> windows_of(const ChannelWeights& layout) {
  std::vector<Windows> begins(static_cast<size_t>(layout.outer * layout.written_count));
  size_t at = 0;
  for (int64_t outer = 0; outer < layout.outer; ++outer)
    for (int64_t i = 0; i < layout.i_count; ++i)
      for (int64_t j = 0; j < layout.j_count; ++j, at += static_cast<size_t>(layout.inner))
        begins[static_cast<size_t>(outer * layout.written_count + layout.writes(i, j))].push_back(
            at);
  return begins;
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
      const double off = from_bits(bits_of(divided, half), half) * scale - weight;
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

// The weights of one output channel, being rounded.
class Channel {
 public:
  explicit Channel(DataType half) : half_(half) {}

  // With neighbours on both sides, unless it is exact, and no further one beyond the range.
  void add(size_t at, float weight, size_t window) {
    const uint16_t bits = bits_of(weight, half_);
    const float nearest = from_bits(bits, half_);
    Weight added{.at = at, .window = window, .taken = nearest, .other = nearest};
    if (std::isfinite(nearest) && nearest != weight) {
      const bool is_short = std::abs(nearest) < std::abs(weight);
      const float other = from_bits(static_cast<uint16_t>(is_short ? bits + 1 : bits - 1), half_);
      if (std::isfinite(other)) added.other = other;
      added.error = double{nearest} - weight;
    }
    weights_.push_back(added);
  }

  void round_to(std::span<float> rounded, size_t windows) {
    of_windows_.assign(windows, 0);
    for (const Weight& each : weights_) {
      of_windows_[each.window] += each.error;
      sum_ += each.error;
    }
    for (const double most : kCosts)
      for (Weight& each : weights_) turn_if_better(each, most);
    for (const Weight& each : weights_) rounded[each.at] = each.taken;
    weights_.clear();
    sum_ = 0;
  }

 private:
  struct Weight {
    size_t at = 0, window = 0;
    float taken = 0, other = 0;
    double error = 0;  // of the chosen rounding
  };

  void turn_if_better(Weight& weight, double most) {
    const double step = double{weight.other} - weight.taken;
    const auto growth = [step](double error) { return step * (2 * error + step); };
    const double cost = growth(weight.error);
    if (step == 0 || cost > most * step * step) return;
    double& of_window = of_windows_[weight.window];
    if (cost + kWithinWindow * growth(of_window) + kCommon * growth(sum_) >= 0) return;
    std::swap(weight.taken, weight.other);
    weight.error += step;
    of_window += step;
    sum_ += step;
  }

  DataType half_;
  std::vector<Weight> weights_;
  std::vector<double> of_windows_;  // sums of errors
  double sum_ = 0;
};

}  // namespace

Tensor round_weights(const Tensor& weights, const ChannelWeights& layout, DataType half,
                     int threads) {
  const std::span<const float> values = weights.as<float>();
  NewTensor fresh = allocate_tensor(DataType::kF32, weights.dims());
  const std::span<float> rounded(reinterpret_cast<float*>(fresh.data.data()), values.size());
  const auto inner = static_cast<size_t>(layout.inner);
  const std::vector<Windows> channels = windows_of(layout);
  ThreadTeam team(threads > 0 ? threads : hardware_threads());
  team.for_ranges(static_cast<int64_t>(channels.size()), 1, [&](int64_t begin, int64_t end) {
    Channel channel(half);
    for (int64_t c = begin; c < end; ++c) {
      const Windows& windows = channels[static_cast<size_t>(c)];
      for (size_t window = 0; window < windows.size(); ++window)
        for (size_t k = windows[window]; k < windows[window] + inner; ++k)
          channel.add(k, values[k], window);
      channel.round_to(rounded, windows.size());
    }
  });
  return fresh.tensor;
}

std::vector<double> weight_scales(const Tensor& weights, const ChannelWeights& layout,
                                  DataType half, bool may_be_ones) {
  const auto inner = static_cast<size_t>(layout.inner);
  std::vector<double> scales;
  if (layout.outer != 1) return scales;
  for (const Windows& windows : windows_of(layout)) {
    if (windows.size() * inner > kFewWeights) return {};
    std::vector<float> channel;
    for (const size_t window : windows) {
      const std::span<const float> of_window = weights.as<float>().subspan(window, inner);
      channel.insert(channel.end(), of_window.begin(), of_window.end());
    }
    const auto fits = [half](float weight) {
      return std::isfinite(from_bits(bits_of(weight, half), half));
    };
    if (!std::ranges::all_of(channel, fits)) return {};
    scales.push_back(scale_for(channel, half));
  }
  const bool are_ones = std::ranges::all_of(scales, [](double scale) { return scale == 1; });
  return are_ones && !may_be_ones ? std::vector<double>() : scales;
}

}  // namespace anneal
