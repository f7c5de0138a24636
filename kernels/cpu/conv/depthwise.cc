// The inner loops of depthwise convolutions, along channels.
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/kernels/cpu/conv/depthwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "anneal/core/float16.h"
#include "anneal/kernels/cpu/conv/direct.h"
#include "anneal/kernels/cpu/gemm/gemm.h"
// In this order, which formatting must not change:
#include "anneal/kernels/cpu/program/tape_math-inl.h"
//
#include "anneal/kernels/cpu/program/vector_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

#if HWY_TARGET == HWY_AVX3
#include "anneal/kernels/cpu/gemm/register_epilogue-inl.h"
//
#include "anneal/kernels/cpu/gemm/register_epilogue_bf16-inl.h"

// The argument of finish_tile() for sums that become f32, or bf16 with AVX512_BF16.
struct ToF32 : FinishedF32 {
  static constexpr DataType kStorage = DataType::kF32;
  static HWY_INLINE __m512 to_f32(V sum) { return sum.raw; }
};
struct ToBf16 : FinishedBf16 {
  static constexpr DataType kStorage = DataType::kBF16;
  static HWY_INLINE __m512 to_f32(V sum) { return sum.raw; }
};
#endif

constexpr int64_t kLanes = HWY_LANES(float);
// Sums side by side: vectors of channels, of as many pixels.
constexpr int kVectors = HWY_TARGET == HWY_AVX3 ? 2 : 1;
constexpr int kPixels = HWY_TARGET == HWY_SCALAR ? 2 : 4;

// A row of taps: the run's first column, and the kernel's.
template <class Storage>
struct Row {
  const typename Storage::Element* x;
  const float* weights;
};
template <class Storage>
struct Rows {
  explicit Rows(const DirectRun& run) : count(run.taps.rows) {
    for (size_t i = 0; i < static_cast<size_t>(count); ++i)
      all[i] = {reinterpret_cast<const typename Storage::Element*>(run.x) +
                    run.taps.row_offsets[i] + run.first_column * run.taps.column_step,
                run.weights + run.taps.kernel_rows[i] * run.kernel_row};
  }
  int64_t count;
  std::array<Row<Storage>, PixelTaps::kMostRows> all;
};

// Where sums go: of pixels from `first` on, and of channels from `channel` on.
template <int kCount, int kWide>
HWY_INLINE void store_sums(const DirectRun& run, int64_t first, int64_t channel,
                           const V (&sums)[kCount][kWide], float* out) {
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kWide; ++v)
      hn::StoreU(sums[i][v], D(), out + (first + i) * run.channels + channel + v * kLanes);
}

#if HWY_TARGET == HWY_AVX3
template <int kCount, int kWide>
HWY_NOINLINE void finish_any(const DirectRun& run, int64_t first, int64_t channel,
                             const V (&sums)[kCount][kWide]) {
  run.finish->storage == DataType::kF32 ? finish_tile<ToF32>(*run.finish, first, channel, sums)
                                        : finish_tile<ToBf16>(*run.finish, first, channel, sums);
}
#endif

// Inline where most of the work is, and results are stored as elements of x are.
template <class Storage, bool kOften, int kCount, int kWide>
HWY_INLINE void put(const DirectRun& run, int64_t first, int64_t channel,
                    const V (&sums)[kCount][kWide], float* out) {
#if HWY_TARGET == HWY_AVX3
  if (run.finish != nullptr) {
    using Same = std::conditional_t<std::is_same_v<Storage, StoredF32>, ToF32, ToBf16>;
    if constexpr (kOften)
      if (run.finish->storage == Same::kStorage)
        return finish_tile<Same>(*run.finish, first, channel, sums);
    return finish_any(run, first, channel, sums);
  }
#endif
  store_sums(run, first, channel, sums, out);
}

// kCount pixels and kWide vectors of channels: each element of x is loaded once for all pixels.
// kColumns, kStride: of the kernel. kBorder: columns are padding unless their bit in `inside` is
// set.
template <class Storage, int kColumns, int kStride, int kCount, int kWide, bool kBorder>
HWY_INLINE void slide(const DirectRun& run, const Rows<Storage>& rows, int64_t first,
                      int64_t channel, uint32_t inside, float* out) {
  const int64_t x = first * kStride * run.taps.column_step + channel;
  V sums[kCount][kWide];
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kWide; ++v) sums[i][v] = hn::Zero(D());
  constexpr int kMet = (kCount - 1) * kStride + kColumns;
  const int64_t step = run.taps.column_step, padded = run.padded;
  for (const Row<Storage>*row = rows.all.data(), *end = row + rows.count; row != end; ++row) {
    V weights[kColumns][kWide];
#pragma GCC unroll 8
    for (int k = 0; k < kColumns; ++k)
#pragma GCC unroll 2
      for (int v = 0; v < kWide; ++v)
        weights[k][v] = hn::LoadU(D(), row->weights + channel + k * padded + v * kLanes);
    // Three columns to a pointer, which x86 addresses as base, base + step, base + 2 * step.
    const typename Storage::Element* columns[(kMet + 2) / 3];
#pragma GCC unroll 8
    for (int i = 0; i < (kMet + 2) / 3; ++i) columns[i] = row->x + x + 3 * i * step;
#pragma GCC unroll 16
    for (int c = 0; c < kMet; ++c) {
      if (kBorder && (inside >> c & 1) == 0) continue;
#pragma GCC unroll 2
      for (int v = 0; v < kWide; ++v) {
        const V column = Storage::load(columns[c / 3] + c % 3 * step + v * kLanes);
#pragma GCC unroll 8
        for (int k = c % kStride; k < kColumns; k += kStride)
          if (const int i = (c - k) / kStride; c >= k && i < kCount)
            sums[i][v] = hn::MulAdd(column, weights[k][v], sums[i][v]);
      }
    }
  }
  put<Storage, !kBorder && kCount == kPixels && kWide == kVectors>(run, first, channel, sums, out);
}

