// The state of an Engine, immutable after construction.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "anneal/engine/plan.h"
#include "anneal/engine/run/counted_steps.h"
#include "anneal/engine/run/debug.h"
#include "anneal/engine/run/engine.h"
#include "anneal/engine/run/memory/held_memory.h"
#include "anneal/engine/run/memory/separate_slots.h"
#include "anneal/kernels/kernel.h"

namespace anneal {

// A plan with its kernels, and so its bodies.
struct LoadedPlan {
  const Plan* plan = nullptr;  // of the file
  // One per step; null for operations of the context: SizeTensor, control flow and transfers.
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::vector<bool> deferred;  // steps with a late operand: prepared while running
  // Steps whose shapes follow from those of their operands, or are found by their kernels.
  std::vector<bool> shaped_by_shapes;
  // By step of a device other than the CPU: the first step after it that is of the CPU or late; a
  // late step is alone, and is not recorded. By step of the CPU: the step itself.
  std::vector<size_t> run_end;
  size_t first_device = 0;  // of the plan's devices among the engine's; the others follow
  std::vector<LoadedPlan> bodies;
  std::vector<uint32_t> outer_symbols;  // of a body: all symbols that it and its bodies use
};

struct Engine::State {
  EngineFile file;
  // As the outermost plan names them; a body uses all, or the last alone. Before what is made for
  // them.
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<Buffer>> weight_buffers;
  std::optional<size_t> red_zone;                // with DebugOptions::separate_slots
  SeparateWeights separate_weights;              // then instead of weight_buffers
  std::vector<std::vector<std::byte*>> weights;  // by device and index; null: not read there
  std::vector<LoadedPlan> plans;                 // by profile
  std::vector<TensorInfo> inputs, outputs;       // of all profiles together
  std::vector<std::string> warnings;
  LogSink log;  // may be empty
};

// Access to an engine for the project's own code only.
struct EngineInternals {
  static std::shared_ptr<const Engine> make(EngineFile file, const EngineOptions& options,
                                            ThreadTeam& team, std::vector<std::string> warnings);
  static void load_weights(Engine::State& state);
  static void observe(ExecutionContext& context, const Observer& observer);
  static std::vector<CountedStep> profile(ExecutionContext& context);
  static const Plan& plan(const Engine& engine, size_t profile) {
    return *engine.state_->plans.at(profile).plan;
  }
  static const LoadedPlan& loaded(const Engine& engine, size_t profile) {
    return engine.state_->plans.at(profile);
  }
  static const Device& device(const Engine& engine) { return *engine.state_->devices.front(); }
  static size_t profile_count(const Engine& engine) { return engine.state_->plans.size(); }
  static const Plan& plan(const ExecutionContext& context);
  static HeldMemory memory(const ExecutionContext& context);
  static std::span<const Tensor> weights(const Engine& engine) {
    return engine.state_->file.weights;
  }
};

}  // namespace anneal
