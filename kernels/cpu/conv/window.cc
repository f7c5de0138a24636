#include "anneal/kernels/cpu/conv/window.h"

#include <algorithm>

#include "anneal/core/integer.h"

namespace anneal::cpu {

bool Window::is_pointwise() const {
  const Spatial ones{1, 1, 1}, zeros{0, 0, 0};
  return kernel == ones && stride == ones && pad == zeros;
}

void PixelTaps::enter_row(const Window& window, const ChannelsLast& input, const std::byte* data,
                          int64_t row) {
  const int64_t image_index = row / window.out[1] / window.out[0];
  const int64_t z = row / window.out[1] % window.out[0] * window.stride[0] - window.pad[0];
  const int64_t y = row % window.out[1] * window.stride[1] - window.pad[1];
  image = data + image_index * input.image_stride * static_cast<int64_t>(size_of(input.element));
  column_step = window.dilation[2] * input.strides[2];
  rows = 0;
  for (int64_t kz = 0; kz < window.kernel[0]; ++kz) {
    const int64_t iz = z + kz * window.dilation[0];
    if (iz < 0 || iz >= input.size[0]) continue;
    for (int64_t ky = 0; ky < window.kernel[1]; ++ky) {
      const int64_t iy = y + ky * window.dilation[1];
      if (iy < 0 || iy >= input.size[1]) continue;
      row_offsets[static_cast<size_t>(rows)] = iz * input.strides[0] + iy * input.strides[1];
      kernel_rows[static_cast<size_t>(rows++)] = kz * window.kernel[1] + ky;
    }
  }
}

void PixelTaps::enter_column(const Window& window, const ChannelsLast& input, int64_t column) {
  const int64_t dilation = window.dilation[2];
  const int64_t x0 = column * window.stride[2] - window.pad[2];
  first_column = x0 < 0 ? ceil_div(-x0, dilation) : 0;
  const int64_t met = x0 >= input.size[2] ? 0 : (input.size[2] - 1 - x0) / dilation + 1;
  columns = std::max<int64_t>(std::min(window.kernel[2], met) - first_column, 0);
  x = image + (x0 + first_column * dilation) * input.strides[2] *
                  static_cast<int64_t>(size_of(input.element));
}

}  // namespace anneal::cpu
