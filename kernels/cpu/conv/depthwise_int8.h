// Depthwise convolutions of 8-bit numbers, in integers: the parameters of the inner loops.
//
// A lane of 32 bits holds the same column of a few rows of taps, of one channel. The columns of
// input that a run of pixels meets are laid out so first, padding as well: "staged". Then each
// output pixel is a dot product of lanes for each column of the kernel and each group of rows.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "anneal/core/dtype.h"
#include "anneal/core/isa.h"
#include "anneal/kernels/cpu/program/register_epilogue.h"

namespace anneal::cpu {

constexpr int kMostRowsOfLane = 4;

// One group of rows, of some vectors of adjacent channels.
struct DepthwiseStage {
  DataType dtype = DataType::kU8;
  int32_t zero = 0;                                      // what to take off, or 0
  std::array<const std::byte*, kMostRowsOfLane> rows{};  // their first columns
  std::array<int64_t, kMostRowsOfLane> steps{};          // bytes from column to column
  int64_t before = 0, columns = 0, after = 0;            // padding before and after
  int32_t padded_lane = 0;
  int64_t vectors = 0;  // at most kMostStagedVectors
  std::byte* to = nullptr;
  int64_t vector_stride = 0;  // bytes; columns are adjacent
};
constexpr int64_t kMostStagedVectors = 4;

// One vector of channels of a run of output pixels.
struct DepthwiseDots {
  const std::byte* x = nullptr;        // staged: the first pixel's first column
  int64_t group_stride = 0;            // bytes of x from group to group
  const std::byte* weights = nullptr;  // a vector for each column of the kernel, of each group
  const int32_t* initial = nullptr;    // of the sums
  int64_t groups = 0, kernel_columns = 0, stride = 1, dilation = 1;
  int64_t pixels = 0;
  int32_t* out = nullptr;
  int64_t out_step = 0;  // elements from pixel to pixel
  // Null: sums go to `out`. Else its row and column are those of the first pixel and channel.
  const RegisterEpilogue* finish = nullptr;
  int64_t finish_row = 0, finish_column = 0;
};

struct DepthwiseInt8 {
  int64_t lanes = 0;
  // The products of a lane: four bytes, x unsigned (signed ones are moved by 128) and weights
  // signed, or two differences from zero points of 16 bits each.
  int rows_of_lane = 0;
  void (*stage)(const DepthwiseStage&) = nullptr;
  void (*run)(const DepthwiseDots&) = nullptr;
  CanStore finishes = stores_nothing;
};
DepthwiseInt8 depthwise_i16(Isa isa);
DepthwiseInt8 depthwise_vnni();  // REQUIRES: the CPU has AVX-512 F, BW, DQ, VL and VNNI

}  // namespace anneal::cpu
