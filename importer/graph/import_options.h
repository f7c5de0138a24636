// Options of an import.
#pragma once
#include <vector>

#include "anneal/core/input_bounds.h"

namespace anneal {

struct ImportOptions {
  InputBoundsByName bounds = {};  // of inputs with unknown sizes
  // Fixes the sizes of all inputs, in the model's order; empty: bounds apply.
  std::vector<Dims> input_dims = {};
};

}  // namespace anneal
