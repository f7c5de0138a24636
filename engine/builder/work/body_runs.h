// How often a step of control flow runs a body, and at which sizes.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "anneal/engine/plan.h"
#include "anneal/engine/run/memory/bound_plan.h"

namespace anneal {

// The assumed trips of a loop whose trip count an input or a condition decides.
inline constexpr double kUnknownTrips = 64;

// 1 for steps that run no body, or one of several branches.
double body_trips(const Plan& plan, std::span<const Tensor> weights, const Step& step,
                  const BoundPlan& bound);

// The dims of the inputs of a body as far as they follow from the step's. inputs: their number.
std::vector<Dims> dims_in_body(const Step& step, size_t inputs, const BoundPlan& bound);

}  // namespace anneal
