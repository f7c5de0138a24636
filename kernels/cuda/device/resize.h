// Resize: along each axis an output position is a few input positions ("taps") with weights, and an
// output is the sum over all combinations of taps. Positions and weights are those of
// kernels/cpu/reference/resize_taps.cc, in f64.
//
// Taps gives the numbers of the op: kNearest, kCubic, kCoordinates and kRounding (the enumerators
// of ResizeCoordinates and ResizeNearest), kExcludesOutside, kAntialias, and coefficient().
// resize() is of spatial axes: its Shape is that of window.h with axis_z(), axis_y() and axis_x(),
// which give a ResizedAxis each. Generated text walks along other axes.
#pragma once

namespace window {

// A number of the op, whose axis is not resized if `is_resized` is false.
struct ResizedAxis {
  f64 in, out, scale;
  bool is_resized, is_exact;  // is_exact: scale is out / in
  f64 begin, end;             // of the region, for kTfCropAndResize
  __device__ f64 length() const { return is_exact ? out : scale * in; }
  __device__ f64 scaled(f64 value) const {
    return is_exact ? value * in / length() : value / scale;
  }
};

enum Coordinates : int {
  kHalfPixel,
  kHalfPixelSymmetric,
  kPytorchHalfPixel,
  kAlignCorners,
  kAsymmetric,
  kTfHalfPixelForNn,
  kTfCropAndResize
};
enum Rounding : int { kRoundPreferFloor, kRoundPreferCeil, kFloor, kCeil };

// Between elements of the input.
template <class Taps>
__device__ inline f64 original_position(const ResizedAxis& axis, f64 at) {
  const f64 length = axis.length();
  switch (int(Taps::kCoordinates)) {
    case kHalfPixelSymmetric:
      return axis.in / 2 * (1 - axis.out / length) + axis.scaled(at + 0.5) - 0.5;
    case kPytorchHalfPixel:
      return length == 1 ? -0.5 : axis.scaled(at + 0.5) - 0.5;
    case kAlignCorners:
      return length == 1 ? 0 : at * (axis.in - 1) / (length - 1);
    case kAsymmetric:
      return axis.scaled(at);
    case kTfHalfPixelForNn:
      return axis.scaled(at + 0.5);
    case kTfCropAndResize: {
      const f64 part = axis.end - axis.begin;
      return axis.begin * (axis.in - 1) +
             (length == 1 ? part * (axis.in - 1) / 2 : at * part * (axis.in - 1) / (length - 1));
    }
    default:
      return axis.scaled(at + 0.5) - 0.5;
  }
}

// Whether it is not in the input, whose taps then must not be read.
template <class Taps>
__device__ inline bool is_outside(const ResizedAxis& axis, i64 at) {
  const f64 position = original_position<Taps>(axis, f64(at));
  return !(position >= 0 && position <= axis.in - 1);
}

__device__ inline f64 limited(f64 x, f64 last) { return x < 0 ? 0 : x > last ? last : x; }

// The position is rounded to f32 first, in which scales are given.
template <class Taps>
__device__ inline i64 nearest_position(const ResizedAxis& axis, i64 at) {
  if (!axis.is_resized) return at;
  const f64 position = f64(f32(original_position<Taps>(axis, f64(at))));
  f64 chosen = 0;
  switch (int(Taps::kRounding)) {
    case kRoundPreferFloor:
      chosen = op::ceil(position - 0.5);
      break;
    case kRoundPreferCeil:
      chosen = op::floor(position + 0.5);
      break;
    case kFloor:
      chosen = op::floor(position);
      break;
    default:
      chosen = op::ceil(position);
  }
  return i64(limited(chosen, axis.in - 1));
}

// The taps of one output position along one axis.
template <class Taps>
struct AxisTaps {
  f64 in, base, fraction, stretch, sum;
  i64 first, count;

