#include "anneal/kernels/cpu/conv_rows.h"

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
std::byte* ConvRows::fetch_tap_row(const Position& at, int64_t tap_row, int64_t begin, int64_t end,
                                   std::byte* to) const {
  const int64_t z = at.z + tap_row / window.kernel[1] * window.dilation[0];
  const int64_t y = at.y + tap_row % window.kernel[1] * window.dilation[1];
  if (z < 0 || z >= x.size[0] || y < 0 || y >= x.size[1]) return fill(end - begin, to);
  const auto size = static_cast<int64_t>(size_of(x.element));
  const std::byte* const row = data + (z * x.strides[0] + y * x.strides[1]) * size;
  if (window.dilation[2] == 1 && x.strides[2] == channels) {
    // Taps lie behind each other: padding, a run of input, padding.
    const int64_t low = std::clamp(-at.x * channels, begin, end);
    const int64_t high = std::clamp((x.size[2] - at.x) * channels, low, end);
    if (low > begin) to = fill(low - begin, to);
    if (high > low) to = copy(row + (at.x * channels + low) * size, high - low, to);
    return end > high ? fill(end - high, to) : to;
  }
  while (begin < end) {
    const int64_t tap = begin / channels, channel = begin % channels;
    const int64_t n = std::min(channels - channel, end - begin);
    const int64_t column = at.x + tap * window.dilation[2];
    to = column < 0 || column >= x.size[2]
             ? fill(n, to)
             : copy(row + (column * x.strides[2] + channel) * size, n, to);
    begin += n;
  }
  return to;
}

void ConvRows::fetch(int64_t first_row, int64_t rows, int64_t first_k, int64_t count, std::byte* to,
                     int64_t pitch) const {
  const int64_t per_tap_row = window.kernel[2] * channels;
  for (int64_t row = first_row; row < first_row + rows; ++row, to += pitch) {
    const int64_t column = row % window.out[2];
    const int64_t y = row / window.out[2] % window.out[1];
    const int64_t z = row / window.out[2] / window.out[1];
    const Position at{z * window.stride[0] - window.pad[0], y * window.stride[1] - window.pad[1],
                      column * window.stride[2] - window.pad[2]};
    std::byte* out = to;
    for (int64_t k = first_k; k < first_k + count;) {
      const int64_t begin = k % per_tap_row;
      const int64_t end = std::min(per_tap_row, begin + first_k + count - k);
      out = fetch_tap_row(at, k / per_tap_row, begin, end, out);
      k += end - begin;
    }
    std::memset(out, 0, 4);  // elements beyond k meet zeros
  }
}

}  // namespace anneal::cpu
