// TimedStep: a step of a plan as a layer whose kernels can be timed.
#pragma once
#include <string>
#include <vector>

#include "anneal/engine/plan.h"
#include "anneal/engine/run/planned_kernel.h"
#include "anneal/kernels/kernel.h"

namespace anneal {

// Refers to all three.
struct TimedStep {
  TimedStep(const EngineFile& engine_file, const Plan& of, const Step& which);
  // For a kernel that is to be chosen; it refers to this.
  Request request(Device& device) const;
  // The key of its times: timing_text() without the strides of weights. Fails as that does.
  std::string text(Device& device) const;

  const EngineFile& file;
  const Plan& plan;
  const Step& step;
  StepOperands operands;
  std::vector<const Tensor*> weights;  // by input, in the slot's strides; null: no weight
};

// Whether the step runs a kernel whose operands have their sizes before the plan runs.
bool can_be_timed(const Plan& plan, const Step& step);

}  // namespace anneal