// Pixels [first, first + kCount) of the run.
template <class Storage, int kColumns, int kStride, int kCount, int kWide>
HWY_INLINE void slide(const DirectRun& run, const Rows<Storage>& rows, int64_t first,
                      int64_t channel, float* out) {
  constexpr int kMet = (kCount - 1) * kStride + kColumns;
  const int64_t begin = run.first_column + first * kStride;
  if (begin >= 0 && begin + kMet <= run.input_columns) {
    slide<Storage, kColumns, kStride, kCount, kWide, false>(run, rows, first, channel, 0, out);
  } else {
    uint32_t inside = 0;
    for (int c = 0; c < kMet; ++c)
      if (begin + c >= 0 && begin + c < run.input_columns) inside |= uint32_t{1} << c;
    slide<Storage, kColumns, kStride, kCount, kWide, true>(run, rows, first, channel, inside, out);
  }
}

// All pixels, of which the last few may be computed twice.
template <class Storage, int kColumns, int kStride, int kWide>
void slide_along(const DirectRun& run, const Rows<Storage>& rows, int64_t channel, float* out) {
  int64_t i = 0;
  if (run.count >= kPixels) {
    for (; i < run.count; i += kPixels)
      slide<Storage, kColumns, kStride, kPixels, kWide>(run, rows, std::min(i, run.count - kPixels),
                                                        channel, out);
  }
  for (; i < run.count; ++i)
    slide<Storage, kColumns, kStride, 1, kWide>(run, rows, i, channel, out);
}

// Channels outermost, so that what a row of pixels has in common stays in the first-level cache.
template <class Storage, int kColumns, int kStride>
void slide_all(const DirectRun& run, float* out) {
  const Rows<Storage> rows(run);
  int64_t channel = run.first_channel;
  for (; channel + kVectors * kLanes <= run.channels; channel += kVectors * kLanes)
    slide_along<Storage, kColumns, kStride, kVectors>(run, rows, channel, out);
  for (; channel < run.channels; channel += kLanes)
    slide_along<Storage, kColumns, kStride, 1>(run, rows, std::min(channel, run.channels - kLanes),
                                               out);
}

// Kernels of any other size: the channels [channel, channel + kWide * lanes) of one pixel.
template <class Storage, int kWide>
HWY_INLINE void pixel_channels(const DirectRun& run, int64_t i, int64_t channel, float* out) {
  const PixelColumn& pixel = run.pixels[i];
  V sums[1][kWide];
#pragma GCC unroll 4
  for (int v = 0; v < kWide; ++v) sums[0][v] = hn::Zero(D());
  const float* const weights = run.weights + pixel.first_column * run.padded + channel;
  for (int64_t row = 0; row < run.taps.rows; ++row) {
    const auto* from = reinterpret_cast<const typename Storage::Element*>(pixel.x) +
                       run.taps.row_offsets[row] + channel;
    const float* weight = weights + run.taps.kernel_rows[row] * run.kernel_row;
    for (int64_t column = 0; column < pixel.columns; ++column) {
#pragma GCC unroll 4
      for (int v = 0; v < kWide; ++v)
        sums[0][v] = hn::MulAdd(Storage::load(from + v * kLanes),
                                hn::LoadU(D(), weight + v * kLanes), sums[0][v]);
      from += run.taps.column_step;
      weight += run.padded;
    }
  }
  put<Storage, false>(run, i, channel, sums, out);
}

template <class Storage, int kWide>
HWY_INLINE void pixels_of(const DirectRun& run, int64_t channel, float* out) {
  for (int64_t i = 0; i < run.count; ++i) pixel_channels<Storage, kWide>(run, i, channel, out);
}

template <class Storage>
void any_kernel(const DirectRun& run, float* out) {
  int64_t channel = 0;
  for (; channel + 4 * kLanes <= run.channels; channel += 4 * kLanes)
    pixels_of<Storage, 4>(run, channel, out);
  for (; channel < run.channels; channel += kLanes)
    pixels_of<Storage, 1>(run, std::min(channel, run.channels - kLanes), out);
}

template <class Storage, int kColumns>
void slide_by_stride(const DirectRun& run, float* out) {
  run.stride == 1 ? slide_all<Storage, kColumns, 1>(run, out)
                  : slide_all<Storage, kColumns, 2>(run, out);
}

template <class Storage>
void run_channels(const DirectRun& run, float* out) {
  if (run.pixels != nullptr) return any_kernel<Storage>(run, out);
  switch (run.kernel_columns) {
    case 3:
      return slide_by_stride<Storage, 3>(run, out);
    case 5:
      return slide_by_stride<Storage, 5>(run, out);
    default:
      return slide_by_stride<Storage, 7>(run, out);
  }
}

}  // namespace

void depthwise_run(const DirectRun& run, float* out) {
  run.element == DataType::kBF16 ? run_channels<StoredBf16>(run, out)
                                 : run_channels<StoredF32>(run, out);
}
int64_t depthwise_lanes() { return kLanes; }

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anneal::cpu {

RunDepthwise run_depthwise(Isa isa) {
  RunDepthwise loops{ANNEAL_BY_ISA(isa, depthwise_lanes)(), ANNEAL_BY_ISA(isa, depthwise_run)};
  if (isa >= Isa::kAvx512)
    loops.finishes = computes_bf16(isa)
                         ? [](DataType to) { return to == DataType::kF32 || to == DataType::kBF16; }
                         : [](DataType to) { return to == DataType::kF32; };
  return loops;
}

}  // namespace anneal::cpu
#endif
