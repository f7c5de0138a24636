// Layers that only look at memory differently: their outputs are views, and no kernel runs.
#pragma once
#include <optional>

#include "anneal/graph/graph.h"

namespace anneal {

// Strides and first element of a layer's output within its first input.
struct ViewOf {
  Shape strides;
  Size offset;
};

// Reshape of dense row-major memory, Transpose that moves only axes of size 1, Slice with known
// starts and positive steps; nullopt if the layer needs a kernel. input_strides: of the layer's
// first input.
std::optional<ViewOf> view_of(const Graph& graph, const Layer& layer, const Shape& input_strides);

}  // namespace anneal
