// The text of a layer that its times depend on.
#pragma once
#include <string>
#include <vector>

#include "anneal/kernels/kernel.h"

namespace anneal {

// Everything of a layer that times depend on, in one line: the op with its fields, the operands'
// types, sizes and strides, which are constants, and the epilogues. Sizes that are known only when
// the engine is bound are written as their opt value after a '?'. Fails with kInvalidArgument if
// they have none.
std::string timing_text(const Request& request);
// For a layer whose kernel decides the strides of its weights: the text has none for these inputs.
std::string timing_text(const Request& request, const std::vector<bool>& is_weight);

// Whether a size is known only when the engine is bound.
bool has_open_sizes(const Request& request);

}  // namespace anneal
