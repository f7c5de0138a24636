// Weights of f16 and bf16 that products of f32 read in 16 bits.
#pragma once
#include <string>

#include "anneal/graph/graph.h"
#include "anneal/optimizer/pass.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {

// Whether the layer is a product of f32 by a constant matrix that 16 bits may replace.
bool multiplies_by_floats(const Graph& graph, LayerId id);

// Why the constant stays f32 though its elements are numbers of 16 bits; empty if its readers shall
// read 16 bits. bytes: weight_bytes_as_floats(). REQUIRES: a reader multiplies by it so.
std::string why_stays_f32(const Graph& graph, ValueId matrix, double bytes, const PassRun& run);

// The reader with the same numbers in 16 bits in place of its matrix.
NewLayer by_halves(const Graph& graph, LayerId reader, ValueId halves);

// Why a target does not take these layers; empty if all do.
std::string why_targets_refuse(const Graph& graph, std::span<const LayerId> readers, ValueId halves,
                               const PassRun& run);

}  // namespace anneal
