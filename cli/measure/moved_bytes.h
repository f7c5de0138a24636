// The memory traffic of a plan: the bytes of its steps' operands.
#pragma once
#include <cstdint>
#include <span>

#include "anneal/core/tensor.h"
#include "anneal/engine/plan.h"

namespace anneal {

// Bytes that the steps read and write in one run: of each step its inputs, once each, and its
// outputs. Weights count, in their own type. A view counts with its own elements, a
// broadcast input with those that are stored. Tensors whose size depends on values, and
// steps in bodies of control flow, do not count. Fails as bind_shapes().
uint64_t moved_bytes(const Plan& plan, std::span<const Tensor> weights,
                     std::span<const Dims> dims_of_inputs);

}  // namespace anneal
