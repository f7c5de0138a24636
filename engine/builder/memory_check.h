// Refuses models whose sizes exceed a memory limit, before memory is allocated for them.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "anneal/engine/plan.h"
#include "anneal/graph/graph.h"

namespace anneal {

// check_tensor_sizes() and check_plan_memory() fail with kLimit if more than `limit`
// bytes are needed at the sizes to optimize for; a limit of 0 allows everything. Sizes that depend
// on values are not counted.

// A single tensor, constants included. Names the tensor and the layer that computes it.
void check_tensor_sizes(const Graph& graph, uint64_t limit);
// Fails with kInvalidArgument if a tensor of known sizes is larger than the memory of any machine.
void check_slot_sizes(const Plan& plan);
// Fails with kInvalidArgument if activations of known sizes need more than any machine has.
void check_arena_sizes(const Plan& plan);
// Weights, inputs, outputs and activations of a plan together. Names the step at which most
// activations are in use.
void check_plan_memory(const Plan& plan, std::span<const Tensor> weights, uint64_t limit);

}  // namespace anneal
