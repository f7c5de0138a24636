// The fate of model values that an engine no longer stores: fused into a step, or removed.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "anneal/engine/plan.h"
#include "anneal/graph/graph.h"

namespace anneal {

struct NamedValue {
  std::string name;
  std::vector<std::string> origins;  // of the layer that gives it
};
// Of the graph as imported, bodies included, in order.
std::vector<NamedValue> named_values(const Graph& graph);

// Records a decision for each value without a slot in the plan: kFusedInto with the name of the
// first step that computes one of its origins, else kEliminated.
void record_vanished(std::span<const NamedValue> values, Plan& plan);

}  // namespace anneal
