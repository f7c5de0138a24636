// Dependencies between layers that no value shows. A SizeTensor of a size that depends on values,
// such as the number of results of NonZero, runs after the layer that finds this size.
#pragma once
#include <unordered_map>
#include <vector>

#include "anneal/graph/graph.h"

namespace anneal {

class SizeDependencies {
 public:
  explicit SizeDependencies(const Graph& graph);
  // The layers that find the sizes which this layer, or a body of it, writes into a tensor.
  const std::vector<LayerId>& of(LayerId layer) const;

 private:
  std::unordered_map<LayerId, std::vector<LayerId>> dependencies_;
};

// The symbols, by index and ascending, that a layer's SizeTensor and those in its bodies hold,
// unless the body's inputs have them.
std::vector<uint32_t> symbols_written(const Graph& graph, const Layer& layer);

}  // namespace anneal
