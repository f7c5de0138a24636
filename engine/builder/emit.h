// Graph -> Plan for one target: kernels, layouts, views, memory.
#pragma once
#include <span>

#include "anneal/engine/builder/kernel_timer.h"
#include "anneal/engine/builder/layout.h"
#include "anneal/engine/builder/weight_pool.h"
#include "anneal/engine/plan.h"
#include "anneal/graph/graph.h"
#include "anneal/kernels/kernel.h"

namespace anneal {

// places: preferred first, the last is the CPU. The plan has the code that the first one's kernels
// launch. Fails with kUnsupported naming every layer that no kernel accepts, and why; as
// Device::prepare_code() does. timer: chooses between the CPU's kernels for each layer in place;
// null: the order of their table does.
Plan emit(const Graph& graph, std::span<const Place> places, WeightPool& weights,
          KernelTimer* timer = nullptr);

}  // namespace anneal
