// The value of a condition at the sizes to optimize for.
#pragma once
#include <optional>
#include <vector>

#include "anneal/graph/graph.h"

namespace anneal {

// Inferred from the sizes of the model's inputs that the user chose; a size with the default bounds
// has no best value yet. of_inputs: by symbol, whether it is a size of an input. REQUIRES: the
// layers were added in an order in which they can run.
std::optional<bool> condition_at_opt(const Graph& graph, ValueId condition,
                                     const std::vector<bool>& of_inputs);

}  // namespace anneal
