// The multiply-adds of a run, which bound what the self-check spends without measuring times.
#pragma once
#include <span>
#include <vector>

#include "anneal/engine/plan.h"

namespace anneal {

// Of convolutions, products and attention, and an eighth for each element that any step writes.
// Bodies of control flow count once. Fails with kInvalidArgument if the sizes do not go together.
double run_work(const Plan& plan, std::span<const Tensor> weights,
                std::span<const Dims> dims_of_inputs);

}  // namespace anneal
