// The function of a chain of Pointwise layers as one program, however it is divided into layers.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "anneal/graph/graph.h"

namespace anneal {

struct Composition {
  Program program;              // of one result
  std::vector<ValueId> leaves;  // its inputs
};

// How `value` is computed from `stops`, through Pointwise layers without epilogues. A value that
// does not depend on them is a leaf too, unless it is a constant of one element, which becomes a
// number. nullopt if nothing depends on them, or too much is in between.
std::optional<Composition> compose(const Graph& graph, ValueId value,
                                   std::span<const ValueId> stops);

// The values from which `value` is computed by Pointwise layers, itself first; nearer ones come
// first. No more than 64.
std::vector<ValueId> elementwise_ancestors(const Graph& graph, ValueId value);

}  // namespace anneal
