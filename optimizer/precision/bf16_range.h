// Values that bf16 cannot store, though its range is almost that of f32.
#pragma once
#include <string>
#include <unordered_set>

#include "anneal/graph/graph.h"

namespace anneal {

// The values of f32 that may hold literals or constants of the graph beyond 3.3895e38, which would
// be infinite in bf16, as a mask of attention with the lowest number of f32. By way of programs,
// and of layers that move or select elements.
std::unordered_set<ValueId> values_beyond_bf16(const Graph& graph);
std::string why_beyond_bf16(const std::string& name);  // of such a value, for the decisions

}  // namespace anneal
