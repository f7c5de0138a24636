// Random graphs in which the optimizer finds something to do.
#pragma once
#include <cstdint>
#include <vector>

#include "anneal/graph/graph.h"

namespace anneal::testing {

// The same seed gives the same graph: 4 to 20 layers or idioms of f32 (of f16, one graph in ten),
// one to three outputs. Values stay below about 100, and every function in it is continuous, so
// that rounding differences stay small.
Graph random_graph(uint32_t seed);
// One per input of the graph, normally distributed, with a deviation that depends on the seed.
std::vector<Tensor> random_inputs(const Graph& graph, uint32_t seed);

}  // namespace anneal::testing
