// Depthwise convolution: output channel k is one kernel over input channel k / s.multiplier.
// Zeros: Acc of(Index k), the zero point of its weights.
#pragma once

namespace window {

// The kernel's sizes, strides and dilations are numbers in the text. A thread holds the weights of
// its kLanes channels, and reads each element of the input once for all of its kPixels outputs.
// kWeights: how many neighbouring channels have neighbouring weights, 1 or kLanes. aligned,
// w_aligned: whether lanes of x and of w may be read at once.
template <int kLanes, int kPixels, int kWeights, class Acc, class Shape, class X, class W,
          class Zeros, class Result>
__device__ void depthwise(const Shape& s, In<X> x, In<W> w, Acc x_zero, Zeros zeros, bool aligned,
                          bool w_aligned, const Result& result) {
  using I = typename Shape::Index;
  constexpr int kZ = Shape::kernel_z, kY = Shape::kernel_y, kX = Shape::kernel_x;
  constexpr int kStride = Shape::stride_x, kDilation = Shape::dilation_x;
  constexpr int kSpan = (kPixels - 1) * kStride + (kX - 1) * kDilation + 1;
  const i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= s.threads) return;
  const auto at = s.at(i);

  Acc weights[kZ][kY][kX][kLanes];
  UNROLL
  for (int first = 0; first < kLanes; first += kWeights) {
    const I from = I(at.c + first) * s.w_k;
    UNROLL
    for (int z = 0; z < kZ; ++z) {
      UNROLL
      for (int y = 0; y < kY; ++y) {
        UNROLL
        for (int x = 0; x < kX; ++x) {
          const auto some =
              load_lanes<kWeights>(w, from + z * s.w_z + y * s.w_y + x * s.w_x, w_aligned);
          UNROLL
          for (int lane = 0; lane < kWeights; ++lane)
            weights[z][y][x][first + lane] =
                Acc(op::widen(some[lane])) - zeros.of(I(at.c + first + lane));
        }
      }
    }
  }

  Acc sums[kPixels][kLanes] = {};
  const I z0 = I(at.z) * s.stride_z - s.pad_z, y0 = I(at.y) * s.stride_y - s.pad_y,
          x0 = I(at.x) * s.stride_x - s.pad_x;
  const I corner = I(at.n) * s.x_n + I(at.channel) * s.x_c;
  UNROLL
  for (int z = 0; z < kZ; ++z) {
    const I in_z = z0 + z * s.dilation_z;
    if (Shape::kPadded && (in_z < 0 || in_z >= s.in_z)) continue;
    UNROLL
    for (int y = 0; y < kY; ++y) {
      const I in_y = y0 + y * s.dilation_y;
      if (Shape::kPadded && (in_y < 0 || in_y >= s.in_y)) continue;
      const I row = corner + in_z * s.x_z + in_y * s.x_y;
      UNROLL
      for (int column = 0; column < kSpan; ++column) {
        const I in_x = x0 + column;
        // Outputs beyond the last may reach beyond the input even without padding.
        if ((Shape::kPadded || kPixels > 1) && (in_x < 0 || in_x >= s.in_x)) continue;
        const auto value = load_lanes<kLanes>(x, row + in_x * s.x_x, aligned);
        UNROLL
        for (int pixel = 0; pixel < kPixels; ++pixel) {
          const int reach = column - pixel * kStride;
          if (reach < 0 || reach % kDilation != 0 || reach / kDilation >= kX) continue;
          UNROLL
          for (int lane = 0; lane < kLanes; ++lane)
            sums[pixel][lane] =
                multiply_add(Acc(op::widen(value[lane])) - x_zero,
                             weights[z][y][reach / kDilation][lane], sums[pixel][lane]);
        }
      }
    }
  }
  decltype(result.columns(0)) of_channels[kLanes / Result::kLanes];
  UNROLL
  for (int first = 0; first < kLanes; first += Result::kLanes)
    of_channels[first / Result::kLanes] = result.columns(at.c + first);
  UNROLL
  for (int pixel = 0; pixel < kPixels; ++pixel) {
    if (at.x + pixel >= s.out_x) continue;
    UNROLL
    for (int first = 0; first < kLanes; first += Result::kLanes) {
      Vec<Acc, Result::kLanes> some;
      UNROLL
      for (int lane = 0; lane < Result::kLanes; ++lane) some[lane] = sums[pixel][first + lane];
      result(some, of_channels[first / Result::kLanes], at.n, at.c + first, at.z, at.y,
             at.x + pixel);
    }
  }
}

// For kernels too large to hold, or not known.
template <class Acc, class Shape, class X, class W, class Zeros, class Result>
__device__ void large_depthwise(const Shape& s, In<X> x, In<W> w, Acc x_zero, Zeros zeros,
                                const Result& result) {
  using I = typename Shape::Index;
  const i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= s.threads) return;
  const auto at = s.at(i);
  const I from = I(at.c) * s.w_k;
  const Acc zero = zeros.of(I(at.c));
  Acc sums[1] = {};
  for_window<1>(s, x, at, false, [&](const Vec<X, 1>& v, i64, i64, i64, i32 z, i32 y, i32 x) {
    const Acc weight = Acc(op::widen(w[from + z * s.w_z + y * s.w_y + x * s.w_x])) - zero;
    sums[0] = multiply_add(Acc(op::widen(v[0])) - x_zero, weight, sums[0]);
  });
  store_channels(sums, at, result);
}

}  // namespace window
