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

// The number of f16 or bf16 next to this one, which is finite and not zero if the neighbour is the
// shorter one.
float neighbour(float number, bool is_longer, DataType half) {
  constexpr uint32_t kLeastNormal = 0x38800000;  // of f16
  const auto bits = std::bit_cast<uint32_t>(number);
  const bool is_f16 = half == DataType::kF16;
  if (is_f16 && (bits & 0x7fffffff) <= kLeastNormal) {
    const uint16_t short_bits = to_f16(number).bits;
    return to_f32(Float16{static_cast<uint16_t>(is_longer ? short_bits + 1 : short_bits - 1)});
  }
  const uint32_t unit = is_f16 ? 0x2000 : 0x10000;
  // Without a branch, since half of all weights are longer.
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

// Channels that are read and written together: where a channel is a column, a line of the cache has
// weights of 16 channels.
constexpr int64_t kChannelsAtOnce = 32;

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
  // Weight k of the channel. It has a second choice on its other side, unless it is exact or that
  // is beyond the range.
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
    // Few weights pass the first condition, since the sum is small soon.
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

}  // namespace

Tensor round_weights(const Tensor& weights, const ChannelWeights& layout, DataType half,
                     int threads) {
  const std::span<const float> values = weights.as<float>();
  NewTensor fresh = allocate_tensor(DataType::kF32, weights.dims());
  const std::span<float> rounded(reinterpret_cast<float*>(fresh.data.data()), values.size());
  const auto inner = static_cast<size_t>(layout.inner);
  ThreadTeam team(threads > 0 ? threads : hardware_threads());
  team.for_ranges(
      layout.outer * layout.written_count, kChannelsAtOnce, [&](int64_t begin, int64_t end) {
        std::array<Channel, kChannelsAtOnce> channels;
        std::array<ChannelWindows, kChannelsAtOnce> windows;
        for (int64_t first = begin; first < end; first += kChannelsAtOnce) {
          const auto count = static_cast<size_t>(std::min(end - first, kChannelsAtOnce));
          const auto for_each_place = [&](auto&& f) {
            for (size_t window = 0; window < windows[0].count; ++window)
              for (size_t c = 0; c < count; ++c)
                for (size_t k = 0; k < inner; ++k)
                  f(channels[c], window * inner + k,
                    windows[c].begin + window * windows[c].stride + k);
          };
          for (size_t c = 0; c < count; ++c) {
            const int64_t channel = first + static_cast<int64_t>(c);
            windows[c] =
                windows_of(layout, channel / layout.written_count, channel % layout.written_count);
            channels[c].resize(windows[c].count, inner);
          }
          for_each_place(
              [&](Channel& channel, size_t k, size_t at) { channel.set(k, values[at], half); });
          for (size_t c = 0; c < count; ++c) channels[c].round();
          for_each_place([&](const Channel& channel, size_t k, size_t at) {
            rounded[at] = channel.rounded(k);
          });
        }
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
