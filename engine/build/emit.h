// Graph -> Plan for one target: kernels, layouts, views, memory.
#pragma once
#include <string>
#include <vector>

#include "anneal/engine/build/weight_pool.h"
#include "anneal/engine/plan.h"
#include "anneal/graph/graph.h"
#include "anneal/kernels/kernel.h"

namespace anneal {

// Fails with kUnsupported naming every layer that no kernel accepts, and why.
Plan emit(const Graph& graph, const Backend& backend, Device& device, WeightPool& weights);

}  // namespace anneal
