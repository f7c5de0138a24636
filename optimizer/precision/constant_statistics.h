// Statistics of large constants of floats. Every instruction set gives the same numbers.
#pragma once
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "anneal/core/dtype.h"
#include "anneal/optimizer/analysis/channel_weights.h"

namespace anneal {

// The smallest range that has all numbers; NaN counts as 0.
struct FloatRange {
  float least = std::numeric_limits<float>::infinity();
  float most = -std::numeric_limits<float>::infinity();
  bool is_integer = true;  // all are whole numbers or infinite
};
FloatRange range_of_floats(std::span<const float> numbers);

// Of the finite weights of each channel; a product of several matrices has channels in each.
struct ChannelNorms {
  std::vector<double> magnitudes, squares, sums;
  double most = 0;         // magnitude of a finite weight
  bool is_integer = true;  // every weight is a whole number
};
// No layout: all are one channel. threads: 0: one per core.
ChannelNorms channel_norms(std::span<const float> weights,
                           const std::optional<ChannelWeights>& layout, int threads);

// What rounding the finite weights of each channel to a type of 16 bits costs.
struct ChannelLosses {
  std::vector<float> most;            // magnitude
  std::vector<double> squares, lost;  // lost: the squares of the errors
};
ChannelLosses channel_losses(std::span<const float> weights,
                             const std::optional<ChannelWeights>& layout, DataType half,
                             int threads);

}  // namespace anneal
