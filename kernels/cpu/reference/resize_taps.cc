#include "anneal/kernels/cpu/reference/resize_taps.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "anneal/kernels/cpu/base/element.h"

namespace anneal::cpu {
namespace {

// The position in x, between elements, that an output position stands for.
double original_position(const ResizeAxis& axis, ResizeCoordinates mode, int64_t position) {
  const auto in = static_cast<double>(axis.in), at = static_cast<double>(position);
  const auto scaled = [&](double value) {
    return axis.exact ? value * in / axis.out_length : value / axis.scale;
  };
  switch (mode) {
    case ResizeCoordinates::kHalfPixel:
      return scaled(at + 0.5) - 0.5;
    case ResizeCoordinates::kHalfPixelSymmetric: {
      const double adjustment = static_cast<double>(axis.out) / axis.out_length;
      return in / 2 * (1 - adjustment) + scaled(at + 0.5) - 0.5;
    }
    case ResizeCoordinates::kPytorchHalfPixel:
      return axis.out_length == 1 ? -0.5 : scaled(at + 0.5) - 0.5;
    case ResizeCoordinates::kAlignCorners:
      return axis.out_length == 1 ? 0 : at * (in - 1) / (axis.out_length - 1);
    case ResizeCoordinates::kAsymmetric:
      return scaled(at);
    case ResizeCoordinates::kTfHalfPixelForNn:
      return scaled(at + 0.5);
    case ResizeCoordinates::kTfCropAndResize: {
      const double length = axis.roi_end - axis.roi_begin;
      const double within = axis.out_length == 1 ? length * (in - 1) / 2
                                                 : at * length * (in - 1) / (axis.out_length - 1);
      return axis.roi_begin * (in - 1) + within;
    }
  }
  return 0;
}

// The position is rounded to f32 first, in which scales are given: 4 / 1.3333334 is 3.
int64_t nearest_position(double position, ResizeNearest mode, int64_t size) {
  const double at = static_cast<float>(position);
  double chosen = 0;
  switch (mode) {
    case ResizeNearest::kRoundPreferFloor:
      chosen = std::ceil(at - 0.5);
      break;
    case ResizeNearest::kRoundPreferCeil:
      chosen = std::floor(at + 0.5);
      break;
    case ResizeNearest::kFloor:
      chosen = std::floor(at);
      break;
    case ResizeNearest::kCeil:
      chosen = std::ceil(at);
      break;
  }
  return static_cast<int64_t>(std::clamp(chosen, 0.0, static_cast<double>(size - 1)));
}

double filter(const Resize& op, double distance) {
  const double d = std::abs(distance), a = op.cubic_coefficient;
  if (op.mode == ResizeMode::kLinear) return std::max(0.0, 1 - d);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((d - 5) * d + 8) * d * a - 4 * a : 0;
}

}  // namespace

ResizeAxis resize_axis(const Resize& op, size_t i, const Dims& x, const Dims& y,
                       const ResizeValues& values) {
  const int a = static_cast<int>(op.axes[i]);
  ResizeAxis axis{x[a], y[a]};
  const auto in = static_cast<double>(axis.in), out = static_cast<double>(axis.out);
  if (!op.scales.empty()) {
    axis.scale = op.scales[i];
  } else if (values.scales) {
    axis.scale =
        values.scales->as<const float>()[static_cast<int64_t>(i) * values.scales->strides[0]];
  } else if (op.policy == ResizePolicy::kStretch) {
    axis.scale = out / in;
    axis.exact = true;
  } else if (!values.sizes) {
    axis.scale = (out - 0.5) / in;
  } else {
    const bool larger = op.policy == ResizePolicy::kNotSmaller;
    axis.scale = larger ? 0 : std::numeric_limits<double>::infinity();
    for (size_t k = 0; k < op.axes.size(); ++k) {
      const auto wanted = static_cast<double>(
          load_integer(*values.sizes, static_cast<int64_t>(k) * values.sizes->strides[0]));
      const double scale = wanted / static_cast<double>(x[static_cast<int>(op.axes[k])]);
      axis.scale = larger ? std::max(axis.scale, scale) : std::min(axis.scale, scale);
    }
  }
  axis.out_length = axis.exact ? out : axis.scale * in;
  if (!(axis.out_length >= out - 0.51) || !(axis.out_length < out + 1.01))
    fail(ErrorCode::kInvalidArgument, "Resize: a scale does not give the output's size");
  return axis;
}

TapSupport support_of(const Resize& op, const ResizeAxis& axis) {
  if (op.mode == ResizeMode::kNearest) return {};
  TapSupport support;
  if (op.antialias) support.stretch = std::min(axis.scale, 1.0);
  const double radius = op.mode == ResizeMode::kLinear ? 1 : 2;
  support.first = static_cast<int64_t>(std::floor(-radius / support.stretch)) + 1;
  support.taps = 2 - 2 * support.first;
  return support;
}

void fill_taps(const Resize& op, const ResizeAxis& axis, const TapSupport& support, int64_t output,
               Tap* taps) {
  const double position = original_position(axis, op.coordinates, output);
  const double last = static_cast<double>(axis.in - 1);
  if (op.coordinates == ResizeCoordinates::kTfCropAndResize &&
      !(position >= 0 && position <= last)) {
    taps[0] = {kOutside, 0};
    return;
  }
  if (op.mode == ResizeMode::kNearest) {
    taps[0] = {nearest_position(position, op.nearest, axis.in), 1};
    return;
  }
  const double base = std::ceil(position) - 1;
  double sum = 0;
  for (int64_t i = 0; i < support.taps; ++i) {
    const auto step = static_cast<double>(support.first + i);
    const double at = base + step;
    const bool excluded = op.exclude_outside && (at < 0 || at > last);
    const double weight = excluded ? 0 : filter(op, (step - (position - base)) * support.stretch);
    taps[i] = {static_cast<int64_t>(std::clamp(at, 0.0, last)), weight};
    sum += weight;
  }
  if (op.antialias || op.exclude_outside)
    for (int64_t i = 0; i < support.taps; ++i) taps[i].weight /= sum;
}

}  // namespace anneal::cpu
