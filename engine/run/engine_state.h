// What an Engine holds. Immutable once made.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "anneal/engine/plan.h"
#include "anneal/engine/run/engine.h"
#include "anneal/kernels/kernel.h"

namespace anneal {

struct Engine::State {
  EngineFile file;
  const Plan* plan = nullptr;  // of file
  std::unique_ptr<Device> device;
  std::vector<std::unique_ptr<Kernel>>
      kernels;                 // one per step; null for SizeTensor, which contexts compute
  std::vector<bool> deferred;  // steps with a late operand: prepared while running
  std::vector<Port> inputs, outputs;
  std::vector<std::string> remarks;
};

}  // namespace anneal
