// The loss of weights in 16 bits.
#pragma once
#include <string>

#include "anneal/graph/graph.h"

namespace anneal {

// Why the product's weights would suffer from 16 bits, for people; empty if they do not.
// REQUIRES: weights are f32
std::string why_weights_suffer(const Graph& graph, LayerId id, const Tensor& weights,
                               DataType dtype);

}  // namespace anneal
