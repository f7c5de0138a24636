// Runs layers and graphs on the CPU, for constant folding and as the reference of tests.
#pragma once
#include <span>
#include <vector>

#include "anneal/graph/graph.h"

namespace anneal {

// inputs: one per layer input; null for an absent one. Sizes are inferred from the values. On the
// reference kernel.
std::vector<Tensor> evaluate(const Layer& layer, std::span<const Tensor* const> inputs,
                             const SizeTable& sizes);

// The same on the kernel that a run on this machine would take, of those that are exact.
std::vector<Tensor> evaluate_fast(const Layer& layer, std::span<const Tensor* const> inputs,
                                  const SizeTable& sizes);

// inputs: one per graph input, in order. Returns the outputs in order. Fails with kInvalidArgument
// as solving symbols does, with kUnsupported if a size stays unknown.
std::vector<Tensor> evaluate(const Graph& graph, std::span<const Tensor> inputs);

}  // namespace anneal
