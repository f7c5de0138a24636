// Winograd's transform of weights, along output channels.
#include "anneal/kernels/cpu/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/kernels/cpu/conv/winograd_weights.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "anneal/core/fail.h"
#include "anneal/core/float16.h"
#include "anneal/kernels/cpu/base/workspace.h"
#include "anneal/kernels/cpu/conv/winograd.h"
#include "anneal/kernels/cpu/gemm/transpose.h"

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<double>;
using Halves = hn::Rebind<float, D>;
using V = hn::Vec<D>;

constexpr int kTaps = 3, kIn = WinogradTile::kInputs;
constexpr int64_t kMostColumns = 32;  // of a panel
// Input channels whose taps are brought side by side at a time, in the first-level cache.
constexpr int64_t kInputs = 16, kMostTaps = kInputs * kTaps * kTaps;

// G: rows are powers of a point by 1 / (2 p^2 (p^2 - q^2)), q being the other one. No operation is
// fused with another one, so that all instruction sets give the same bits.
HWY_INLINE void transform(V x, V y, V z, V (&to)[kIn]) {
  const double a = std::sqrt(0.5), b = std::sqrt(2.0);
  const double at_a = -2.0 / 3, at_b = 1.0 / 6;
  const auto times = [](double factor, V value)
                         HWY_ATTR { return hn::Mul(hn::Set(D(), factor), value); };
  const V x_a = times(at_a, x), y_a = times(at_a * a, y), z_a = times(at_a * a * a, z);
  const V x_b = times(at_b, x), y_b = times(at_b * b, y), z_b = times(at_b * b * b, z);
  to[0] = x;
  to[1] = hn::Add(hn::Add(x_a, y_a), z_a);
  to[2] = hn::Add(hn::Sub(x_a, y_a), z_a);
  to[3] = hn::Add(hn::Add(x_b, y_b), z_b);
  to[4] = hn::Add(hn::Sub(x_b, y_b), z_b);
  to[5] = z;
}

// For one input channel and as many columns as a vector has lanes; columns[i] of each tap, and of
// each position, are kMostColumns apart.
HWY_INLINE void transform_columns(const float* taps, float* products) {
  V half[kTaps][kIn];
#pragma GCC unroll 3
  for (int x = 0; x < kTaps; ++x) {
    const auto tap = [&](int y) HWY_ATTR {
      return hn::PromoteTo(D(), hn::LoadU(Halves(), taps + (y * kTaps + x) * kMostColumns));
    };
    transform(tap(0), tap(1), tap(2), half[x]);
  }
#pragma GCC unroll 6
  for (int y = 0; y < kIn; ++y) {
    V out[kIn];
    transform(half[0][y], half[1][y], half[2][y], out);
#pragma GCC unroll 6
    for (int x = 0; x < kIn; ++x)
      hn::StoreU(hn::DemoteTo(Halves(), out[x]), Halves(), products + (y * kIn + x) * kMostColumns);
  }
}

// Past the cache: it is more than that holds, and whole lines need not be read before.
HWY_INLINE void store_columns(const float* products, int64_t width, float* to, int64_t step) {
  const hn::ScalableTag<float> d;
  for (int64_t position = 0; position < WinogradTile::kProducts; ++position, to += step)
    for (int64_t i = 0; i < width; i += HWY_LANES(float))
      hn::Stream(hn::Load(d, products + position * kMostColumns + i), d, to + i);
}

// to[i][column] = from[column][i] of the taps of a few input channels; columns of `from` are
// `step` apart.
void load_taps(const float* from, int64_t step, int64_t columns, int64_t taps, float* to) {
  transpose_columns(from, step, columns, taps, [to](int64_t i, const float* row) {
    std::copy(row, row + kMostColumns, to + i * kMostColumns);
  });
}
void load_taps(const BFloat16* from, int64_t step, int64_t columns, int64_t taps, float* to) {
  float wide[kMostColumns][kMostTaps];
  for (int64_t i = 0; i < columns; ++i) widen(from + i * step, taps, wide[i]);
  load_taps(wide[0], kMostTaps, columns, taps, to);
}

template <class T>
void transform_of(const TensorView& w, int64_t first, int64_t columns, int64_t width, float* to,
                  int64_t step) {
  constexpr int64_t kWindow = kTaps * kTaps;
  const int64_t inputs = w.dims[1];
  const T* const from = reinterpret_cast<const T*>(w.data) + first * inputs * kWindow;
  HWY_ALIGN float taps[kMostTaps][kMostColumns] = {};
  HWY_ALIGN float products[WinogradTile::kProducts][kMostColumns];
  for (int64_t input = 0; input < inputs; input += kInputs) {
    const int64_t n = std::min(kInputs, inputs - input);
    load_taps(from + input * kWindow, inputs * kWindow, columns, n * kWindow, taps[0]);
    for (int64_t k = 0; k < n; ++k, to += width) {
      for (int64_t i = 0; i < width; i += HWY_LANES(double))
        transform_columns(&taps[k * kWindow][i], &products[0][i]);
      store_columns(products[0], width, to, step);
    }
  }
  hwy::FlushStream();
}

}  // namespace

void transform_weights(const TensorView& w, int64_t first, int64_t columns, int64_t width,
                       float* to, int64_t step) {
  w.dtype == DataType::kBF16 ? transform_of<BFloat16>(w, first, columns, width, to, step)
                             : transform_of<float>(w, first, columns, width, to, step);
}

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anneal::cpu {
namespace {

constexpr int64_t kProducts = WinogradTile::kProducts;
// Products of this number of output channels stay in the second-level cache until they are
// transformed.
constexpr int64_t kChunk = 64;

}  // namespace

WinogradWeights::WinogradWeights(Isa isa, int64_t inputs, int64_t outputs)
    : transform_(ANNEAL_BY_ISA(isa, transform_weights)),
      layout_(f32_gemm(isa), inputs, outputs),
      chunk_panels_(std::min(kChunk / layout_.tile_columns, layout_.panels())) {
  check(layout_.tile_columns <= 32, "a panel is as wide as the transform expects at most");
}

size_t WinogradWeights::bytes() const {
  return cache_aligned(static_cast<size_t>(kProducts * layout_.panels() * layout_.panel_bytes()));
}

int64_t WinogradWeights::chunk_offset(int64_t chunk) const {
  return chunk * chunk_panels_ * kProducts * layout_.panel_bytes();
}

int64_t WinogradWeights::position_step(int64_t chunk) const {
  return std::min(chunk_panels_, layout_.panels() - chunk * chunk_panels_) * layout_.panel_bytes();
}

void WinogradWeights::pack(const TensorView& w, int64_t panel, std::byte* to) const {
  const int64_t chunk = panel / chunk_panels_, width = layout_.tile_columns, first = panel * width;
  std::byte* const at = to + chunk_offset(chunk) + panel % chunk_panels_ * layout_.panel_bytes();
  transform_(w, first, std::min(width, layout_.n - first), width, reinterpret_cast<float*>(at),
             position_step(chunk) / 4);
}

}  // namespace anneal::cpu
#endif
