// Makes and opens engines for the project's own code, beyond the public interface.
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "anneal/engine/plan.h"
#include "anneal/engine/run/engine.h"
#include "anneal/engine/run/memory/held_memory.h"

namespace anneal {

// An engine of a file that was read or built in memory. Fails as Engine::load() does.
std::shared_ptr<const Engine> make_engine(EngineFile file, const EngineOptions& options = {});
// The plan of the engine's file for its device and a profile.
const Plan& plan_of(const Engine& engine, size_t profile = 0);
size_t profile_count(const Engine& engine);
// The profile that takes the dims of the inputs best; without one, 0. nullopt: any dims.
size_t profile_for(const Engine& engine, std::span<const std::optional<Dims>> input_dims);
// The plan of the context's last run, or of shapes that were bound since.
const Plan& plan_of(const ExecutionContext& context);
// What the context holds, of all profiles that it has run.
HeldMemory memory_of(const ExecutionContext& context);
// The weights of the engine's file, which its plan's slots name by index.
std::span<const Tensor> weights_of(const Engine& engine);

}  // namespace anneal
