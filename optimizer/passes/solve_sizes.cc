// solve_sizes: a small integer tensor whose contents inference knows no longer needs the layers
// that computed it.
//
//   s = ShapeOf(x); n = Gather(s, 0); r = Concat(n, -1)   =>   r = SizeTensor elements=[N,-1]
//
// Runs first: Reshape, Slice and Expand then see constants, and the arithmetic around them dies.
// Contents that hold symbols need i64 and at most one axis, as SizeTensor does.
#include <algorithm>

#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"

namespace anneal {
namespace {

template <class T>
Tensor tensor_of(const Type& type, const std::vector<Size>& elements) {
  std::vector<T> values;
  for (const Size element : elements) values.push_back(static_cast<T>(element.value()));
  return Tensor::of<T>(type.dtype, dims_of(type.shape), values);
}

std::optional<Tensor> constant_of(const Fact& fact) {
  for (const Size element : *fact.elements)
    if (!element.known()) return std::nullopt;
  switch (fact.type.dtype) {
    case DataType::kI64:
      return tensor_of<int64_t>(fact.type, *fact.elements);
    case DataType::kI32:
      return tensor_of<int32_t>(fact.type, *fact.elements);
    case DataType::kBool:
      return tensor_of<uint8_t>(fact.type, *fact.elements);
    default:
      return std::nullopt;
  }
}

bool decided_by_inputs(const Graph& graph, const std::vector<Size>& elements) {
  const auto decided = graph.symbols_of_inputs();
  return std::all_of(elements.begin(), elements.end(),
                     [&](Size element) { return is_made_of(graph.sizes(), element, decided); });
}

bool solve_sizes_at(Graph& graph, LayerId id, PassRun& run) {
  if (op_as<SizeTensor>(graph, id) && graph.layer(id).epilogues.empty()) {
    const auto& elements = op_as<SizeTensor>(graph, id)->elements;
    if (!std::all_of(elements.begin(), elements.end(), [](Size size) { return size.known(); }))
      return false;
  }
  bool changed = false;
  for (const ValueId output : std::vector(graph.layer(id).outputs)) {
    const Value& value = graph.value(output);
    const Fact fact = value.fact;
    if (value.users.empty() && !graph.is_output(output)) continue;
    if (!fact.elements || !known(fact.type.shape) || fact.type.container != Container::kTensor)
      continue;
    const auto& elements = *fact.elements;
    if (std::any_of(elements.begin(), elements.end(), [](Size size) { return size.is_unknown(); }))
      continue;

    ValueId solved = ValueId::kNone;
    if (const auto constant = constant_of(fact)) {
      solved = graph.add_constant(value.name, *constant);
    } else if (fact.type.dtype == DataType::kI64 && fact.type.shape.rank() <= 1 &&
               decided_by_inputs(graph, elements)) {
      const Layer& layer = graph.layer(id);
      const LayerId tensor = graph.add({.name = layer.name,
                                        .op = SizeTensor{elements, fact.type.shape.rank() == 0},
                                        .inputs = {},
                                        .origins = layer.origins});
      graph.swap_names(id, tensor);
      solved = graph.layer(tensor).outputs[0];
    } else {
      continue;
    }
    run.did(value.name, "is known while building");
    graph.swap_names(solved, output);
    graph.replace_uses(output, solved);
    changed = true;
  }
  return changed;
}

}  // namespace

bool solve_sizes(Graph& graph, PassRun& run) { return sweep(graph, run, solve_sizes_at); }

}  // namespace anneal
