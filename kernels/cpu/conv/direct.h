// Convolutions without a matrix product, for groups of few channels: output channels are the lanes
// of vectors, and each sum is a walk over the taps. This header has the parameters of the inner
// loops.
#pragma once
#include <cstdint>

#include "anneal/core/dtype.h"
#include "anneal/core/isa.h"
#include "anneal/kernels/cpu/conv/window.h"
#include "anneal/kernels/cpu/program/register_epilogue.h"

namespace anneal::cpu {

inline constexpr int64_t kMostDirectTaps = 256;  // of a kernel
// Output channels of a group of one input channel, which is repeated for each.
inline constexpr int64_t kMostRepeats = 8;

struct PixelColumn {
  const std::byte* x;             // the first column of taps that meets the input
  int64_t first_column, columns;  // of the kernel
};

// Output pixels of one row.
struct DirectRun {
  const PixelTaps& taps;      // its rows
  const PixelColumn* pixels;  // null: the kernel slides()
  int64_t count, channels;    // of the output
  // One number per padded output channel for each input channel of its group, for each tap.
  const float* weights;
  int64_t padded, kernel_row;
  DataType element = DataType::kF32;  // of x: f32, and bf16 where there is one channel to a group
  const RegisterEpilogue* finish = nullptr;  // of depthwise ones; null: sums go to `out`
  int64_t first_channel = 0;                 // those before it are done
  // As pack_dot_taps() makes them, from the first channel on; bytes from row to row.
  const std::byte* dot_taps = nullptr;
  int64_t dot_row = 0;
  // For kernels that slide: element 0 of the image, and the column at which the first pixel begins,
  // which may be padding.
  const std::byte* x = nullptr;
  int64_t first_column = 0, input_columns = 0, kernel_columns = 0, stride = 0;
  // For groups with several channels.
  int64_t group_channels = 1, x_channels = 0;
  const int32_t* lookup = nullptr;
};

// Whether there are loops for these columns of the kernel and steps along a row, which make several
// pixels at once.
inline bool slides(int64_t columns, int64_t stride, int64_t dilation) {
  return (columns == 3 || columns == 5 || columns == 7) && (stride == 1 || stride == 2) &&
         dilation == 1;
}
inline bool slides(const Window& window) {
  return slides(window.kernel[2], window.stride[2], window.dilation[2]);
}

// One output channel for each input channel, of as many channels as a vector has lanes or more.
struct RunDepthwise {
  int64_t lanes;
  void (*run)(const DirectRun&, float* out);
  CanStore finishes = stores_nothing;
};
RunDepthwise run_depthwise(Isa isa);

// As RunDepthwise, for bf16 by dot products of two rows of taps, for kernels of three or five
// columns that slide, and all channels that fill groups of kDotChannels; RunDepthwise computes the
// others. Sums of two products each are added as gemm/bf16.h says.
inline constexpr int64_t kDotChannels = 32;
struct DotTaps {
  int64_t rows = 0, columns = 0;  // of the kernel
  int64_t channels = 0;           // a multiple of kDotChannels
  int64_t padded = 0;             // as DirectRun has it
  // The bytes for `channels` channels in a row.
  static int64_t bytes_of(int64_t columns, int64_t channels) { return columns * channels * 4; }
  int64_t row_bytes() const { return bytes_of(columns, channels); }
  size_t bytes() const { return static_cast<size_t>(2 * rows * row_bytes()); }
};
// weights: as DirectRun has them, numbers that bf16 holds. For each row of the kernel the weights
// of it and the next one, then of it alone.
void pack_dot_taps(const DotTaps& taps, const float* weights, std::byte* to);
void depthwise_dots(const DirectRun& run, float* out);  // REQUIRES: computes_bf16()

// Any groups, of f32, that fit two vectors. `lookup` begins with how many vectors of x one of
// outputs needs; then for each vector of outputs the channel of x to load from, and for each input
// channel of a group its place behind that, in each lane.
struct RunGrouped {
  int64_t lanes;
  void (*run)(const DirectRun&, float* out);
};
RunGrouped run_grouped(Isa isa);
// Where vectors of outputs begin: the last one may overlap the one before.
inline int64_t vector_start(int64_t vector, int64_t lanes, int64_t channels) {
  const int64_t start = vector * lanes;
  return start + lanes <= channels || channels < lanes ? start : channels - lanes;
}

}  // namespace anneal::cpu
