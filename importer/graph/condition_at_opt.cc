#include "anneal/importer/graph/condition_at_opt.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "anneal/core/new_tensor.h"
#include "anneal/importer/node/attempt.h"

namespace anneal {
namespace {

constexpr size_t kMostLayers = 1024;

class AtOpt {
 public:
  AtOpt(const Graph& graph, const std::vector<bool>& of_inputs)
      : graph_(graph), of_inputs_(of_inputs) {}

  std::optional<bool> condition(ValueId value) {
    for (const LayerId id : layers_for(value)) infer(graph_.layer(id));
    const auto& elements = fact_of(value).elements;
    if (!elements || elements->size() != 1 || !elements->front().known()) return std::nullopt;
    return elements->front().value() != 0;
  }

 private:
  Size at(Size size) const {
    if (size.known() || size.is_unknown()) return size;
    const SizeTable& sizes = graph_.sizes();
    const auto is_chosen = [&](uint32_t symbol) {
      return of_inputs_[symbol] && sizes.symbols()[symbol].bounds != Bounds{};
    };
    return std::ranges::all_of(sizes.symbols_in(size), is_chosen) ? Size(sizes.range(size).opt)
                                                                  : Size::unknown();
  }

  const Fact& fact_of(ValueId value) {
    const auto [known, is_new] = facts_.try_emplace(value, graph_.value(value).fact);
    Fact& fact = known->second;
    if (!is_new) return fact;
    for (int axis = 0; axis < fact.type.shape.rank(); ++axis)
      fact.type.shape[axis] = at(fact.type.shape[axis]);
    if (fact.elements)
      for (Size& size : *fact.elements) size = at(size);
    return fact;
  }

  // The layers that decide the contents, from known sizes on; no large tensors.
  std::set<LayerId> layers_for(ValueId value) {
    std::set<LayerId> needed;
    std::vector<ValueId> open = {value};
    while (!open.empty()) {
      const ValueId next = open.back();
      open.pop_back();
      const LayerId producer =
          next == ValueId::kNone ? LayerId::kNone : graph_.value(next).producer;
      if (producer == LayerId::kNone || needed.size() >= kMostLayers) continue;
      const auto& [type, elements] = fact_of(next);
      const bool is_done =
          elements && std::ranges::all_of(*elements, [](Size size) { return size.known(); });
      if (is_done || type.container != Container::kTensor || !known(type.shape) ||
          count(dims_of(type.shape)) > kMaxKnownElements)
        continue;
      const Layer& layer = graph_.layer(producer);
      if (!bodies_of(layer.op).empty() || !needed.insert(producer).second) continue;
      open.insert(open.end(), layer.inputs.begin(), layer.inputs.end());
    }
    return needed;
  }

  void infer(const Layer& layer) {
    std::vector<TensorView> views(layer.inputs.size());
    std::vector<InferInput> inputs(layer.inputs.size());
    for (size_t i = 0; i < layer.inputs.size(); ++i) {
      if (layer.inputs[i] == ValueId::kNone) continue;
      inputs[i].fact = &fact_of(layer.inputs[i]);
      const Tensor* constant = graph_.constant(layer.inputs[i]);
      if (constant == nullptr) continue;
      views[i] = kernel_view(*constant);
      inputs[i].value = &views[i];
    }
    const Facts inferred =
        infer_layer(layer.op, layer.epilogues, layer.op_input_count, InferInputs(inputs, numbers_));
    for (size_t k = 0; k < layer.outputs.size(); ++k)
      if (inferred[k].elements) facts_[layer.outputs[k]] = inferred[k];
  }

  const Graph& graph_;
  const std::vector<bool>& of_inputs_;
  SizeTable numbers_;  // empty: there is nothing but numbers
  std::unordered_map<ValueId, Fact> facts_;
};

}  // namespace

std::optional<bool> condition_at_opt(const Graph& graph, ValueId condition,
                                     const std::vector<bool>& of_inputs) {
  // Inference fails where a layer does not take such sizes.
  const auto known = attempt([&] { return AtOpt(graph, of_inputs).condition(condition); });
  return known ? *known : std::nullopt;
}

}  // namespace anneal
