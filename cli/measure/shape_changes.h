// Measurement of the time that a change of shapes adds to a run.
#pragma once
#include <memory>
#include <vector>

#include "anneal/cli/measure/measure.h"
#include "anneal/engine/run/engine.h"

namespace anneal {

// Medians of one set of input shapes, in milliseconds. A run is timed with the binding of its
// inputs before it.
struct ShapeTimes {
  double steady = 0;     // after a run at the same shapes
  double returning = 0;  // after a run at other shapes, in a context that knows these
  double fresh = 0;      // the same in a context that meets these for the first time
  double prepare = 0;    // ExecutionContext::prepare() in such a context
  double prepared = 0;   // and the first run after it
};

// One per set of inputs, which must outlive the call and be of different shapes. Fails as runs do.
// Contexts prepare nothing of themselves. rounds: so often is each time taken, or for so long, but
// three times at least. REQUIRES: at least two sets
std::vector<ShapeTimes> measure_changes(const std::shared_ptr<const Engine>& engine,
                                        const std::vector<std::vector<Tensor>>& sets,
                                        const ContextOptions& options, const Amount& rounds);

}  // namespace anneal
