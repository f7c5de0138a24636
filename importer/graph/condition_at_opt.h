// What a condition is where sizes are those to optimize for.
#pragma once
#include <optional>
#include <vector>

#include "anneal/graph/graph.h"

namespace anneal {

// As far as inference tells from the sizes of the model's inputs that somebody chose: those with
// the default bounds have no best value yet. of_inputs: by symbol, whether it is one of theirs.
// REQUIRES: the layers were added in an order in which they can run.
std::optional<bool> condition_at_opt(const Graph& graph, ValueId condition,
                                     const std::vector<bool>& of_inputs);

}  // namespace anneal
