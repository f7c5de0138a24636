// The bias of a layer: numbers that are added to each channel of the sums of a convolution or
// product.
#pragma once
#include <span>
#include <vector>

#include "anneal/graph/graph.h"

namespace anneal {

// How many channels the results of a Conv or MatMul by constant weights have; 0 for other layers.
int64_t result_channels(const Graph& graph, LayerId id);

// Whether a Conv or MatMul by constant weights does no more to what it accumulates than to add
// constants to each channel, so that what is added to the one is added to the other.
bool only_adds(const Graph& graph, LayerId id);

// What the layer does to its accumulators, and what it reads to do so (kNone stands for them).
struct Stores {
  Program program;
  std::vector<ValueId> inputs;
};
// The layer's, with the bias added first: to the constant that it adds anyway, if that is all it
// does. REQUIRES: bias.size() == result_channels(graph, id) > 0, and results are f32
Stores stores_with_bias(Graph& graph, LayerId id, std::span<const float> bias);

}  // namespace anneal
