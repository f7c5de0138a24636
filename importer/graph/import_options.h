// Options of an import.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "anneal/core/shape.h"

namespace anneal {

struct ImportOptions {
  // Bounds of inputs with unknown sizes, by input name; each of the input's rank. A size given here
  // that the model knows must agree with it; min == max fixes a size.
  struct InputBounds {
    Dims min, opt, max;
  };
  std::map<std::string, InputBounds> bounds;
  // Fixes the sizes of all inputs, in the model's order; empty: bounds apply.
  std::vector<Dims> input_dims;
};

}  // namespace anneal
