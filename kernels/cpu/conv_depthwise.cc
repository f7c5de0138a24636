// The inner loops of depthwise convolutions, along channels.
#include "anneal/kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/kernels/cpu/conv_depthwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "anneal/kernels/cpu/conv_direct.h"

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

constexpr int64_t kLanes = HWY_LANES(float);
// Sums side by side, and weights, stay in registers.
constexpr int kPixels = HWY_TARGET == HWY_AVX3 ? 8 : 4;

// The channels [channel, channel + kVectors * lanes) of one pixel, whichever taps it meets.
template <int kVectors>
HWY_INLINE void pixel_channels(const DirectRun& run, const PixelColumn& pixel, int64_t channel,
                               float* out) {
  V sums[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) sums[v] = hn::Zero(D());
  const float* const weights = run.weights + pixel.first_column * run.padded + channel;
  for (int64_t row = 0; row < run.taps.rows; ++row) {
    const float* from =
        reinterpret_cast<const float*>(pixel.x) + run.taps.row_offsets[row] + channel;
    const float* weight = weights + run.taps.kernel_rows[row] * run.kernel_row;
    for (int64_t column = 0; column < pixel.columns; ++column) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        sums[v] = hn::MulAdd(hn::LoadU(D(), from + v * kLanes), hn::LoadU(D(), weight + v * kLanes),
                             sums[v]);
      from += run.taps.column_step;
      weight += run.padded;
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[v], D(), out + channel + v * kLanes);
}

void pixel(const DirectRun& run, int64_t i, float* out) {
  int64_t channel = 0;
  for (; channel + 4 * kLanes <= run.channels; channel += 4 * kLanes)
    pixel_channels<4>(run, run.pixels[i], channel, out);
  for (; channel + kLanes <= run.channels; channel += kLanes)
    pixel_channels<1>(run, run.pixels[i], channel, out);
  if (channel < run.channels) pixel_channels<1>(run, run.pixels[i], run.channels - kLanes, out);
}

// One vector of channels of kCount pixels that meet all columns of the kernel: each element of x is
// loaded once for all of them.
template <int kColumns, int kStride, int kCount>
HWY_INLINE void inner_pixels(const DirectRun& run, int64_t first, int64_t channel, float* out) {
  V sums[kCount];
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) sums[i] = hn::Zero(D());
  const float* const x = reinterpret_cast<const float*>(run.pixels[first].x) + channel;
  const int64_t step = run.taps.column_step;
  for (int64_t row = 0; row < run.taps.rows; ++row) {
    const float* weight = run.weights + run.taps.kernel_rows[row] * run.kernel_row + channel;
    V weights[kColumns];
#pragma GCC unroll 8
    for (int k = 0; k < kColumns; ++k) weights[k] = hn::LoadU(D(), weight + k * run.padded);
    const float* from = x + run.taps.row_offsets[row];
#pragma GCC unroll 32
    for (int c = 0; c < (kCount - 1) * kStride + kColumns; ++c, from += step) {
      const V column = hn::LoadU(D(), from);
#pragma GCC unroll 8
      for (int k = c % kStride; k < kColumns; k += kStride)
        if (c >= k && (c - k) / kStride < kCount)
          sums[(c - k) / kStride] = hn::MulAdd(column, weights[k], sums[(c - k) / kStride]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i)
    hn::StoreU(sums[i], D(), out + (first + i) * run.channels + channel);
}

// Pixels [begin, end), of which the last few may be computed twice.
template <int kColumns, int kStride>
void inner_vector(const DirectRun& run, int64_t begin, int64_t end, int64_t channel, float* out) {
  int64_t i = begin;
  for (; i + kPixels <= end; i += kPixels)
    inner_pixels<kColumns, kStride, kPixels>(run, i, channel, out);
  if (end - begin >= 4) {
    for (; i < end; i += 4)
      inner_pixels<kColumns, kStride, 4>(run, std::min(i, end - 4), channel, out);
  }
  for (; i < end; ++i) inner_pixels<kColumns, kStride, 1>(run, i, channel, out);
}

// Channels outermost, so that what a row of pixels has in common stays in the first-level cache.
template <int kColumns, int kStride>
void inner_run(const DirectRun& run, int64_t begin, int64_t end, float* out) {
  for (int64_t channel = 0; channel < run.channels; channel += kLanes)
    inner_vector<kColumns, kStride>(run, begin, end, std::min(channel, run.channels - kLanes), out);
}

using InnerRun = void (*)(const DirectRun&, int64_t begin, int64_t end, float* out);
template <int kColumns>
InnerRun inner_of(int64_t stride) {
  return stride == 1 ? inner_run<kColumns, 1> : inner_run<kColumns, 2>;
}
InnerRun inner_of(const DirectRun& run) {
  if (run.stride != 1 && run.stride != 2) return nullptr;
  switch (run.kernel_columns) {
    case 3:
      return inner_of<3>(run.stride);
    case 5:
      return inner_of<5>(run.stride);
    case 7:
      return inner_of<7>(run.stride);
    default:
      return nullptr;
  }
}

void run_few_channels(const DirectRun& run, float* out) {
  for (int64_t i = 0; i < run.count; ++i) {
    const PixelColumn& pixel = run.pixels[i];
    for (int64_t channel = 0; channel < run.channels; ++channel) {
      float sum = 0;
      for (int64_t row = 0; row < run.taps.rows; ++row) {
        const float* from =
            reinterpret_cast<const float*>(pixel.x) + run.taps.row_offsets[row] + channel;
        const float* weight = run.weights + pixel.first_column * run.padded +
                              run.taps.kernel_rows[row] * run.kernel_row + channel;
        for (int64_t column = 0; column < pixel.columns; ++column) {
          const float product = from[column * run.taps.column_step] * weight[column * run.padded];
          sum += product;
        }
      }
      out[i * run.channels + channel] = sum;
    }
  }
}

}  // namespace

void depthwise_run(const DirectRun& run, float* out) {
  if (run.channels < kLanes) return run_few_channels(run, out);
  const InnerRun inner = inner_of(run);
  for (int64_t i = 0; i < run.count;) {
    int64_t end = i;
    while (inner != nullptr && end < run.count && run.pixels[end].columns == run.kernel_columns)
      ++end;
    if (end > i) {
      inner(run, i, end, out);
      i = end;
    } else {
      pixel(run, i, out + i * run.channels);
      ++i;
    }
  }
}

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anneal::cpu {

RunDepthwise run_depthwise(Isa isa) { return ANNEAL_BY_ISA(isa, depthwise_run); }

}  // namespace anneal::cpu
#endif
