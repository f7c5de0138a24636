// A part of a row of an output that Resize makes of a row of pixels, channels beside each other.
#pragma once
#include <cstdint>

namespace anneal::cpu {

struct ResizedRow {
  const float* x = nullptr;  // pixel `first` of the input's row
  int64_t first = 0;
  int64_t pixel_stride = 0;  // floats from pixel to pixel of x
  int64_t channels = 0, pixels = 0;
  int64_t taps = 1;  // of each output pixel: their positions in the input's row, and their weights
  const int64_t* positions = nullptr;
  const float* weights = nullptr;
  float* out = nullptr;  // dense
};

}  // namespace anneal::cpu
