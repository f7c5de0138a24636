// The arithmetic of one step at actual sizes.
#pragma once
#include <span>

#include "anneal/core/dims.h"
#include "anneal/engine/plan.h"

namespace anneal {

// products: the multiplications and additions of a convolution, product, attention or recurrent
// layer, two for each term of a sum. others: one for each element and operation of a program, and
// those of reductions, normalization, pooling, resizing and quantization. Loads, constants,
// indices and rounding for the storage count nothing; exp and the like count one.
struct StepOperations {
  double products = 0, others = 0;
};

// inputs, outputs: the dims of the step's operands, without axes for those that are absent.
StepOperations operations_of(const Step& step, std::span<const Dims> inputs,
                             std::span<const Dims> outputs);

}  // namespace anneal
