// Default values for the open sizes of inputs, for which a plan is optimized.
#pragma once
#include "anneal/graph/graph.h"

namespace anneal {

// For each symbol of the inputs without an upper bound: doubles opt, beginning with its present
// value, until every layer that depends on it accepts its inputs and gives no empty result, and
// sizes that must be equal are equal. Layers that no such value suits are ignored; a symbol that
// suits all layers keeps its opt.
void choose_best_sizes(const Graph& graph);

}  // namespace anneal
