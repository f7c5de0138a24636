// The geometry of convolutions and pools over channels-last activations.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "anneal/kernels/cpu/conv/channels_last.h"

namespace anneal::cpu {

struct Window {
  Window() = default;
  // T: Conv or Pool. kernel: sizes of its spatial axes, beginning at `first`.
  template <class T, class Sizes>
  Window(const T& op, const Sizes& sizes, int first, const Dims& output) {
    const int axes = output.rank() - 2;
    out = spatial_of(output, 2, axes, 1);
    kernel = spatial_of(sizes, first, axes, 1);
    stride = spatial_of(op.strides, 0, axes, 1);
    pad = spatial_of(op.pads_begin, 0, axes, 0);
    dilation = spatial_of(op.dilations, 0, axes, 1);
  }
  Spatial out{}, kernel{}, stride{}, pad{}, dilation{};
  int64_t outputs() const { return out[0] * out[1] * out[2]; }
  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  // One tap that meets each input element once.
  bool is_pointwise() const;
};

// The taps that meet the input at one output position: rows of taps along the last axis, all of the
// same columns.
struct PixelTaps {
  static constexpr int64_t kMostRows = 64;

  const std::byte* x = nullptr;  // the first column met, of input row 0
  int64_t rows = 0;
  std::array<int64_t, kMostRows> row_offsets;  // elements from x
  std::array<int64_t, kMostRows> kernel_rows;  // which rows of the kernel these are
  int64_t first_column = 0, columns = 0;       // of the kernel
  int64_t column_step = 0;                     // elements from tap to tap
  const std::byte* image = nullptr;            // its first element

  // First the row of outputs, numbered through images, z and y; then each position in it.
  // REQUIRES: kernel[0] * kernel[1] <= kMostRows
  void enter_row(const Window& window, const ChannelsLast& input, const std::byte* data,
                 int64_t row);
  void enter_column(const Window& window, const ChannelsLast& input, int64_t column);
};

}  // namespace anneal::cpu
