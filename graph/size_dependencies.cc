#include "anneal/graph/size_dependencies.h"

#include <algorithm>
#include <set>

namespace anneal {
namespace {

void insert_symbols(const Graph& graph, const Layer& layer, std::set<uint32_t>& symbols) {
  const SizeTable& sizes = graph.sizes();
  if (const auto* tensor = std::get_if<SizeTensor>(&layer.op))
    for (const Size size : tensor->elements)
      for (const uint32_t symbol : sizes.symbols_in(size)) symbols.insert(symbol);
  for (const BodyUse& use : bodies_of(layer.op)) {
    const Graph& body = graph.bodies()[static_cast<size_t>(use.body)];
    std::set<uint32_t> inside;
    for (const LayerId id : body.layers()) insert_symbols(body, body.layer(id), inside);
    const std::vector<bool> of_inputs = body.symbols_of_inputs();
    std::erase_if(inside, [&](uint32_t symbol) { return of_inputs[symbol]; });
    symbols.merge(inside);
  }
}

bool contains(const Fact& fact, uint32_t symbol, const SizeTable& sizes) {
  const auto has = [&](Size size) {
    return !size.known() && !size.is_unknown() &&
           std::ranges::binary_search(sizes.symbols_in(size), symbol);
  };
  return std::ranges::any_of(fact.type.shape, has) ||
         (fact.elements && std::ranges::any_of(*fact.elements, has));
}

// A layer finds a size if one of its outputs has it, and none of its inputs does.
bool finds(const Graph& graph, const Layer& layer, uint32_t symbol) {
  const SizeTable& sizes = graph.sizes();
  const auto has_alone = [&](ValueId output) {
    const Shape& shape = graph.value(output).type().shape;
    return std::ranges::any_of(shape,
                               [&](Size size) { return sizes.symbol_index(size) == symbol; });
  };
  return std::ranges::any_of(layer.outputs, has_alone) &&
         std::ranges::none_of(layer.inputs, [&](ValueId input) {
           return input != ValueId::kNone && contains(graph.value(input).fact, symbol, sizes);
         });
}

}  // namespace

std::vector<uint32_t> symbols_written(const Graph& graph, const Layer& layer) {
  std::set<uint32_t> symbols;
  insert_symbols(graph, layer, symbols);
  return {symbols.begin(), symbols.end()};
}

SizeDependencies::SizeDependencies(const Graph& graph) {
  const std::vector<bool> of_inputs = graph.symbols_of_inputs();
  std::unordered_map<uint32_t, std::vector<LayerId>> writers;  // by symbol
  for (const LayerId id : graph.layers())
    for (const uint32_t symbol : symbols_written(graph, graph.layer(id)))
      if (!of_inputs[symbol]) writers[symbol].push_back(id);
  if (writers.empty()) return;
  for (const LayerId id : graph.layers())
    for (const auto& [symbol, those] : writers)
      if (finds(graph, graph.layer(id), symbol))
        for (const LayerId writer : those) dependencies_[writer].push_back(id);
}

const std::vector<LayerId>& SizeDependencies::of(LayerId layer) const {
  static const std::vector<LayerId> kNone;
  const auto found = dependencies_.find(layer);
  return found == dependencies_.end() ? kNone : found->second;
}

}  // namespace anneal
