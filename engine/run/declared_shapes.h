// The shapes for which an engine was built.
#pragma once
#include <vector>

#include "anneal/engine/plan.h"

namespace anneal {

// Dims of all inputs with every symbol at its opt, at its max and at its min, in this order, each
// once. Empty where inputs have no symbols, or one whose bounds were left open.
std::vector<std::vector<Dims>> declared_shapes(const Plan& plan);

}  // namespace anneal
