// The sizes that an input of unknown size may have.
#pragma once
#include <map>
#include <string>

#include "anneal/core/dims.h"

namespace anneal {

// The least and the largest dims to accept, and those to optimize for; each of the input's rank. A
// size given here that the model knows must agree with it, but for axis 0, the batch, which other
// bounds open; min == max fixes a size.
struct InputBounds {
  Dims min, opt, max;
};
using InputBoundsByName = std::map<std::string, InputBounds>;  // by input name

}  // namespace anneal
