// Which activations lie channels-last: decided by what the best kernel of each layer prefers.
#pragma once
#include <vector>

#include "anneal/graph/graph.h"
#include "anneal/kernels/kernel.h"

namespace anneal {

// Strides of a value of this type in this layout; kChannelsLast below three axes is row-major.
Shape strides_of(const Type& type, Layout layout, SizeTable& sizes);

// What a layer's operands would be if every activation of three or more axes had this layout.
// Constants are row-major.
struct LayerOperands {
  std::vector<Operand> inputs, outputs;
};
LayerOperands ideal_operands(const Graph& graph, const Layer& layer, Layout layout);
Request request_of(const Graph& graph, const Layer& layer, const LayerOperands& operands,
                   Device& device);

// By value id. A layer whose best kernel prefers channels-last makes its outputs so; a layer that
// does not care follows its first input that has as many axes as its output.
struct Layouts {
  std::vector<Layout> of_layer;  // by layer id: what its best kernel prefers
  std::vector<Layout> of_value;  // by value id: kRowMajor or kChannelsLast
};
Layouts choose_layouts(const Graph& graph, const Backend& backend, Device& device);

}  // namespace anneal
