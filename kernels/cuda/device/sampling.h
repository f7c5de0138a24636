// Samples between the elements of images: a thread has a few neighbouring channels of one place of
// the output. Places and weights are those of kernels/cpu/reference/grid_sample.cc and
// roi_align.cc; sums are in the accumulator's type.
//
// Shape is that of window.h. Results at places that no run can name, such as an image beyond the
// last one, come from the nearest image: a GPU reports no values.
#pragma once

namespace window {

// Grid gives the numbers of GridSample: kAxes, kTaps (per axis: 1 nearest, 2 linear, 4 cubic),
// kPadding (the enumerators of GridPadding) and kCorners (align_corners).
enum GridPaddings : int { kZeros, kBorder, kReflection };

// A position mirrored at the borders until it lies between them.
template <class T>
__device__ inline T mirrored(T position, T low, T high) {
  const T range = high - low;
  const T beyond = position < low ? low - position : position - high;
  if (!(beyond > T(0))) return position;
  T rest = op::rem(beyond, 2 * range);
  if (!(rest >= T(0))) return low;  // an infinite position, or one element
  if (rest > range) rest = 2 * range - rest;
  return position < low ? low + rest : high - rest;
}

template <class T>
__device__ inline T between(T x, T low, T high) {
  return x < low ? low : x > high ? high : x;
}

// One axis of x at one position of the grid.
template <class Grid, class Acc, class I, int kTaps>
struct GridAxis {
  I position[kTaps];  // -1: outside, where x is taken as 0
  Acc weight[kTaps];

  // coordinate: -1..1, which are the middles of the first and last element, or the outer edges of
  // both. NaN is taken as -1.
  template <class T>
  __device__ GridAxis(T coordinate, I size) {
    const T low = Grid::kCorners ? T(0) : T(-0.5);
    const T high = Grid::kCorners ? T(size - 1) : T(size) - T(0.5);
    if (coordinate != coordinate) coordinate = T(-1);
    T at =
        Grid::kCorners ? (coordinate + 1) / 2 * T(size - 1) : ((coordinate + 1) * T(size) - 1) / 2;
    if (at != at) at = low;  // infinitely far in no length at all
    if (kTaps == 1) at = op::rint(at);
    if (at < low || at > high) {
      if (int(Grid::kPadding) == kReflection) {
        at = mirrored(at, low, high);
      } else {  // farther out is outside, too, and taps at the border are the elements there
        at = between(at, T(-4), T(size) + 4);
      }
    }
    const auto element = [&](i64 tap) {
      if (int(Grid::kPadding) == kZeros) return tap >= 0 && tap < size ? I(tap) : I(-1);
      if (int(Grid::kPadding) == kReflection) tap = i64(mirrored(T(tap), low, high));
      return I(between(tap, i64(0), i64(size - 1)));
    };
    if constexpr (kTaps == 1) {
      position[0] = element(i64(at));
      weight[0] = 1;
    } else {
      const T base = op::floor(at);
      const Acc x = Acc(at - base);
      UNROLL
      for (int tap = 0; tap < kTaps; ++tap)
        position[tap] = element(i64(base) + tap - (kTaps / 2 - 1));
      if constexpr (kTaps == 2) {
        weight[0] = 1 - x, weight[1] = x;
      } else {
        weight[0] = far(x + 1), weight[1] = near(x);
        weight[2] = near(1 - x), weight[3] = far(2 - x);
      }
    }
  }
  // Of a position that the grid does not name: element 0 of 1.
  __device__ GridAxis() {
    position[0] = 0;
    weight[0] = 1;
  }

 private:
  // The cubic weight at a distance of up to 1, and of 1 to 2.
  __device__ static Acc near(Acc d) { return (Acc(1.25) * d - Acc(2.25)) * d * d + 1; }
  __device__ static Acc far(Acc d) { return ((d - 5) * d + 8) * d * Acc(-0.75) + 3; }
};

// Axes that the grid names come last, and the last has the first coordinate.
template <class Grid, int kLanes, class Acc, class Shape, class X, class G, class Result>
__device__ void grid_sample(const Shape& s, In<X> x, In<G> grid, bool aligned,
                            const Result& result) {
  using I = typename Shape::Index;
  constexpr int kTaps = Grid::kTaps, kAxes = Grid::kAxes;
  using Axis = GridAxis<Grid, Acc, I, kTaps>;
  using Axis1 = GridAxis<Grid, Acc, I, (kAxes > 1 ? kTaps : 1)>;
  using Axis2 = GridAxis<Grid, Acc, I, (kAxes > 2 ? kTaps : 1)>;
  const i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= s.threads) return;
  const auto at = s.at(i);
  const I place = I(at.n) * s.g_n + I(at.z) * s.g_z + I(at.y) * s.g_y + I(at.x) * s.g_x;
  const auto coordinate = [&](int axis) { return op::widen(grid[place + axis * s.g_axis]); };
  const Axis xs(coordinate(0), I(s.in_x));
  Axis1 ys;
  Axis2 zs;
  if constexpr (kAxes > 1) ys = Axis1(coordinate(1), I(s.in_y));
  if constexpr (kAxes > 2) zs = Axis2(coordinate(2), I(s.in_z));
  const I corner = I(at.n) * s.x_n + I(at.channel) * s.x_c;
  Acc values[kLanes] = {};
  UNROLL
  for (int kz = 0; kz < (kAxes > 2 ? kTaps : 1); ++kz) {
    UNROLL
    for (int ky = 0; ky < (kAxes > 1 ? kTaps : 1); ++ky) {
      UNROLL
      for (int kx = 0; kx < kTaps; ++kx) {
        const Acc weight = zs.weight[kz] * ys.weight[ky] * xs.weight[kx];
        // What has no weight is not read: it may be infinite.
        if (zs.position[kz] < 0 || ys.position[ky] < 0 || xs.position[kx] < 0 || weight == Acc(0))
          continue;
        const I from =
            corner + zs.position[kz] * s.x_z + ys.position[ky] * s.x_y + xs.position[kx] * s.x_x;
        const auto read = load_lanes<kLanes>(x, from, aligned);
        UNROLL
        for (int lane = 0; lane < kLanes; ++lane)
          values[lane] = multiply_add(weight, Acc(op::widen(read[lane])), values[lane]);
      }
    }
  }
  store_channels(values, at, result);
}

