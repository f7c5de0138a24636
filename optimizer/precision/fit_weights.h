// The scale of weights with the least error of rounding them to 8 bits.
#pragma once
#include <span>

namespace anneal {

// The sum of (w - s * clamp(round_half_even(w / s), -127, 127))^2.
double rounding_error(std::span<const float> weights, float scale);

// The scale of the least error found, never more than that of `by_largest`, the scale by which
// the largest magnitude becomes 127. A coarser scale may hit a grid that the weights lie on
// already, a finer one clips the largest to round the others better; of the best the least-squares
// scale of its integers, sum(w q) / sum(q q), and so on while that helps. REQUIRES: finite weights,
// a normal scale
float fitted_scale(std::span<const float> weights, float by_largest);

}  // namespace anneal