  __device__ AxisTaps(const ResizedAxis& axis, i64 at) : in(axis.in), stretch(1), sum(1) {
    if (!axis.is_resized) {
      base = f64(at), fraction = 0, first = 0, count = 1;
      return;
    }
    const f64 position = original_position<Taps>(axis, f64(at));
    base = op::ceil(position) - 1;
    fraction = position - base;
    const f64 scale = axis.is_exact ? axis.out / axis.in : axis.scale;
    if (Taps::kAntialias && scale < 1) stretch = scale;
    first = i64(op::floor((Taps::kCubic ? -2.0 : -1.0) / stretch)) + 1;
    count = 2 - 2 * first;
    if constexpr (Taps::kAntialias || Taps::kExcludesOutside) {
      f64 total = 0;
      for (i64 i = 0; i < count; ++i) total += weight(i);
      sum = total;
    }
  }
  __device__ f64 at(i64 i) const { return base + f64(first + i); }
  // Positions outside repeat the edge, unless they are excluded.
  __device__ i64 position(i64 i) const { return i64(limited(at(i), in - 1)); }
  __device__ f64 weight(i64 i) const {
    if (count == 1) return 1;
    if (Taps::kExcludesOutside && (at(i) < 0 || at(i) > in - 1)) return 0;
    const f64 distance = (f64(first + i) - fraction) * stretch;
    const f64 d = distance < 0 ? -distance : distance, a = Taps::coefficient();
    f64 value = 0;
    if constexpr (!Taps::kCubic)
      value = d < 1 ? 1 - d : 0;
    else if (d <= 1)
      value = ((a + 2) * d - (a + 3)) * d * d + 1;
    else
      value = d < 2 ? ((d - 5) * d + 8) * d * a - 4 * a : 0;
    if constexpr (Taps::kAntialias || Taps::kExcludesOutside) value /= sum;
    return value;
  }
};

template <class Taps, int kLanes, class Acc, class Shape, class T, class Result>
__device__ void resize(const Shape& s, In<T> x, bool aligned, const Result& result) {
  using I = typename Shape::Index;
  const i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= s.threads) return;
  const auto at = s.at(i);
  const I corner = I(at.n) * s.x_n + I(at.channel) * s.x_c;
  Acc values[kLanes] = {};
  if constexpr (Taps::kNearest) {
    const I place = corner + I(nearest_position<Taps>(s.axis_z(), at.z)) * s.x_z +
                    I(nearest_position<Taps>(s.axis_y(), at.y)) * s.x_y +
                    I(nearest_position<Taps>(s.axis_x(), at.x)) * s.x_x;
    const auto read = load_lanes<kLanes>(x, place, aligned);
    UNROLL
    for (int lane = 0; lane < kLanes; ++lane) values[lane] = op::widen(read[lane]);
  } else {
    const AxisTaps<Taps> zs(s.axis_z(), at.z), ys(s.axis_y(), at.y), xs(s.axis_x(), at.x);
    for (i64 kz = 0; kz < zs.count; ++kz) {
      const f64 of_z = zs.weight(kz);
      const I plane = corner + I(zs.position(kz)) * s.x_z;
      for (i64 ky = 0; ky < ys.count; ++ky) {
        const f64 of_y = of_z * ys.weight(ky);
        const I row = plane + I(ys.position(ky)) * s.x_y;
        for (i64 kx = 0; kx < xs.count; ++kx) {
          const Acc weight = Acc(of_y * xs.weight(kx));
          // What has no weight is not read: it may be infinite.
          if (weight == Acc(0)) continue;
          const auto read = load_lanes<kLanes>(x, row + I(xs.position(kx)) * s.x_x, aligned);
          UNROLL
          for (int lane = 0; lane < kLanes; ++lane)
            values[lane] = multiply_add(weight, Acc(op::widen(read[lane])), values[lane]);
        }
      }
    }
  }
  store_channels(values, at, result);
}

}  // namespace window