// The samples of one bin of a region along one axis, in units of elements. Rois gives the numbers
// of RoiAlign: kMaximum, kHalfPixel, kRatio (sampling_ratio) and scale() (spatial_scale).
template <class Rois, class T, class I>
struct BinSamples {
  T begin, bin;  // of the region; length of a bin
  f64 count;     // per bin, a whole number
  I size, of_bin;
  i64 first, last;  // the samples [first, last) of the bin may lie inside

  __device__ BinSamples(T from, T to, I of, I bins, I axis) : size(axis), of_bin(of) {
    const T offset = Rois::kHalfPixel ? T(0.5) : T(0);
    begin = from * T(Rois::scale()) - offset;
    T length = to * T(Rois::scale()) - offset - begin;
    if (!Rois::kHalfPixel && length < T(1)) length = T(1);
    // Such a region is no place: it has no samples.
    const bool is_place = op::abs(length) <= T(281474976710656.0);
    if (!is_place) length = T(0);
    bin = length / T(bins);
    count = Rois::kRatio > 0 ? f64(Rois::kRatio) : op::ceil(f64(bin));
    if (!(count > 0) || !is_place) count = 0;
    const f64 start = f64(begin) + f64(of) * f64(bin), step = f64(bin) / count;
    // So a region far larger than the image costs no more than the image.
    const bool is_long = step > 0;
    first = i64(is_long ? bounded(op::floor((-1 - start) / step) - 2) : 0);
    last = i64(is_long ? bounded(op::ceil((f64(size) - start) / step) + 2) : count);
  }
  // Two elements and their weights. False: the sample lies outside, and is 0.
  template <class Acc>
  __device__ bool place(i64 i, I& low, I& high, Acc& of_low, Acc& of_high) const {
    T position = begin + T(of_bin) * bin + (T(i) + T(0.5)) * bin / T(count);
    if (!(position >= T(-1) && position <= T(size))) return false;
    if (position < T(0)) position = T(0);
    low = I(position);
    if (low >= size - 1) {
      low = high = size - 1;
      of_low = 1, of_high = 0;
    } else {
      high = low + 1;
      of_high = Acc(position - T(low));
      of_low = 1 - of_high;
    }
    return true;
  }

 private:
  __device__ f64 bounded(f64 i) const { return between(i, 0.0, count); }
};

template <class Rois, int kLanes, class Acc, class Shape, class X, class Result>
__device__ void roi_align(const Shape& s, In<X> x, In<X> regions, In<i64> images, bool aligned,
                          const Result& result) {
  using I = typename Shape::Index;
  const i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= s.threads) return;
  const auto at = s.at(i);
  const i64 given = images[I(at.n) * s.images_n];
  const I image = I(between(given, i64(0), i64(s.images) - 1));
  const I region = I(at.n) * s.regions_n;
  const auto corner = [&](int number) {
    return Acc(op::widen(regions[region + number * s.regions_axis]));
  };
  const BinSamples<Rois, Acc, I> rows(corner(1), corner(3), I(at.y), I(s.out_y), I(s.in_y));
  const BinSamples<Rois, Acc, I> columns(corner(0), corner(2), I(at.x), I(s.out_x), I(s.in_x));
  const f64 total = rows.count * columns.count;
  const I from = image * s.x_n + I(at.channel) * s.x_c;
  Acc values[kLanes] = {};
  if (Rois::kMaximum && total > 0)
    for (int lane = 0; lane < kLanes; ++lane) values[lane] = -Acc(op::inf_f32());
  f64 met = 0;
  for (i64 row = rows.first; row < rows.last; ++row) {
    I above, below;
    Acc of_above, of_below;
    if (!rows.place(row, above, below, of_above, of_below)) continue;
    for (i64 column = columns.first; column < columns.last; ++column) {
      I left, right;
      Acc of_left, of_right;
      if (!columns.place(column, left, right, of_left, of_right)) continue;
      met += 1;
      const I of_rows[] = {above, below}, of_columns[] = {left, right};
      const Acc row_weights[] = {of_above, of_below}, column_weights[] = {of_left, of_right};
      Acc sums[kLanes] = {};
      UNROLL
      for (int corner = 0; corner < 4; ++corner) {
        const Acc weight = row_weights[corner / 2] * column_weights[corner % 2];
        const auto read = load_lanes<kLanes>(
            x, from + of_rows[corner / 2] * s.x_y + of_columns[corner % 2] * s.x_x, aligned);
        UNROLL
        for (int lane = 0; lane < kLanes; ++lane) {
          const Acc value = weight * Acc(op::widen(read[lane]));
          if (!Rois::kMaximum)
            sums[lane] += value;
          else if (values[lane] < value)
            values[lane] = value;
        }
      }
      UNROLL
      for (int lane = 0; lane < kLanes; ++lane)
        if (!Rois::kMaximum) values[lane] += sums[lane];
    }
  }
  UNROLL
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!Rois::kMaximum)
      values[lane] /= Acc(total > 1 ? total : 1);
    else if (met < total && values[lane] < Acc(0))
      values[lane] = 0;  // samples outside
  }
  store_channels(values, at, result);
}

}  // namespace window
