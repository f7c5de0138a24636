#include "anneal/optimizer/precision/quantized_weights.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "anneal/core/new_tensor.h"
#include "anneal/optimizer/precision/fit_weights.h"

namespace anneal {
namespace {

constexpr double kMostI8 = 127, kMostU8 = 255;

// A scale that is a normal number, so that quotients by it are finite.
float scale_of(double extent, double steps) {
  const auto scale = static_cast<float>(extent / steps);
  return scale >= 1e-30F ? scale : 1.0F;
}

// Products of 8-bit numbers that a sum of 32 bits holds for certain.
constexpr int64_t kMostProducts = (int64_t{1} << 31) / (255 * 128);

}  // namespace

std::string why_not_quantized(const Tensor& weights, int64_t axis) {
  const auto values = weights.as<float>();
  if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); }))
    return "its weights are not all finite";
  const int64_t channels = weights.dims()[static_cast<int>(axis)];
  if (channels == 0 || weights.count() == 0) return "it has no weights";
  if (weights.count() / channels > kMostProducts)
    return "a sum of this many products may overflow 32 bits";
  return {};
}

Scaling scaling_for(const TensorRange& range, bool symmetric) {
  const double low = std::min(0.0, double{range.min}), high = std::max(0.0, double{range.max});
  Scaling scaling;
  scaling.zeros = {0};
  if (symmetric && low < 0) {
    scaling.integer = DataType::kI8;
    scaling.scales = {scale_of(std::max(-low, high), kMostI8)};
    return scaling;
  }
  scaling.integer = DataType::kU8;
  scaling.scales = {scale_of(high - low, kMostU8)};
  const double zero = std::nearbyint(-low / double{scaling.scales[0]});
  scaling.zeros = {static_cast<int32_t>(std::clamp(zero, 0.0, kMostU8))};
  return scaling;
}

QuantizedWeights quantize_weights(const Tensor& weights, int64_t axis, bool fitted) {
  const Dims& dims = weights.dims();
  int64_t inner = 1;
  for (int i = static_cast<int>(axis) + 1; i < dims.rank(); ++i) inner *= dims[i];
  const int64_t channels = dims[static_cast<int>(axis)];
  const auto values = weights.as<float>();
  Scaling scaling;
  scaling.integer = DataType::kI8;
  scaling.axis = channels > 1 ? axis : 0;
  scaling.zeros = {0};
  NewTensor fresh = allocate_tensor(DataType::kI8, dims);
  auto* integers = reinterpret_cast<int8_t*>(fresh.data.data());
  const int64_t row = channels * inner;
  const auto for_each = [&](int64_t channel, const auto& body) {
    for (int64_t begin = channel * inner; begin < weights.count(); begin += row)
      for (int64_t i = begin; i < begin + inner; ++i) body(static_cast<size_t>(i));
  };
  std::vector<float> own;  // the weights of one channel
  for (int64_t channel = 0; channel < channels; ++channel) {
    own.clear();
    for_each(channel, [&](size_t i) { own.push_back(values[i]); });
    float most = 0;
    for (const float value : own) most = std::max(most, std::abs(value));
    float scale = scale_of(most, kMostI8);
    if (fitted) scale = fitted_scale(own, scale);
    scaling.scales.push_back(scale);
    for_each(channel, [&](size_t i) {
      const double q = std::nearbyint(values[i] / scale);
      integers[i] = static_cast<int8_t>(std::clamp(q, -kMostI8, kMostI8));
    });
  }
  return {fresh.tensor, std::move(scaling)};
}

}  // namespace anneal
