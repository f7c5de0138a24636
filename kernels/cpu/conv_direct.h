// Convolutions without a matrix product, for groups of few channels: output channels lie along
// vectors, and each sum is a walk over the taps. What the inner loops are told.
#pragma once
#include <cstdint>

#include "anneal/core/isa.h"
#include "anneal/kernels/cpu/window.h"

namespace anneal::cpu {

struct PixelColumn {
  const std::byte* x;             // the first column of taps that meets the input
  int64_t first_column, columns;  // of the kernel
};

// Output pixels of one row.
struct DirectRun {
  const PixelTaps& taps;  // its rows
  const PixelColumn* pixels;
  int64_t count, channels;  // of the output
  // One number per padded output channel for each input channel of its group, for each tap.
  const float* weights;
  int64_t padded, kernel_row;
  int64_t kernel_columns, stride;  // stride 0: the kernel is dilated along the row
  // Of groups with several channels.
  int64_t group_channels = 1, x_channels = 0;
  const int32_t* lookup = nullptr;
};

// One output channel for each input channel.
using RunDepthwise = void (*)(const DirectRun&, float* out);
RunDepthwise run_depthwise(Isa isa);

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
