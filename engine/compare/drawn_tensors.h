// The inputs of a comparison: those that are given, and random ones.
#pragma once
#include <span>
#include <vector>

#include "anneal/engine/data/dataset.h"
#include "anneal/engine/run/engine.h"

namespace anneal {

// One tensor for each input of the engine. One that is not given has its default value, or else
// random numbers that the engine accepts; open sizes are those that it was optimized for. Fails
// with kInvalidArgument on a name that no input has, and on a name that is given twice.
std::vector<Tensor> drawn_tensors(const Engine& engine, std::span<const SampleTensor> given);

}  // namespace anneal
