// Ranges as integers of 8 bits, and weights as integers of 8 and 4.
#pragma once
#include <string>
#include <string_view>

#include "anneal/core/tensor.h"
#include "anneal/optimizer/analysis/scaling.h"
#include "anneal/optimizer/calibration_table.h"

namespace anneal {

// The suffix of the names of Quantize layers that insert_quantize adds, after the name of the
// tensor.
inline constexpr std::string_view kQuantizedStem = "/quantized";

// One scale for the range. The range is widened to hold 0, which gets an integer of its own.
// symmetric: the zero point is 0. A range of one point gives scale 1.
Scaling scaling_for(const TensorRange& range, bool symmetric);

struct QuantizedWeights {
  Tensor integers;  // i8
  Scaling scaling;  // one for each position of the axis, zero points 0
};
// REQUIRES: weights are f32 and finite. q = round_half_even(w / scale), where the largest magnitude
// of a channel becomes 127, or, fitted, by the scale of least error (fit_weights.h); a channel of
// zeros has scale 1.
QuantizedWeights quantize_channels(const Tensor& weights, int64_t axis, bool fitted);

struct QuantizedRows {
  Tensor integers;   // i8[rows, depth]
  Tensor scales;     // [rows, depth / block], of the matrix's type
  double error = 0;  // root mean square of the rounding errors, divided by that of the weights
};
// The rows of a matrix of f32, f16 or bf16, or its columns, in integers of 8 or 4 bits with scales
// of a small rounding error (quantize_blocks), which the type of the matrix has. The same for
// any number of threads (0: one per core). REQUIRES: finite numbers, of which a block divides each
// row or column
QuantizedRows quantize_rows(const Tensor& matrix, bool of_columns, int bits, int64_t block,
                            int threads);

// Why a product by these f32 weights cannot be computed in integers; empty if it can.
std::string why_not_quantized(const Tensor& weights, int64_t axis);

}  // namespace anneal
