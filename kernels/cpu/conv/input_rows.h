// Rows of a convolution's input as the left-hand side of a matrix product.
#pragma once
#include "anneal/kernels/cpu/conv/window.h"
#include "anneal/kernels/cpu/gemm/gemm.h"

namespace anneal::cpu {

// Rows are output positions, columns along k are taps, then the channels of one group.
struct ConvRows {
  const Window& window;
  const ChannelsLast& x;
  const GemmKernels& kernels;
  const std::byte* data = nullptr;  // of the image, at the group's first channel
  int64_t channels = 0;             // of the group
  int32_t zero = 0;                 // x's zero point
  int padding = 0;                  // the byte that padding consists of
  int64_t size = 4;                 // of an element of x

  void fetch(int64_t first_row, int64_t rows, int64_t first_k, int64_t count, std::byte* to,
             int64_t pitch) const;

 private:
  // The first tap of an output position, and a row of taps.
  struct Place {
    int64_t z, y, x;  // in the input, without the row of taps
    int64_t kernel_z, kernel_y;
  };
  std::byte* fetch_tap_row(const Place& at, int64_t begin, int64_t end, std::byte* to) const;
  std::byte* fill(int64_t n, std::byte* to) const;
  std::byte* copy(const std::byte* from, int64_t n, std::byte* to) const;
};

}  // namespace anneal::cpu
