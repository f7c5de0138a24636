// Resize: along each axis an output position is a few input positions ("taps") with weights; an
// output element is the sum over all combinations of taps, in f64. Integers are truncated.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "anneal/kernels/cpu/entries.h"
#include "anneal/kernels/cpu/reference.h"

namespace anneal::cpu {
namespace {

struct Tap {
  int64_t position = 0;  // in x, kOutside: the output element is the extrapolation value
  double weight = 1;
};
constexpr int64_t kOutside = -1;

// One resized axis. `scale` is output over input, by which ONNX means the given factor even where
// that times the input size is not the output size.
struct Axis {
  int64_t in = 0, out = 0;
  double scale = 1;
  double out_length = 0;  // scale * in
  double roi_begin = 0, roi_end = 1;
  bool exact = false;  // scale is out / in
};

// scales as given, or from the sizes. Without the values of `sizes` (while preparing) a common
// scale is taken as the least that it can be.
Axis axis_of(const Resize& op, size_t i, const TensorView& x, const TensorView& y,
             const TensorView* sizes) {
  const int a = static_cast<int>(op.axes[i]);
  Axis axis{x.dims[a], y.dims[a]};
  const auto in = static_cast<double>(axis.in), out = static_cast<double>(axis.out);
  if (!op.scales.empty()) {
    axis.scale = op.scales[i];
  } else if (op.policy == ResizePolicy::kStretch) {
    axis.scale = out / in;
    axis.exact = true;
  } else if (!sizes) {
    axis.scale = (out - 0.5) / in;
  } else {
    const bool larger = op.policy == ResizePolicy::kNotSmaller;
    axis.scale = larger ? 0 : std::numeric_limits<double>::infinity();
    for (size_t k = 0; k < op.axes.size(); ++k) {
      const auto wanted =
          static_cast<double>(load_integer(*sizes, static_cast<int64_t>(k) * sizes->strides[0]));
      const double scale = wanted / static_cast<double>(x.dims[static_cast<int>(op.axes[k])]);
      axis.scale = larger ? std::max(axis.scale, scale) : std::min(axis.scale, scale);
    }
  }
  axis.out_length = axis.exact ? out : axis.scale * in;
  if (!(axis.out_length >= out - 0.51) || !(axis.out_length < out + 1.01))
    fail(Code::kInvalidArgument, "Resize: a scale does not give the output's size");
  return axis;
}

// The position in x, between elements, that an output position stands for.
double original_position(const Axis& axis, ResizeCoordinates mode, int64_t position) {
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

// How far taps reach to the left, and how many there are. Antialiasing widens the filter by what
// the image shrinks.
struct Support {
  double stretch = 1;
  int64_t first = 0, taps = 1;
};
Support support_of(const Resize& op, const Axis& axis) {
  if (op.mode == ResizeMode::kNearest) return {};
  Support support;
  if (op.antialias) support.stretch = std::min(axis.scale, 1.0);
  const double radius = op.mode == ResizeMode::kLinear ? 1 : 2;
  support.first = static_cast<int64_t>(std::floor(-radius / support.stretch)) + 1;
  support.taps = 2 - 2 * support.first;
  return support;
}

// Positions outside repeat the edge, unless they are excluded.
void fill_taps(const Resize& op, const Axis& axis, const Support& support, double position,
               Tap* taps) {
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

size_t resize_scratch(const Resize& op, std::span<const TensorView> inputs,
                      std::span<const TensorView> results) {
  if (count(results[0].dims) == 0) return 0;
  size_t taps = 0;
  for (size_t i = 0; i < op.axes.size(); ++i) {
    const Axis axis = axis_of(op, i, inputs[0], results[0], nullptr);
    taps += static_cast<size_t>(axis.out) * static_cast<size_t>(support_of(op, axis).taps);
  }
  return taps * sizeof(Tap);
}

// The taps of every output position of every axis; width 0: the axis is not resized.
struct Taps {
  std::array<const Tap*, kMaxRank> first{};
  std::array<int64_t, kMaxRank> width{};
};

Taps make_taps(const Resize& op, const ReferenceArgs& args) {
  const TensorView &x = args.inputs[0], &y = args.results[0];
  const TensorView* roi = args.has(2) ? &args.inputs[2] : nullptr;
  const auto roi_at = [&](size_t i) {
    return visit_float(roi->dtype, [&]<class E>(E) {
      return double(E::load(roi->data, static_cast<int64_t>(i) * roi->strides[0]));
    });
  };
  auto* next = reinterpret_cast<Tap*>(args.scratch);
  Taps taps;
  for (size_t i = 0; i < op.axes.size(); ++i) {
    Axis axis = axis_of(op, i, x, y, args.has(1) ? &args.inputs[1] : nullptr);
    if (roi && count(roi->dims) > 0) {
      axis.roi_begin = roi_at(i);
      axis.roi_end = roi_at(i + op.axes.size());
    }
    const Support support = support_of(op, axis);
    const auto a = static_cast<size_t>(op.axes[i]);
    taps.first[a] = next;
    taps.width[a] = support.taps;
    for (int64_t o = 0; o < axis.out; ++o, next += support.taps)
      fill_taps(op, axis, support, original_position(axis, op.coordinates, o), next);
  }
  return taps;
}

// The weighted sum over the axes from `axis` on.
template <class E>
double sample(const TensorView& x, const Taps& taps, const Dims& at, int axis, int64_t offset) {
  if (axis == x.dims.rank()) return double(E::load(x.data, offset));
  const int64_t width = taps.width[axis], step = x.strides[axis];
  if (width == 0) return sample<E>(x, taps, at, axis + 1, offset + at[axis] * step);
  const Tap* tap = taps.first[axis] + at[axis] * width;
  double sum = 0;
  for (int64_t i = 0; i < width; ++i)
    if (tap[i].weight != 0)
      sum += tap[i].weight * sample<E>(x, taps, at, axis + 1, offset + tap[i].position * step);
  return sum;
}

bool outside(const Taps& taps, const Dims& at) {
  for (int axis = 0; axis < at.rank(); ++axis) {
    const int64_t width = taps.width[axis];
    if (width > 0 && taps.first[axis][at[axis] * width].position == kOutside) return true;
  }
  return false;
}

template <class Acc>
Acc converted(double value) {
  if constexpr (std::is_floating_point_v<Acc>) {
    return static_cast<Acc>(value);
  } else {
    using Limits = std::numeric_limits<Acc>;
    if (!(value > double(Limits::lowest()))) return std::isnan(value) ? Acc{0} : Limits::lowest();
    return value >= double(Limits::max()) ? Limits::max() : static_cast<Acc>(value);
  }
}

void resize(const Resize& op, const ReferenceArgs& args) {
  const TensorView &x = args.inputs[0], &y = args.results[0];
  if (count(y.dims) == 0) return;
  if (count(x.dims) == 0)
    fail(Code::kInvalidArgument, "Resize: an empty tensor has no elements to resize");
  const Taps taps = make_taps(op, args);
  visit_dtype(x.dtype, [&]<class E>(E) {
    using Acc = typename E::Acc;
    const Result<Acc> out(y);
    args.team.for_ranges(count(y.dims), kGrain / 16, [&](int64_t begin, int64_t end) {
      Dims at = coordinates(y.dims, begin);
      for (int64_t i = begin; i < end; ++i, advance(at, y.dims)) {
        const int64_t target = dot(at, y.strides);
        if (outside(taps, at)) {
          out.put(target, converted<Acc>(op.extrapolation_value));
        } else if (op.mode == ResizeMode::kNearest) {
          int64_t source = 0;
          for (int axis = 0; axis < at.rank(); ++axis) {
            const bool resized = taps.width[axis] > 0;
            source += (resized ? taps.first[axis][at[axis]].position : at[axis]) * x.strides[axis];
          }
          copy_element(x, source, y, target);
        } else {
          out.put(target, converted<Acc>(sample<E>(x, taps, at, 0, 0)));
        }
      }
    });
  });
}

constexpr KernelEntry kEntries[] = {
    reference<Resize, resize, resize_scratch>("cpu.resize.reference")};

}  // namespace

std::span<const KernelEntry> reference_resize_entries() { return kEntries; }

}  // namespace anneal::cpu
