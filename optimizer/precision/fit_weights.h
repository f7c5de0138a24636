// Scales of weights with the least error of rounding them to integers.
#pragma once
#include <span>

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

// REQUIRES: no square leaves f32
double sum_of_squares(std::span<const float> weights);

// The scale of the least error found, never more than that of `by_largest`, the scale by which
// the largest magnitude becomes 127. A coarser scale may hit a grid that the weights lie on
// already, a finer one clips the largest to round the others better; of the best the least-squares
// scale of its integers, sum(w q) / sum(q q), and so on while that helps. REQUIRES: finite weights,
// a normal scale
float fitted_scale(std::span<const float> weights, float by_largest);

// The same from fewer candidates, for millions of blocks. The weight of the largest magnitude
// becomes about `low`, or `high` if that is better, so the scale may be negative. 1 for weights of
// 0. REQUIRES: the largest magnitude is 0 or near 1, so that no square leaves f32
float fitted_block_scale(std::span<const float> block, IntegerLimits limits);

}  // namespace anneal
