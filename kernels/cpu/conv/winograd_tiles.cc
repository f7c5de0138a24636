// The transforms of tiles, along channels.
#include "anneal/kernels/cpu/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/kernels/cpu/conv/winograd_tiles.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "anneal/core/float16.h"
#include "anneal/kernels/cpu/conv/winograd.h"
// In this order, which formatting must not change:
#include "anneal/kernels/cpu/program/tape_math-inl.h"
//
#include "anneal/kernels/cpu/program/vector_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

constexpr int kIn = WinogradTile::kInputs, kOut = WinogradTile::kOutputs;
constexpr int64_t kLanes = HWY_LANES(float);
constexpr float kA = 0.70710678f, kB = 1.41421356f;  // the points, with a * b = 1

// B^T: the polynomials that vanish at all points but one.
HWY_INLINE void transform_input(const V (&x)[kIn], V (&y)[kIn]) {
  const auto set = [](float value) HWY_ATTR { return hn::Set(D(), value); };
  const V a = set(kA), b = set(kB), a2 = set(0.5f), b2 = set(2.0f), sum = set(2.5f);
  y[0] = hn::NegMulAdd(sum, x[2], hn::Add(x[0], x[4]));
  y[5] = hn::NegMulAdd(sum, x[3], hn::Add(x[1], x[5]));
  const V even_a = hn::NegMulAdd(b2, x[2], x[4]), odd_a = hn::NegMulAdd(b2, x[1], x[3]);
  y[1] = hn::MulAdd(a, odd_a, even_a);
  y[2] = hn::NegMulAdd(a, odd_a, even_a);
  const V even_b = hn::NegMulAdd(a2, x[2], x[4]), odd_b = hn::NegMulAdd(a2, x[1], x[3]);
  y[3] = hn::MulAdd(b, odd_b, even_b);
  y[4] = hn::NegMulAdd(b, odd_b, even_b);
}

// A^T: powers of the points.
HWY_INLINE void transform_output(const V (&m)[kIn], V (&y)[kOut]) {
  const auto set = [](float value) HWY_ATTR { return hn::Set(D(), value); };
  const V even_a = hn::Add(m[1], m[2]), odd_a = hn::Sub(m[1], m[2]);
  const V even_b = hn::Add(m[3], m[4]), odd_b = hn::Sub(m[3], m[4]);
  y[0] = hn::Add(m[0], hn::Add(even_a, even_b));
  y[1] = hn::MulAdd(set(kB), odd_b, hn::Mul(set(kA), odd_a));
  y[2] = hn::MulAdd(set(kB * kB), even_b, hn::Mul(set(kA * kA), even_a));
  y[3] = hn::MulAdd(set(kB * kB * kB), odd_b, hn::MulAdd(set(kA * kA * kA), odd_a, m[5]));
}

template <class Storage>
HWY_INLINE void input_vector(const std::byte* const* pixels, int64_t channel, float* to,
                             int64_t step) {
  V columns[kIn][kIn];  // transformed along y: [column][position]
#pragma GCC unroll 6
  for (int x = 0; x < kIn; ++x) {
    V in[kIn];
#pragma GCC unroll 6
    for (int y = 0; y < kIn; ++y)
      in[y] = Storage::load(
          reinterpret_cast<const typename Storage::Element*>(pixels[y * kIn + x]) + channel);
    transform_input(in, columns[x]);
  }
#pragma GCC unroll 6
  for (int y = 0; y < kIn; ++y) {
    V in[kIn], out[kIn];
#pragma GCC unroll 6
    for (int x = 0; x < kIn; ++x) in[x] = columns[x][y];
    transform_input(in, out);
#pragma GCC unroll 6
    for (int x = 0; x < kIn; ++x) hn::StoreU(out[x], D(), to + (y * kIn + x) * step + channel);
  }
}

// kWhole: of all rows and columns.
template <bool kWhole>
HWY_INLINE void output_vector(const float* from, int64_t step, int64_t rows, int64_t columns,
                              float* to, int64_t row_pitch, int64_t pitch) {
  V transformed[kIn][kOut];  // along y: [position in the row][row]
#pragma GCC unroll 6
  for (int x = 0; x < kIn; ++x) {
    V in[kIn];
#pragma GCC unroll 6
    for (int y = 0; y < kIn; ++y) in[y] = hn::LoadU(D(), from + (y * kIn + x) * step);
    transform_output(in, transformed[x]);
  }
#pragma GCC unroll 4
  for (int y = 0; y < kOut; ++y) {
    if (!kWhole && y >= rows) return;
    V in[kIn], out[kOut];
#pragma GCC unroll 6
    for (int x = 0; x < kIn; ++x) in[x] = transformed[x][y];
    transform_output(in, out);
#pragma GCC unroll 4
    for (int x = 0; x < kOut; ++x)
      if (kWhole || x < columns) hn::StoreU(out[x], D(), to + y * row_pitch + x * pitch);
  }
}

template <class Storage>
void input_tile_of(const std::byte* const* pixels, int64_t channels, float* to, int64_t step) {
  int64_t channel = 0;
  for (; channel + kLanes <= channels; channel += kLanes)
    input_vector<Storage>(pixels, channel, to, step);
  if (channel < channels) input_vector<Storage>(pixels, channels - kLanes, to, step);
}

}  // namespace

void input_tile(DataType element, const std::byte* const* pixels, int64_t channels, float* to,
                int64_t step) {
  element == DataType::kBF16 ? input_tile_of<StoredBf16>(pixels, channels, to, step)
                             : input_tile_of<StoredF32>(pixels, channels, to, step);
}

void output_tile(const float* from, int64_t step, int64_t channels, int64_t rows, int64_t columns,
                 float* to, int64_t row_pitch, int64_t pitch) {
  const bool whole = rows == kOut && columns == kOut;
  for (int64_t channel = 0; channel < channels; channel += kLanes) {
    if (whole) {
      output_vector<true>(from + channel, step, rows, columns, to + channel, row_pitch, pitch);
    } else {
      output_vector<false>(from + channel, step, rows, columns, to + channel, row_pitch, pitch);
    }
  }
}

int64_t tile_lanes() { return kLanes; }

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anneal::cpu {

WinogradTransforms winograd_transforms(Isa isa) {
  return {ANNEAL_BY_ISA(isa, tile_lanes)(), ANNEAL_BY_ISA(isa, input_tile),
          ANNEAL_BY_ISA(isa, output_tile)};
}

}  // namespace anneal::cpu
#endif
