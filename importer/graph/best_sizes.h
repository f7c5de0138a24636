// Default values for the open sizes of inputs, for which a plan is optimized.
#pragma once
#include "anneal/graph/graph.h"

namespace anneal {

// Of each symbol of the inputs that has no upper bound: doubles opt, beginning with what it is,
// until every layer that depends on it accepts its inputs and gives no empty result, and sizes that
// must be equal are. Layers that no such value suits decide nothing; a symbol that suits them all
// keeps its opt.
void choose_best_sizes(const Graph& graph);

}  // namespace anneal
