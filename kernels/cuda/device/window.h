// Windows over strided images, a few outputs to a thread: pools and depthwise convolutions.
//
// Shape (window_text.h writes it) holds the numbers; s.at(i) gives where the outputs of thread i
// begin: of kLanes channels c and kPixels columns x. Fewer than three spatial axes are z, y, x with
// leading ones of size 1.
//
// Result stores kLanes neighbouring channels at once: columns(channel) reads their operands that
// are the same in all places, and result(values, columns, n, channel, z, y, x) stores.
#pragma once

namespace window {

// f(value, z, y, x) with kLanes channels of each element of the window that is not padding.
template <int kLanes, class Shape, class T, class At, class F>
__device__ void for_window(const Shape& s, In<T> data, const At& at, bool aligned, F f) {
  using I = typename Shape::Index;
  const I z0 = I(at.z) * s.stride_z - s.pad_z, y0 = I(at.y) * s.stride_y - s.pad_y,
          x0 = I(at.x) * s.stride_x - s.pad_x;
  const I corner = I(at.n) * s.x_n + I(at.channel) * s.x_c;
  for (i32 z = 0; z < s.kernel_z; ++z) {
    const I in_z = z0 + z * s.dilation_z;
    if (Shape::kPadded && (in_z < 0 || in_z >= s.in_z)) continue;
    for (i32 y = 0; y < s.kernel_y; ++y) {
      const I in_y = y0 + y * s.dilation_y;
      if (Shape::kPadded && (in_y < 0 || in_y >= s.in_y)) continue;
      const I row = corner + in_z * s.x_z + in_y * s.x_y;
      for (i32 x = 0; x < s.kernel_x; ++x) {
        const I in_x = x0 + x * s.dilation_x;
        if (Shape::kPadded && (in_x < 0 || in_x >= s.in_x)) continue;
        f(load_lanes<kLanes>(data, row + in_x * s.x_x, aligned), in_z, in_y, in_x, z, y, x);
      }
    }
  }
}

// The outputs of a thread at one place.
template <int kLanes, class Acc, class At, class Result>
__device__ void store_channels(const Acc (&values)[kLanes], const At& at, const Result& result) {
  UNROLL
  for (int first = 0; first < kLanes; first += Result::kLanes) {
    Vec<Acc, Result::kLanes> some;
    UNROLL
    for (int lane = 0; lane < Result::kLanes; ++lane) some[lane] = values[first + lane];
    result(some, result.columns(at.c + first), at.n, at.c + first, at.z, at.y, at.x);
  }
}

// The order in which the elements of a window are met decides between equal maxima: the first.
template <class Acc>
struct Maximum {
  Acc best;
  bool any = false;
  __device__ bool add(Acc value) {  // whether it is the maximum now
    if (any && !(value > best) && !(value != value && best == best)) return false;
    best = value;
    any = true;
    return true;
  }
};

template <int kLanes, class Acc, class Shape, class T, class Result>
__device__ void max_pool(const Shape& s, In<T> x, bool aligned, Acc lowest, const Result& result) {
  const i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= s.threads) return;
  const auto at = s.at(i);
  Maximum<Acc> maxima[kLanes];
  for_window<kLanes>(s, x, at, aligned, [&](const Vec<T, kLanes>& v, i64, i64, i64, i32, i32, i32) {
    UNROLL
    for (int lane = 0; lane < kLanes; ++lane) maxima[lane].add(op::widen(v[lane]));
  });
  Acc values[kLanes];
  UNROLL
  for (int lane = 0; lane < kLanes; ++lane)
    values[lane] = maxima[lane].any ? maxima[lane].best : lowest;
  store_channels(values, at, result);
}

// result(value, index, n, channel, z, y, x). s.flat(n, channel, z, y, x) is an index in the input.
template <class Acc, class Shape, class T, class Result>
__device__ void max_pool_with_indices(const Shape& s, In<T> x, Acc lowest, const Result& result) {
  const i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= s.threads) return;
  const auto at = s.at(i);
  Maximum<Acc> maximum;
  i64 index = 0;
  for_window<1>(s, x, at, false, [&](const Vec<T, 1>& v, i64 z, i64 y, i64 x, i32, i32, i32) {
    if (maximum.add(op::widen(v[0]))) index = s.flat(at.n, at.channel, z, y, x);
  });
  result(maximum.any ? maximum.best : lowest, index, at.n, at.channel, at.z, at.y, at.x);
}

// Elements of a window along one axis that count: those in the input and `before` and `after` it.
__device__ inline i64 inside(i64 first, i64 kernel, i64 dilation, i64 size, i64 before, i64 after) {
  const i64 begin = first + before < 0 ? (-first - before + dilation - 1) / dilation : 0;
  const i64 room = size + after - 1 - first;
  const i64 end = room < 0 ? 0 : room / dilation + 1;
  const i64 count = (end < kernel ? end : kernel) - begin;
  return count > 0 ? count : 0;
}

template <int kLanes, class Acc, class Shape, class T, class Result>
__device__ void average_pool(const Shape& s, In<T> x, bool aligned, const Result& result) {
  const i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= s.threads) return;
  const auto at = s.at(i);
  Acc sums[kLanes] = {};
  for_window<kLanes>(s, x, at, aligned, [&](const Vec<T, kLanes>& v, i64, i64, i64, i32, i32, i32) {
    UNROLL
    for (int lane = 0; lane < kLanes; ++lane) sums[lane] += op::widen(v[lane]);
  });
  i64 divisor = i64(s.kernel_z) * s.kernel_y * s.kernel_x;
  if constexpr (!Shape::kAllCount) {
    const auto count = [](i64 at, i64 stride, i64 pad, i64 kernel, i64 dilation, i64 size,
                          i64 pad_end) {
      return inside(at * stride - pad, kernel, dilation, size, Shape::kCountsPadding ? pad : 0,
                    Shape::kCountsPadding ? pad_end : 0);
    };
    divisor = count(at.z, s.stride_z, s.pad_z, s.kernel_z, s.dilation_z, s.in_z, s.pad_end_z) *
              count(at.y, s.stride_y, s.pad_y, s.kernel_y, s.dilation_y, s.in_y, s.pad_end_y) *
              count(at.x, s.stride_x, s.pad_x, s.kernel_x, s.dilation_x, s.in_x, s.pad_end_x);
  }
  UNROLL
  for (int lane = 0; lane < kLanes; ++lane)
    sums[lane] = divisor > 0 ? sums[lane] / Acc(divisor) : Acc(0);
  store_channels(sums, at, result);
}

template <int kPower, class Acc, class Shape, class T, class Result>
__device__ void lp_pool(const Shape& s, In<T> x, const Result& result) {
  const i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= s.threads) return;
  const auto at = s.at(i);
  Acc sums[1] = {};
  Acc& sum = sums[0];
  for_window<1>(s, x, at, false, [&](const Vec<T, 1>& v, i64, i64, i64, i32, i32, i32) {
    const Acc value = op::abs(op::widen(v[0]));
    if constexpr (kPower == 1)
      sum += value;
    else if constexpr (kPower == 2)
      sum = multiply_add(value, value, sum);
    else
      sum += op::pow(value, Acc(kPower));
  });
  if constexpr (kPower == 2)
    sum = op::sqrt(sum);
  else if constexpr (kPower != 1)
    sum = op::pow(sum, Acc(1) / Acc(kPower));
  store_channels(sums, at, result);
}

}  // namespace window
