// The steps of a run with what their functions did to memory, on a device that counts.
#pragma once
#include <vector>

#include "anneal/core/access_counts.h"
#include "anneal/engine/run/engine.h"

namespace anneal {

struct CountedStep : StepTime {
  std::vector<FunctionCounts> functions = {};  // empty on devices that do not count
};

// As ExecutionContext::profile(), on "emulated:counting" with the counts of each step.
std::vector<CountedStep> profile_counted(ExecutionContext& context);

}  // namespace anneal
