// What the project's own code may do with an engine beyond the public interface.
#pragma once
#include <memory>
#include <span>

#include "anneal/engine/plan.h"
#include "anneal/engine/run/engine.h"

namespace anneal {

// An engine of a file that was read or built in memory. Fails as Engine::load() does.
std::shared_ptr<const Engine> make_engine(EngineFile file, const EngineOptions& options = {});
// The plan of the engine's file that was chosen for its device.
const Plan& plan_of(const Engine& engine);
// The weights of the engine's file, which its plan's slots name by index.
std::span<const Tensor> weights_of(const Engine& engine);

}  // namespace anneal
