// Scales of weights with the least error of rounding them to integers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "anneal/core/dtype.h"

namespace anneal {

// The integers that weights become.
struct IntegerLimits {
  float low = -127, high = 127;
};
inline constexpr IntegerLimits kLimitsOf4Bits = {-8, 7};

// clamp(round_half_even(weight / scale), low, high). REQUIRES: a quotient that is finite
inline float integer_of(float weight, float scale, IntegerLimits limits) {
  constexpr float kNoFraction = 12582912;  // 1.5 * 2^23 leaves no bits for a fraction
  const float steps = weight / scale;
  const float most = steps < limits.high ? steps : limits.high;
  return ((most > limits.low ? most : limits.low) + kNoFraction) - kNoFraction;
}

// The sum of (w - s * integer_of(w, s))^2.
double rounding_error(std::span<const float> weights, float scale, IntegerLimits limits = {});

// The scale of the least error found, never more than that of `by_largest`, the scale by which
// the largest magnitude becomes 127. A coarser scale may hit a grid that the weights lie on
// already, a finer one clips the largest to round the others better; of the best the least-squares
// scale of its integers, sum(w q) / sum(q q), and so on while that helps. REQUIRES: finite weights,
// a normal scale
float fitted_scale(std::span<const float> weights, float by_largest);

// A block of weights as integers times a scale.
struct QuantizedBlock {
  float scale = 1;
  double error = 0, square = 0;  // the sums of the squared errors, and of the squared weights
};

// Blocks beside each other: weight k of block i is at weights[k * stride + i].
struct BlockColumns {
  const float* weights = nullptr;
  int64_t stride = 0, count = 0, length = 0;  // how many blocks, of how many weights each
};
constexpr size_t kMostBlocksAtOnce = 16;

// Fits scales as fitted_scale() does, but tries fewer, for millions of blocks. Integer k of block i
// goes to to[i * to_stride + k]. The weight of the largest magnitude becomes about `low`, or `high`
// if that is better, so a scale may be negative. It is a number of `scale_type` other than 0, and 1
// for weights of 0. memory: room for kMostBlocksAtOnce blocks. made: one for each block. REQUIRES:
// finite weights
void quantize_blocks(const BlockColumns& columns, IntegerLimits limits, DataType scale_type,
                     std::span<float> memory, int8_t* to, int64_t to_stride, QuantizedBlock* made);

}  // namespace anneal
