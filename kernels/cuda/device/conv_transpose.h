// Transposed convolution: input element i adds to output element i * stride - pad + tap * dilation
// of each axis. A thread gathers a few neighbouring channels of one output pixel from the taps that
// meet an input element, so it multiplies no zeros between the elements of the input.
#pragma once

namespace window {

// Which input element meets an output position through a tap; -1: none.
template <class I>
__device__ inline I gathered(I position, I tap, I dilation, I stride, I size) {
  const I scaled = position - tap * dilation;
  if (scaled < 0 || scaled % stride != 0) return -1;
  const I at = scaled / stride;
  return at < size ? at : -1;
}

// kInputs: channels of the input that are read at once. kLanes: output channels, whose weights are
// neighbours if kWeights is kLanes. aligned, w_aligned: whether they may be read at once.
template <int kInputs, int kLanes, int kWeights, class Acc, class Shape, class X, class W,
          class Result>
__device__ void conv_transpose(const Shape& s, In<X> x, In<W> w, bool aligned, bool w_aligned,
                               const Result& result) {
  using I = typename Shape::Index;
  const i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= s.threads) return;
  const auto at = s.at(i);
  const I first = I(at.channel), column = I(at.c) % s.columns;
  Acc sums[kLanes] = {};
  for (I z = 0; z < s.kernel_z; ++z) {
    const I in_z = gathered(I(at.z) + s.pad_z, z, I(s.dilation_z), I(s.stride_z), I(s.in_z));
    if (in_z < 0) continue;
    for (I y = 0; y < s.kernel_y; ++y) {
      const I in_y = gathered(I(at.y) + s.pad_y, y, I(s.dilation_y), I(s.stride_y), I(s.in_y));
      if (in_y < 0) continue;
      for (I t = 0; t < s.kernel_x; ++t) {
        const I in_x = gathered(I(at.x) + s.pad_x, t, I(s.dilation_x), I(s.stride_x), I(s.in_x));
        if (in_x < 0) continue;
        I from = I(at.n) * s.x_n + first * s.x_c + in_z * s.x_z + in_y * s.x_y + in_x * s.x_x;
        I weights = first * s.w_c + column * s.w_k + z * s.w_z + y * s.w_y + t * s.w_x;
        for (I c = 0; c < s.channels; c += kInputs) {
          const auto values = load_lanes<kInputs>(x, from, aligned);
          UNROLL
          for (int input = 0; input < kInputs; ++input) {
            const Acc value = op::widen(values[input]);
            UNROLL
            for (int lane = 0; lane < kLanes; lane += kWeights) {
              const auto some = load_lanes<kWeights>(w, weights + lane * s.w_k, w_aligned);
              UNROLL
              for (int k = 0; k < kWeights; ++k)
                sums[lane + k] = multiply_add(value, Acc(op::widen(some[k])), sums[lane + k]);
            }
            weights += s.w_c;
          }
          from += kInputs * s.x_c;
        }
      }
    }
  }
  store_channels(sums, at, result);
}

}  // namespace window
