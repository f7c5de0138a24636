#include "anneal/optimizer/precision/half_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "anneal/core/new_tensor.h"
#include "anneal/optimizer/analysis/channel_weights.h"

namespace anneal {
namespace {

// Of the weights of a channel: the most that rounding may cost, relative, as root of mean squares.
constexpr double kWeightsError = 0x1p-8;
// Channels that are weaker than the strongest one by this factor do not count.
constexpr double kWeakChannel = 0x1p-10;

uint16_t half_bits(float number, DataType half) {
  const auto bits = std::bit_cast<uint32_t>(in_half(number, half));
  if (half == DataType::kBF16) return static_cast<uint16_t>(bits >> 16);
  const uint32_t magnitude = bits & 0x7fffffff;
  constexpr uint32_t kInfinity = 0x7f800000;
  if (magnitude < kLeastNormalF16 || magnitude >= kInfinity) return to_f16(number).bits;
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | (magnitude - (112U << 23)) >> 13);
}

}  // namespace

std::string why_weights_suffer(const Graph& graph, LayerId id, const Tensor& weights,
                               DataType dtype) {
  const std::span<const float> values = weights.as<float>();
  float most = 0;
  for (const float value : values)
    if (std::isfinite(value)) most = std::max(most, std::abs(value));
  if (std::isinf(in_half(most, dtype)))
    return fmt::format("a weight of magnitude {:g} is beyond {}", most, to_string(dtype));
  const auto layout = channel_weights(graph, id);
  const auto channels = static_cast<size_t>(layout ? layout->written_count : 1);
  std::vector<double> power(channels), lost(channels);
  const auto add = [&](size_t channel, float value) {
    const double error = double{value} - in_half(value, dtype);
    if (!std::isfinite(value)) return;
    power[channel] += double{value} * value;
    lost[channel] += error * error;
  };
  if (layout)
    for_each_weight(*layout, [&](size_t at, size_t, size_t written) { add(written, values[at]); });
  else
    for (const float value : values) add(0, value);
  const double strongest = *std::max_element(power.begin(), power.end());
  size_t harmed = 0;
  for (size_t c = 0; c < channels; ++c)
    harmed += power[c] > 0 && power[c] >= strongest * kWeakChannel * kWeakChannel &&
              lost[c] > power[c] * kWeightsError * kWeightsError;
  // bf16 costs every weight up to 2^-9, and a channel less than that.
  if (harmed == 0) return {};
  return fmt::format("the weights of {} of {} channels are too small for {}", harmed, channels,
                     to_string(dtype));
}

Tensor in_16_bits(const Tensor& floats, DataType half) {
  NewTensor made = allocate_tensor(half, floats.dims());
  auto* to = reinterpret_cast<uint16_t*>(made.data.data());
  for (const float number : floats.as<float>()) *to++ = half_bits(number, half);
  return made.tensor;
}

}  // namespace anneal
