// The inner loops of depthwise convolutions, along channels.
#include "anneal/kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/kernels/cpu/conv_depthwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "anneal/kernels/cpu/conv_direct.h"

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

#if HWY_TARGET == HWY_AVX3
constexpr int kInnerVectors = 2;
#else
constexpr int kInnerVectors = 1;
#endif

// Elements of x as floats; a zero point is taken off integers, exactly.
template <class T>
HWY_INLINE V load(const T* from, V zero) {
  if constexpr (sizeof(T) == 4) {
    return hn::LoadU(D(), from);
  } else {
    const hn::RebindToSigned<D> di;
    const hn::Rebind<T, D> dn;
    return hn::Sub(hn::ConvertTo(D(), hn::PromoteTo(di, hn::LoadU(dn, from))), zero);
  }
}

// The channels [channel, channel + kVectors * lanes) of one pixel.
template <int kVectors, class T>
HWY_INLINE void pixel_channels(const DirectRun& run, const PixelColumn& pixel, int64_t channel,
                               V zero, float* out) {
  constexpr int64_t kLanes = HWY_LANES(float);
  V sums[kVectors];
  for (int v = 0; v < kVectors; ++v) sums[v] = hn::Zero(D());
  const float* const weights = run.weights + pixel.first_column * run.padded + channel;
  for (int64_t row = 0; row < run.taps.rows; ++row) {
    const T* from = reinterpret_cast<const T*>(pixel.x) + run.taps.row_offsets[row] + channel;
    const float* weight = weights + run.taps.kernel_rows[row] * run.kernel_row;
    for (int64_t column = 0; column < pixel.columns; ++column) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        sums[v] =
            hn::MulAdd(load(from + v * kLanes, zero), hn::LoadU(D(), weight + v * kLanes), sums[v]);
      from += run.taps.column_step;
      weight += run.padded;
    }
  }
  for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[v], D(), out + channel + v * kLanes);
}

// The same for pixels [begin, end) that meet all of a 3 x 3 kernel, whose weights stay in
// registers.
template <int kVectors, class T>
HWY_INLINE void inner_3x3(const DirectRun& run, int64_t begin, int64_t end, int64_t channel, V zero,
                          float* out) {
  constexpr int64_t kLanes = HWY_LANES(float);
  V weights[9][kVectors];
#pragma GCC unroll 9
  for (int tap = 0; tap < 9; ++tap)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      weights[tap][v] = hn::LoadU(D(), run.weights + tap * run.padded + channel + v * kLanes);
  const int64_t offsets[3] = {run.taps.row_offsets[0], run.taps.row_offsets[1],
                              run.taps.row_offsets[2]};
  const int64_t step = run.taps.column_step;
  for (int64_t i = begin; i < end; ++i) {
    const T* const from = reinterpret_cast<const T*>(run.pixels[i].x) + channel;
    V sums[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sums[v] = hn::Zero(D());
#pragma GCC unroll 9
    for (int tap = 0; tap < 9; ++tap)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v)
        sums[v] = hn::MulAdd(load(from + offsets[tap / 3] + tap % 3 * step + v * kLanes, zero),
                             weights[tap][v], sums[v]);
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      hn::StoreU(sums[v], D(), out + i * run.channels + channel + v * kLanes);
  }
}

template <int kVectors, class T>
void run_channels(const DirectRun& run, int64_t channel, V zero, float* out) {
  int64_t i = 0;
  while (i < run.count) {
    int64_t end = i;
    if constexpr (kVectors <= kInnerVectors)
      while (run.is_3x3 && end < run.count && run.pixels[end].columns == 3) ++end;
    if (end > i) {
      inner_3x3<std::min(kVectors, kInnerVectors), T>(run, i, end, channel, zero, out);
      i = end;
    } else {
      pixel_channels<kVectors, T>(run, run.pixels[i], channel, zero, out + i * run.channels);
      ++i;
    }
  }
}

template <class T>
void run_few_channels(const DirectRun& run, float zero, float* out) {
  for (int64_t i = 0; i < run.count; ++i) {
    const PixelColumn& pixel = run.pixels[i];
    for (int64_t channel = 0; channel < run.channels; ++channel) {
      float sum = 0;
      for (int64_t row = 0; row < run.taps.rows; ++row) {
        const T* from = reinterpret_cast<const T*>(pixel.x) + run.taps.row_offsets[row] + channel;
        const float* weight = run.weights + pixel.first_column * run.padded +
                              run.taps.kernel_rows[row] * run.kernel_row + channel;
        for (int64_t column = 0; column < pixel.columns; ++column) {
          const float product = (static_cast<float>(from[column * run.taps.column_step]) - zero) *
                                weight[column * run.padded];
          sum += product;
        }
      }
      out[i * run.channels + channel] = sum;
    }
  }
}

// Channels outermost, so that what a row of pixels has in common stays in the first-level cache.
template <class T>
void run_pixels(const DirectRun& run, float zero_point, float* out) {
  constexpr int64_t kLanes = HWY_LANES(float);
  if (run.channels < kLanes) return run_few_channels<T>(run, zero_point, out);
  const V zero = hn::Set(D(), zero_point);
  const int64_t wide = run.is_3x3 ? kInnerVectors : 4;
  int64_t channel = 0;
  for (; channel + wide * kLanes <= run.channels; channel += wide * kLanes) {
    if (run.is_3x3) {
      run_channels<kInnerVectors, T>(run, channel, zero, out);
    } else {
      run_channels<4, T>(run, channel, zero, out);
    }
  }
  for (; channel + kLanes <= run.channels; channel += kLanes)
    run_channels<1, T>(run, channel, zero, out);
  if (channel < run.channels) run_channels<1, T>(run, run.channels - kLanes, zero, out);
}

}  // namespace

void depthwise_run(const DirectRun& run, DataType dtype, float zero, float* out) {
  switch (dtype) {
    case DataType::kI8:
      return run_pixels<int8_t>(run, zero, out);
    case DataType::kU8:
      return run_pixels<uint8_t>(run, zero, out);
    default:
      return run_pixels<float>(run, 0, out);
  }
}

// In place: whole numbers as integers.
void to_integers(float* values, int64_t count) {
  const hn::RebindToSigned<D> di;
  auto* out = reinterpret_cast<int32_t*>(values);
  int64_t i = 0;
  for (; i + static_cast<int64_t>(HWY_LANES(float)) <= count;
       i += static_cast<int64_t>(HWY_LANES(float)))
    hn::StoreU(hn::ConvertTo(di, hn::LoadU(D(), values + i)), di, out + i);
  for (; i < count; ++i) {
    const auto whole = static_cast<int32_t>(values[i]);
    std::memcpy(values + i, &whole, sizeof(whole));
  }
}

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anneal::cpu {

RunDepthwise run_depthwise(Isa isa) { return ANNEAL_BY_ISA(isa, depthwise_run); }
ToIntegers floats_to_integers(Isa isa) { return ANNEAL_BY_ISA(isa, to_integers); }

}  // namespace anneal::cpu
#endif
