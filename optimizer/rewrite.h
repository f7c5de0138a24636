// Rewrite: new layers that replace others.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "anneal/graph/graph.h"

namespace anneal {

// Whether only a run of the layer tells some size of its outputs: the symbol of that size, which
// others may mention, would have no value without the layer.
bool finds_sizes(const Graph& graph, LayerId id);

// A layer like `id`, with outputs of the same types and names of their own, to be changed and
// added.
NewLayer copy_of(const Graph& graph, LayerId id);

// Adds the layers that replace layer `id`, named after it, and puts the last one in its place.
// Layers of an abandoned rewrite are unused, and the next erase_unused() erases them.
class Rewrite {
 public:
  // origins: of the layers that are added; those of layer `id` if there are none.
  Rewrite(Graph& graph, LayerId id, const std::vector<std::string>& origins = {});

  const Shape& shape(ValueId value) const { return graph_.value(value).type().shape; }

  // A layer "ID/STEM" of one output, without epilogue.
  ValueId add(std::string_view stem, Op op, std::vector<ValueId> inputs);
  // An i64 constant for argument `argument` of the layer "ID/STEM".
  ValueId list(std::string_view stem, int argument, const std::vector<int64_t>& values);
  ValueId slice(ValueId x, const std::vector<int64_t>& starts, const std::vector<int64_t>& ends,
                const std::vector<int64_t>& axes, const std::vector<int64_t>& steps);
  ValueId slice(ValueId x, int64_t axis, int64_t start, int64_t end);
  // kNone if the sizes are neither known but for one nor decided by the graph's inputs.
  ValueId reshape(ValueId x, const Shape& to);
  ValueId transpose(ValueId x, const std::vector<int64_t>& permutation);
  ValueId concat(std::vector<ValueId> parts, int64_t axis);

  // The result, which may have been there before, takes the place of the layer's only output.
  // False, and the layer stays, if inference cannot prove that the type is the same, if the result
  // is kNone, or if an output of the graph would be one of its inputs or constants.
  bool finish(ValueId result);

 private:
  Graph& graph_;
  LayerId id_;
  std::vector<std::string> origins_;
  int slices_ = 0;
};

}  // namespace anneal
