// Groups of layers that share a precision.
#pragma once
#include <vector>

#include "anneal/engine/tune/frontier/frontier.h"
#include "anneal/graph/graph.h"

namespace anneal {

// The convolutions, products and attentions of floats, in the graph's order of their first ones.
// Together are those that read the same tensor (as Q, K and V, or what a block's branches begin
// with), for it is stored once and they may be joined; those that meet in a sum of equals or in a
// concat with nothing but elementwise layers, poolings and movements in between, for what is stored
// of one is read beside the other; what was summed or put together before counts as one that is
// met, not as what it was made of. Where there would be more than `most`, neighbours that compute
// least are put together. Layers in bodies of control flow are in no group: they stay as the model
// has them. graph: of prepared_for_precision(). REQUIRES: most > 0
std::vector<PrecisionGroup> precision_groups(const Graph& graph, size_t most);

}  // namespace anneal
