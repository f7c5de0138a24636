// Queries on a graph for passes.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "anneal/core/parallel.h"
#include "anneal/graph/graph.h"

namespace anneal {

template <class T>
const T* op_as(const Graph& graph, LayerId id) {
  return id == LayerId::kNone ? nullptr : std::get_if<T>(&graph.layer(id).op);
}
// kNone of an absent input, too.
inline LayerId producer(const Graph& graph, ValueId value) {
  return value == ValueId::kNone ? LayerId::kNone : graph.value(value).producer;
}
inline const Shape& shape_of(const Graph& graph, ValueId value) {
  return graph.value(value).type().shape;
}
// How many results the op gives, before epilogues.
inline size_t op_output_count(const Layer& layer) {
  return layer.epilogues.empty() ? layer.outputs.size() : layer.epilogues.size();
}
// The only layer that reads the value, however often; kNone if there is none, are several, or it is
// a graph output.
LayerId sole_user(const Graph& graph, ValueId value);
// The layers that read the value, each once, in no order.
std::vector<LayerId> users_of(const Graph& graph, ValueId value);
// Whether computing any of the layer's inputs but those that `except` gives takes what `except`
// gives. may_need: false of layers that surely do not need `except`.
bool depends_otherwise(
    const Graph& graph, LayerId layer, LayerId except,
    FunctionRef<bool(LayerId)> may_need = [](LayerId) { return true; });
// Elements of the value at the sizes to optimize for.
int64_t element_count(const Graph& graph, ValueId value);
// Whether every one of the values is `wanted`.
inline bool all_are(const std::vector<int64_t>& values, int64_t wanted) {
  return std::ranges::all_of(values, [&](int64_t value) { return value == wanted; });
}

}  // namespace anneal
