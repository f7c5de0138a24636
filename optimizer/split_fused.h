// Fused layers taken apart again, for a builder that times both forms.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "anneal/graph/graph.h"

namespace anneal {

// A layer and the layers that do its work.
struct SplitLayer {
  std::string layer;
  std::vector<std::string> parts;  // their names; one is `layer` again
};

// Of the weights of a Conv or MatMul: along which channels or columns of the result lie.
int channel_axis(const Op& op, const Tensor& weights);

// Undoes merge_siblings for the layers that `wants` names, and fuse_epilogue for others: a product
// or convolution becomes one for each of its outputs, or one without an epilogue and a Pointwise.
// Results are the same where the epilogue begins with the rounding to the type of the op's output;
// elsewhere that rounding is added. Weights that merging has transposed stay so. Constants without
// a reader stay until erase_unused().
std::vector<SplitLayer> split_fused(Graph& graph,
                                    const std::function<bool(const std::string& layer)>& wants);

}  // namespace anneal
