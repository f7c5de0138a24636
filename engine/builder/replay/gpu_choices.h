// The kernels of a plan's GPU, as an earlier plan has them.
#pragma once
#include "anneal/engine/plan.h"

namespace anneal {

// Gives the steps of the plan's first device the kernels, tactics and runners-up that the recorded
// plan has for steps of their names, and the plan the decisions about their times. A kernel whose
// tactic follows from the layer alone keeps none: code_of_steps() completes it.
void take_gpu_choices(const Plan& recorded, Plan& plan);

}  // namespace anneal
