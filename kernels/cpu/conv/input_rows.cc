#include "anneal/kernels/cpu/conv/input_rows.h"

#include <algorithm>
#include <cstring>

namespace anneal::cpu {

std::byte* ConvRows::fill(int64_t n, std::byte* to) const {
  const size_t bytes = static_cast<size_t>(n) * kernels.element_size();
  std::memset(to, padding, bytes);
  return to + bytes;
}

std::byte* ConvRows::copy(const std::byte* from, int64_t n, std::byte* to) const {
  if (kernels.kind == GemmKind::kF32 && n >= 4 && n <= 64) {
    // Quads, the last of which may overlap the one before: most taps are too short for memcpy().
    for (int64_t i = 0; i < n; i += 4) {
      const int64_t at = std::min(i, n - 4) * 4;
      std::memcpy(to + at, from + at, 16);
    }
    return to + n * 4;
  }
  kernels.fetch(x.element, from, n, zero, to);
  return to + static_cast<size_t>(n) * kernels.element_size();
}

// Elements [begin, end) of one row of taps with all their channels.
std::byte* ConvRows::fetch_tap_row(const Place& at, int64_t begin, int64_t end,
                                   std::byte* to) const {
  const int64_t z = at.z + at.kernel_z * window.dilation[0];
  const int64_t y = at.y + at.kernel_y * window.dilation[1];
  if (z < 0 || z >= x.size[0] || y < 0 || y >= x.size[1]) return fill(end - begin, to);
  const std::byte* const row = data + (z * x.strides[0] + y * x.strides[1]) * size;
  if (window.dilation[2] == 1 && x.strides[2] == channels) {
    // Taps are consecutive: padding, a run of input, padding.
    const int64_t low = std::clamp(-at.x * channels, begin, end);
    const int64_t high = std::clamp((x.size[2] - at.x) * channels, low, end);
    if (low > begin) to = fill(low - begin, to);
    if (high > low) to = copy(row + (at.x * channels + low) * size, high - low, to);
    return end > high ? fill(end - high, to) : to;
  }
  for (int64_t tap = begin / channels, channel = begin % channels; begin < end; ++tap) {
    const int64_t n = std::min(channels - channel, end - begin);
    const int64_t column = at.x + tap * window.dilation[2];
    to = column < 0 || column >= x.size[2]
             ? fill(n, to)
             : copy(row + (column * x.strides[2] + channel) * size, n, to);
    begin += n;
    channel = 0;
  }
  return to;
}

void ConvRows::fetch(int64_t first_row, int64_t rows, int64_t first_k, int64_t count, std::byte* to,
                     int64_t pitch) const {
  const int64_t per_tap_row = window.kernel[2] * channels;
  if (per_tap_row == 0 || count == 0) return;
  const int64_t first_tap_row = first_k / per_tap_row;
  const int64_t first_begin = first_k % per_tap_row;
  const int64_t kernel_z = first_tap_row / window.kernel[1];
  const int64_t kernel_y = first_tap_row % window.kernel[1];
  int64_t column = first_row % window.out[2];
  int64_t y = first_row / window.out[2] % window.out[1];
  int64_t z = first_row / window.out[2] / window.out[1];
  for (int64_t row = 0; row < rows; ++row, to += pitch) {
    Place at{z * window.stride[0] - window.pad[0], y * window.stride[1] - window.pad[1],
             column * window.stride[2] - window.pad[2], kernel_z, kernel_y};
    std::byte* out = to;
    int64_t begin = first_begin;
    for (int64_t left = count; left > 0;) {
      const int64_t end = std::min(per_tap_row, begin + left);
      out = fetch_tap_row(at, begin, end, out);
      left -= end - begin;
      begin = 0;
      if (++at.kernel_y == window.kernel[1]) at.kernel_y = 0, ++at.kernel_z;
    }
    std::memset(out, 0, 4);  // elements beyond k meet zeros
    if (++column < window.out[2]) continue;
    column = 0;
    if (++y == window.out[1]) y = 0, ++z;
  }
}

}  // namespace anneal::cpu
