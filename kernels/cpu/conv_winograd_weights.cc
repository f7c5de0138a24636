#include <algorithm>
#include <array>
#include <cmath>

#include "anneal/core/float16.h"
#include "anneal/kernels/cpu/conv_winograd.h"
#include "anneal/kernels/cpu/workspace.h"

namespace anneal::cpu {
namespace {

constexpr int kTaps = 3, kIn = WinogradTile::kInputs;
constexpr int64_t kProducts = WinogradTile::kProducts;
// Products of so many output channels stay in the second-level cache until they are transformed.
constexpr int64_t kChunk = 64;

using Columns = std::array<double, kChunk>;  // of a panel

// A row of G: powers of a point by 1 / (2 p^2 (p^2 - q^2)), q being the other one.
struct Row {
  double g[kTaps];
};
const std::array<Row, kIn>& rows_of_g() {
  static const std::array<Row, kIn> rows = [] {
    const double a = std::sqrt(0.5), b = std::sqrt(2.0);
    const double at_a = -2.0 / 3, at_b = 1.0 / 6;
    return std::array<Row, kIn>{{{{1, 0, 0}},
                                 {{at_a, at_a * a, at_a * a * a}},
                                 {{at_a, -at_a * a, at_a * a * a}},
                                 {{at_b, at_b * b, at_b * b * b}},
                                 {{at_b, -at_b * b, at_b * b * b}},
                                 {{0, 0, 1}}}};
  }();
  return rows;
}

// to[i] = g . (x[i], y[i], z[i])
template <class T>
void combine(const Row& row, const Columns& x, const Columns& y, const Columns& z, int64_t width,
             T* to) {
  for (size_t i = 0; i < static_cast<size_t>(width); ++i)
    to[i] = static_cast<T>(row.g[0] * x[i] + row.g[1] * y[i] + row.g[2] * z[i]);
}

double number(float value) { return static_cast<double>(value); }
double number(BFloat16 value) { return static_cast<double>(to_f32(value)); }

}  // namespace

WinogradWeights::WinogradWeights(const GemmKernels& kernels, int64_t inputs, int64_t outputs)
    : layout_(kernels, inputs, outputs),
      chunk_panels_(std::min(kChunk / layout_.tile_columns, layout_.panels())) {}

size_t WinogradWeights::bytes() const {
  return align_up(static_cast<size_t>(kProducts * layout_.panels() * layout_.panel_bytes()));
}

int64_t WinogradWeights::chunk_offset(int64_t chunk) const {
  return chunk * chunk_panels_ * kProducts * layout_.panel_bytes();
}

int64_t WinogradWeights::position_step(int64_t chunk) const {
  return std::min(chunk_panels_, layout_.panels() - chunk * chunk_panels_) * layout_.panel_bytes();
}

void WinogradWeights::pack(const TensorView& w, std::byte* to) const {
  w.dtype == DataType::kBF16 ? pack_of<BFloat16>(w, to) : pack_of<float>(w, to);
}

template <class T>
void WinogradWeights::pack_of(const TensorView& w, std::byte* to) const {
  const auto* const data = reinterpret_cast<const T*>(w.data);
  const auto& g = rows_of_g();
  const int64_t width = layout_.tile_columns;
  for (int64_t panel = 0; panel < layout_.panels(); ++panel) {
    const int64_t chunk = panel / chunk_panels_, first = panel * width;
    const int64_t columns = std::min(width, layout_.n - first);
    for (int64_t lane = 0; lane < layout_.k; ++lane) {
      Columns taps[kTaps][kTaps] = {}, half[kIn][kTaps];
      for (int64_t i = 0; i < columns; ++i) {
        const T* const from = data + (first + i) * w.strides[0] + lane * w.strides[1];
        for (int y = 0; y < kTaps; ++y)
          for (int x = 0; x < kTaps; ++x)
            taps[y][x][static_cast<size_t>(i)] = number(from[y * w.strides[2] + x * w.strides[3]]);
      }
      for (size_t y = 0; y < kIn; ++y)
        for (int x = 0; x < kTaps; ++x)
          combine(g[y], taps[0][x], taps[1][x], taps[2][x], width, half[y][x].data());
      std::byte* at = to + chunk_offset(chunk) + panel % chunk_panels_ * layout_.panel_bytes() +
                      lane * width * 4;
      for (size_t y = 0; y < kIn; ++y)
        for (size_t x = 0; x < kIn; ++x, at += position_step(chunk))
          combine(g[x], half[y][0], half[y][1], half[y][2], width, reinterpret_cast<float*>(at));
    }
  }
}

}  // namespace anneal::cpu
