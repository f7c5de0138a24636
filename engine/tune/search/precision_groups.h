// Groups of layers that share a precision.
#pragma once
#include <vector>

#include "anneal/engine/tune/frontier/frontier.h"
#include "anneal/graph/graph.h"

namespace anneal {

// The convolutions, products and attentions of floats, in the graph's order of their first ones. A
// group contains layers that read the same tensor (as Q, K and V, or the first layers of a block's
// branches), because it is stored once and they may be joined. It also contains layers whose
// results meet in a sum of equals or in a concat, with only elementwise layers, poolings and
// movements in between, because these results are read together; an earlier sum or concat counts as
// one operand. Above `most` groups, neighbours with the least arithmetic are merged. Layers in
// bodies of control flow are in no group: they keep the model's precision. graph: of
// prepared_for_precision(). REQUIRES: most > 0
std::vector<PrecisionGroup> precision_groups(const Graph& graph, size_t most);

}  // namespace anneal
