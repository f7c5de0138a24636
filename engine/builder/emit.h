// Graph -> Plan for one target: kernels, layouts, views, memory.
#pragma once
#include <cstddef>
#include <span>

#include "anneal/engine/builder/layout.h"
#include "anneal/engine/builder/replay/kernel_chooser.h"
#include "anneal/engine/builder/weight_pool.h"
#include "anneal/engine/plan.h"
#include "anneal/graph/graph.h"
#include "anneal/kernels/kernel.h"

namespace anneal {

struct EmitOptions {
  KernelChooser* chooser = nullptr;  // null: the order of the kernels' table chooses
  // Whether the plan gets the code of its kernels now: not where their choice follows.
  bool makes_code = true;
  bool copies_parts = false;              // Concat and Slice are steps that copy
  std::span<const PortPair> states = {};  // Plan::states
};
// places: preferred first, the last is the CPU. The plan has the code that the first one's kernels
// launch. Fails with kUnsupported naming every layer that no kernel accepts, and why; as
// Device::prepare_code() does.
Plan emit(const Graph& graph, std::span<const Place> places, WeightPool& weights,
          const EmitOptions& options = {});

}  // namespace anneal
