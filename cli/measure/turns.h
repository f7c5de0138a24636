// Measuring several contexts in turns, so that a machine that becomes faster or slower meanwhile
// does so for all.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "anneal/cli/measure/measure.h"
#include "anneal/cli/measure/process_facts.h"
#include "anneal/engine/run/engine.h"

namespace anneal {

struct TurnOptions {
  Amount warmup{std::nullopt, 0.2};  // of each context
  Amount measured{std::nullopt, 3};  // of each context; at least one run in each round
  // Whether a run's time includes that in which its thread was ready to run and had no core.
  // REQUIRES: true, unless runs have one thread
  bool counts_waiting = true;
};
struct Turns {
  // By context: of every measured run, and the median of each round.
  std::vector<std::vector<double>> milliseconds, round_medians;
  int rounds = 0;
  MachineLoad load;
};
// Each round gives each context its part of the time, after a run that is not measured, since the
// context before has taken the caches. Each round begins with another context. Fails as runs do.
// REQUIRES: the inputs of all contexts are set; at least one context
Turns measure_in_turns(std::span<const std::unique_ptr<ExecutionContext>> contexts,
                       const TurnOptions& options,
                       const std::function<void(std::string_view)>& progress);

}  // namespace anneal
