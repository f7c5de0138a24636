// The multiply-adds of a run, which bound what the self-check spends without measuring times.
#pragma once
#include <span>
#include <vector>

#include "anneal/engine/plan.h"

namespace anneal {

// The work of convolutions, products, attention and recurrent layers, and an eighth for each
// element that any step writes. A body counts as often as it runs, 64 times if a value decides
// that; of several branches the largest counts. Fails with kInvalidArgument if the sizes do not fit
// each other.
double run_work(const Plan& plan, std::span<const Tensor> weights,
                std::span<const Dims> dims_of_inputs);

}  // namespace anneal
