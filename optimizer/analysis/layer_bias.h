// The bias of a layer: numbers that are added to each channel of the sums of a convolution or
// product.
#pragma once
#include <span>
#include <vector>

#include "anneal/graph/graph.h"

namespace anneal {

// How many channels the results of a Conv or MatMul by constant weights have; 0 for other layers.
int64_t result_channels(const Graph& graph, LayerId id);

// Whether a Conv or MatMul by constant weights only adds constants to each channel of its
// accumulators, so that a bias added to its results may be added to the accumulators.
bool only_adds(const Graph& graph, LayerId id);

// The layer's program on its accumulators, and the values that it reads (kNone represents the
// accumulators).
struct Stores {
  Program program;
  std::vector<ValueId> inputs;
};
// The layer's, with the bias added first: to the constant that it adds anyway, if that is all it
// does. REQUIRES: bias.size() == result_channels(graph, id) > 0, and results are f32
Stores stores_with_bias(Graph& graph, LayerId id, std::span<const float> bias);

}  // namespace anneal
