// Random graphs in which the optimizer finds something to do.
#pragma once
#include <cstdint>
#include <vector>

#include "anneal/graph/graph.h"

namespace anneal::testing {

enum class Flavour : uint8_t {
  kTame,       // values stay below about 100, and every function is continuous, so that rounding
               // differences stay small
  kNonFinite,  // the same, with NaN and infinities among them and functions that ask for them
  kAnyValues,  // NaN, infinities, huge numbers and zeros of both signs, and functions that
               // distinguish them
  kOpenSizes,  // tame numbers; axes of inputs are N or W, and layers compute with these
  kBatch,      // tame numbers; axis 0 of inputs is 4, and there is one output
};

// The same seed gives the same graph: 4 to 20 layers or idioms of f32 (of f16, one graph in ten),
// one to three outputs.
Graph random_graph(uint32_t seed, Flavour flavour = Flavour::kTame);
// One per input of the graph, normally distributed, with a deviation that depends on the seed.
// binding: open sizes are those to optimize for (0), the smallest (1) or the largest (2).
std::vector<Tensor> random_inputs(const Graph& graph, uint32_t seed,
                                  Flavour flavour = Flavour::kTame, uint32_t binding = 0);

}  // namespace anneal::testing
