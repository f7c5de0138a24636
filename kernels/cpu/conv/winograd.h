// Winograd's minimal filtering F(4x4, 3x3): tiles of 4 x 4 outputs from 6 x 6 inputs by 36 products
// instead of 144. Inputs and weights are polynomials along both axes. Their values at 0,
// +-sqrt(1/2), +-sqrt(2) and infinity are multiplied:
//   y = A^T ((G w G^T) * (B^T x B)) A, summed over input channels before A is applied.
//
// Accuracy: with these points all coefficients lie between 1/6 and 2.83. The largest error of f32
// sums over 16 to 512 channels is below 2e-5 of the root mean square of the outputs
// (conv_winograd_test.cc). This is about twice the error of a plain sum. The points +-1 and +-2
// would give four times as much. An infinity or NaN in the input, or an overflow where inputs are
// transformed to up to 26 times their size, reaches all 16 outputs of each tile that reads it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "anneal/core/integer.h"
#include "anneal/core/isa.h"
#include "anneal/core/tensor.h"
#include "anneal/kernels/cpu/gemm/gemm.h"

namespace anneal::cpu {

// Along each axis; positions in a tile are numbered row by row.
struct WinogradTile {
  static constexpr int64_t kOutputs = 4, kInputs = 6;
  static constexpr int64_t kProducts = kInputs * kInputs;
};

// The transforms of one tile, along adjacent channels.
struct WinogradTransforms {
  int64_t lanes = 1;
  // B^T x B of f32 or bf16. pixels: the first channel of each of 36 inputs; what position p is
  // multiplied by goes to `to + p * step`. REQUIRES: channels >= lanes
  void (*input)(DataType element, const std::byte* const* pixels, int64_t channels, float* to,
                int64_t step) = nullptr;
  // A^T m A, of whole vectors of channels; the sum for position p is at `from + p * step`. Of the
  // outputs the first `rows` x `columns` are written, pitch and row_pitch apart.
  void (*output)(const float* from, int64_t step, int64_t channels, int64_t rows, int64_t columns,
                 float* to, int64_t row_pitch, int64_t pitch) = nullptr;
};
WinogradTransforms winograd_transforms(Isa isa);

// G w G^T as the right sides of 36 products: of each chunk of output channels one position after
// the other, so that they are read from the first byte to the last. Four times the memory of w.
class WinogradWeights {
 public:
  WinogradWeights(Isa isa, int64_t inputs, int64_t outputs);  // as f32_gemm(isa) reads them
  int64_t inputs() const { return layout_.k; }
  int64_t outputs() const { return layout_.n; }
  int64_t chunk() const { return chunk_panels_ * layout_.tile_columns; }  // output channels
  int64_t chunks() const { return ceil_div(layout_.panels(), chunk_panels_); }
  int64_t panel_bytes() const { return layout_.panel_bytes(); }
  size_t bytes() const;
  std::string form() const { return layout_.form(); }  // as packed_constant() wants it

  // w: f32 or bf16 [outputs, inputs, 3, 3]. Computed in f64 and rounded once. Panels are
  // independent of each other. to: memory for all panels, aligned to 64 bytes.
  void pack(const TensorView& w, int64_t panel, std::byte* to) const;
  int64_t panels() const { return layout_.panels(); }
  // In bytes: where a chunk begins, with the panels of position 0, and from position to position.
  int64_t chunk_offset(int64_t chunk) const;
  int64_t position_step(int64_t chunk) const;

 private:
  // For one input channel after the other: `columns` output channels from `first` on, and zeros up
  // to `width` channels; `step` is the distance of positions.
  void (*transform_)(const TensorView& w, int64_t first, int64_t columns, int64_t width, float* to,
                     int64_t step) = nullptr;
  PackLayout layout_;  // of one position
  int64_t chunk_panels_ = 1;
};

}  // namespace anneal::cpu
