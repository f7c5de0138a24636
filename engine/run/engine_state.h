// What an Engine holds. Immutable once made.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "anneal/engine/plan.h"
#include "anneal/engine/run/engine.h"
#include "anneal/kernels/kernel.h"

namespace anneal {

// A plan with its kernels, and so its bodies.
struct LoadedPlan {
  const Plan* plan = nullptr;  // of the file
  // One per step; null for what the context does itself: SizeTensor and control flow.
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::vector<bool> deferred;  // steps with a late operand: prepared while running
  std::vector<LoadedPlan> bodies;
  std::vector<uint32_t> outer_symbols;  // of a body: all symbols that it and its bodies use
};

struct Engine::State {
  EngineFile file;
  LoadedPlan plan;
  std::unique_ptr<Device> device;
  std::vector<Port> inputs, outputs;
  std::vector<std::string> remarks;
};

}  // namespace anneal
