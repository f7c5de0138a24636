#include "anneal/graph/refine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/graph/op/infer_rules.h"

namespace anneal {

void mark_symbols(const Shape& shape, const SizeTable& sizes, std::vector<bool>& symbols) {
  symbols.resize(sizes.symbols().size());
  for (const Size size : shape)
    if (const auto symbol = sizes.symbol_index(size)) symbols[*symbol] = true;
}

void note_replacement(Size before, Size now, const std::vector<bool>& fixed, SizeTable& sizes,
                      SizeReplacements& replaced) {
  const auto symbol = sizes.symbol_index(before);
  if (!symbol || before == now || now.is_unknown() || replaced.contains(*symbol)) return;
  if (*symbol < fixed.size() && fixed[*symbol]) return;
  now = sizes.substitute(now, replaced);
  if (!std::ranges::binary_search(sizes.symbols_in(now), *symbol)) replaced[*symbol] = now;
}

// One walk over a graph and its bodies.
class Refinement {
 public:
  // replaced grows: a layer whose output had a symbol of its own may now have a size that is
  // computed from others.
  Refinement(Graph& graph, SizeReplacements& replaced)
      : graph_(graph), sizes_(graph.sizes()), replaced_(replaced), order_(graph.order()) {}

  // found: the symbols, by index, that layers outside have.
  void run(std::vector<bool> found) {
    found_ = std::move(found);
    for (const ValueId input : graph_.inputs_) {
      Type& type = graph_.mutable_value(input).fact.type;
      update(type.shape);
      mark_symbols(type.shape, sizes_, found_);
    }
    for (const LayerId id : order_) {
      if (auto* tensor = std::get_if<SizeTensor>(&graph_.mutable_layer(id).op))
        for (Size& size : tensor->elements) size = updated(size);
      const Layer& layer = graph_.layer(id);
      for (const BodyUse& use : bodies_of(layer.op)) refine_body(layer, use);
      const Facts facts = graph_.infer_outputs(id);
      check(facts.size() == layer.outputs.size(), "as many outputs as facts");
      with_context(
          [&] { return fmt::format("layer \"{}\" ({})", layer.name, to_string(layer.op)); },
          [&] {
            for (size_t k = 0; k < facts.size(); ++k)
              narrow(graph_.mutable_value(layer.outputs[k]).fact, facts[k]);
          });
      for (const ValueId output : layer.outputs)
        mark_symbols(graph_.value(output).type().shape, sizes_, found_);
    }
  }

 private:
  Size updated(Size size) {
    return rules::pinned(sizes_.represented(sizes_.substitute(size, replaced_)), sizes_);
  }
  void update(Shape& shape) {
    for (int axis = 0; axis < shape.rank(); ++axis) shape[axis] = updated(shape[axis]);
  }

  void narrow(Fact& fact, const Fact& inferred) {
    const Shape& now = inferred.type.shape;
    Shape& before = fact.type.shape;
    for (int axis = 0; axis < std::min(before.rank(), now.rank()); ++axis)
      note_replacement(before[axis], now[axis], found_, sizes_, replaced_);
    update(before);
    if (fact.elements)
      for (Size& size : *fact.elements)
        size = sizes_.represented(sizes_.substitute(size, replaced_));
    fact = graph_.narrowed(fact, inferred);
    update(fact.type.shape);
  }

  // The body learns the facts of its captured values.
  void refine_body(const Layer& layer, const BodyUse& use) {
    check(use.body >= 0 && static_cast<size_t>(use.body) < graph_.bodies_.size(),
          "a body of this graph");
    Graph& body = graph_.bodies_[static_cast<size_t>(use.body)];
    Refinement refinement(body, replaced_);
    const auto outer = static_cast<size_t>(use.outer), inner = static_cast<size_t>(use.inner);
    for (size_t i = 0; outer + i < layer.inputs.size(); ++i) {
      check(inner + i < body.inputs_.size(), "a body with an input for every capture");
      Fact& fact = body.mutable_value(body.inputs_[inner + i]).fact;
      fact.type = graph_.narrowed(fact, graph_.value(layer.inputs[outer + i]).fact).type;
    }
    replaced_.merge(std::exchange(body.replaced_sizes_, {}));
    refinement.run(found_);
  }

  Graph& graph_;
  SizeTable& sizes_;
  SizeReplacements& replaced_;
  // Found before any size is replaced: a size is found by the same layer in all that have it.
  const std::vector<LayerId> order_;
  std::vector<bool> found_;
};

void Graph::refine(SizeReplacements solved) {
  SizeReplacements replaced = std::exchange(replaced_sizes_, {});
  const std::vector<SizeSymbol>& symbols = sizes_->symbols();
  for (uint32_t i = 0; i < symbols.size(); ++i)
    if (const Bounds& bounds = symbols[i].bounds; bounds.min == bounds.max)
      solved.insert_or_assign(i, bounds.min);
  for (const auto& [symbol, size] : solved) replaced.insert_or_assign(symbol, size);
  Refinement(*this, replaced).run({});
}

}  // namespace anneal
