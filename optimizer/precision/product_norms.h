// How a sum of products by constant weights grows: the largest result of any channel over the
// largest magnitude of the data.
#pragma once
#include <algorithm>
#include <cstddef>

#include "anneal/graph/graph.h"

namespace anneal {

struct ProductNorms {
  double sum = 0;                  // of magnitudes: a bound
  double root = 0;                 // of squares: what numbers of independent signs give
  double mean = 0;                 // of the weights themselves: what equal numbers give
  bool is_integer = false;         // every weight is a whole number
  double most = 0;                 // the largest magnitude of a weight
  double weakest = 0;              // the least sum of squares of a channel that has one; 0: unknown
  double weights_per_channel = 0;  // 0: unknown
  // For rounding errors, whose signs are independent: three standard deviations, or the bound.
  double of_errors() const { return std::min(sum, 3 * root); }
};

// Of the layer's constant weights: input `input`, of f32. threads: 0: one per core.
ProductNorms norms_of_floats(const Graph& graph, LayerId product, size_t input, int threads = 1);

}  // namespace anneal
