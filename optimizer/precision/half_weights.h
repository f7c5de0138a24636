// Weights in 16 bits, and their loss.
#pragma once
#include <string>

#include "anneal/graph/graph.h"

namespace anneal {

// Why the product's weights would suffer from 16 bits, for people; empty if they do not.
// REQUIRES: weights are f32
std::string why_weights_suffer(const Graph& graph, LayerId id, const Tensor& weights,
                               DataType dtype);

// f32 rounded to f16 or bf16.
Tensor in_16_bits(const Tensor& floats, DataType half);

}  // namespace anneal
