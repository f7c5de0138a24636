// The state that the parts of a plan's run share.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "anneal/engine/run/engine_state.h"
#include "anneal/engine/run/memory/memory_budget.h"
#include "anneal/engine/run/memory/separate_slots.h"
#include "anneal/engine/run/shape_cache.h"

namespace anneal {

// State that all runs of a context share.
struct RunResources {
  std::span<const Tensor> weights;
  // By device of the engine; the last is the CPU.
  std::span<const std::unique_ptr<Device>> devices;
  std::span<const std::unique_ptr<DeviceStream>> streams;
  std::span<const std::vector<std::byte*>> weight_data;
  int threads = 1;
  int shape_cache_size = 1;
  MemoryBudget* budget = nullptr;
  bool synchronous_steps = false;
  std::optional<size_t> red_zone = {};                // with DebugOptions::separate_slots
  const SeparateWeights* separate_weights = nullptr;  // then
};

// One plan, or one body of control flow, and the shapes that it is bound to.
struct RunState {
  RunState(const LoadedPlan& loaded_plan, const RunResources& all)
      : plan(*loaded_plan.plan), loaded(loaded_plan), resources(all) {}

  const Plan& plan;
  const LoadedPlan& loaded;
  const RunResources& resources;
  BoundShapes* now = nullptr;                                         // null: the run is not bound
  std::span<TensorView> slots;                                        // of `now`, with data
  std::span<StepState> steps;                                         // of `now`
  SymbolValues symbols = SymbolValues(plan.sizes->symbols().size());  // with those found by the run

  // Devices of the plan; the CPU is the last.
  size_t host() const { return plan.devices.size() - 1; }
  Device& device(size_t index) const { return *resources.devices[loaded.first_device + index]; }
  DeviceStream& stream(size_t index) const {
    return *resources.streams[loaded.first_device + index];
  }
  bool is_on_gpu(uint32_t slot) const { return plan.slots[slot].device != host(); }
  // The tensor of the slot, with the place of its memory: what a body is given, or gives.
  TensorView tensor(uint32_t slot) const {
    TensorView view = slots[slot];
    if (is_on_gpu(slot)) view.place = {MemoryKind::kCuda};
    return view;
  }
};

}  // namespace anneal
