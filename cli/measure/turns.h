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
  std::vector<std::vector<double>> milliseconds;  // by context: of every measured run
  int rounds = 0;
  MachineLoad load;
};
// Each round gives each context its part of the time, after a run that is not measured, since the
// context before has taken the caches. Each round begins with another context. Fails as runs do.
// REQUIRES: the inputs of all contexts are set; at least one context
Turns measure_in_turns(std::span<const std::unique_ptr<ExecutionContext>> contexts,
                       const TurnOptions& options,
                       const std::function<void(std::string_view)>& progress);

// Where the median of all possible runs is with 95 % confidence, by order statistics, if runs do
// not depend on each other. REQUIRES: not empty
struct MedianInterval {
  double low = 0, high = 0;
};
MedianInterval median_interval(std::vector<double> milliseconds);

}  // namespace anneal
