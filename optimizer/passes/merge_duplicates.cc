// merge_duplicates: equal constants and equal layers are merged.
//
//   const a = {1,2}; const b = {1,2}                 =>   every use of b is one of a
//   y = Softmax(x) axis=1; z = Softmax(x) axis=1     =>   every use of z is one of y
//
// Constants are equal if their types and bytes are; layers, if op, epilogues, inputs and the types
// of the outputs are. The one that runs first stays. Layers that run bodies stay: bodies are not
// compared. So does Require, whose work is not its output. Weights stay where other ones may take
// their place.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_map>

#include "anneal/graph/op/custom_operator.h"
#include "anneal/optimizer/passes/passes.h"

namespace anneal {
namespace {

// Total, and cheap where tensors differ early.
struct Before {
  bool operator()(const Tensor* a, const Tensor* b) const {
    if (a->dtype() != b->dtype()) return a->dtype() < b->dtype();
    const auto x = a->dims().span(), y = b->dims().span();
    if (!std::ranges::equal(x, y)) return std::ranges::lexicographical_compare(x, y);
    const auto p = a->bytes(), q = b->bytes();
    if (p.data() == q.data()) return false;
    return p.size() != 0 && std::memcmp(p.data(), q.data(), p.size()) < 0;
  }
};

bool merge_constants(Graph& graph, PassRun& run) {
  std::map<const Tensor*, ValueId, Before> met;
  bool changed = false;
  const auto visit = [&](ValueId id) {
    const Tensor* tensor = graph.constant(id);
    if (!tensor || !run.may_rewrite()) return;
    if (run.options.weights_may_change && is_float(tensor->dtype()) && tensor->count() > 1) return;
    const auto [first, is_new] = met.emplace(tensor, id);
    if (is_new || first->second == id) return;
    run.did(graph.value(id).name,
            fmt::format("has the content of \"{}\"", graph.value(first->second).name));
    graph.replace_uses(id, first->second);
    changed = true;
  };
  for (const LayerId id : graph.order())
    for (const ValueId input : std::vector(graph.layer(id).inputs)) visit(input);
  for (size_t i = 0; i < graph.outputs().size(); ++i) visit(graph.outputs()[i].value);
  return changed;
}

uint64_t hash_of(const Layer& layer) {
  uint64_t hash = anneal::hash(layer.op);
  const auto mix = [&](uint64_t value) { hash = (hash ^ value) * 0x100000001b3u; };
  for (const Program& program : layer.epilogues) mix(anneal::hash(program));
  for (const ValueId input : layer.inputs) mix(static_cast<uint64_t>(input));
  return hash;
}

bool equal(const Graph& graph, const Layer& a, const Layer& b) {
  return a.op == b.op && a.epilogues == b.epilogues && a.op_input_count == b.op_input_count &&
         a.inputs == b.inputs &&
         std::ranges::equal(a.outputs, b.outputs, [&](ValueId x, ValueId y) {
           return graph.value(x).type() == graph.value(y).type();
         });
}

bool merge_layers(Graph& graph, PassRun& run) {
  std::unordered_multimap<uint64_t, LayerId> met;
  bool changed = false;
  for (const LayerId id : graph.order()) {
    const Layer& layer = graph.layer(id);
    if (std::holds_alternative<Require>(layer.op) || !bodies_of(layer.op).empty() ||
        !is_pure(layer.op))
      continue;
    const uint64_t hash = hash_of(layer);
    const auto [begin, end] = met.equal_range(hash);
    const auto same = std::find_if(begin, end, [&](const auto& each) {
      return equal(graph, graph.layer(each.second), layer);
    });
    if (same == end) {
      met.emplace(hash, id);
      continue;
    }
    if (!run.may_rewrite()) break;
    const Layer& first = graph.layer(same->second);
    Saving saved = {1, 0};
    for (size_t k = 0; k < layer.outputs.size(); ++k) {
      saved.bytes += saving_of(graph, layer.outputs[k]).bytes / 2;
      graph.replace_uses(layer.outputs[k], first.outputs[k]);
    }
    run.did(layer.name, fmt::format("does what \"{}\" does", first.name), saved);
    changed = true;
  }
  return changed;
}

}  // namespace

bool merge_duplicates(Graph& graph, PassRun& run) {
  const bool constants = merge_constants(graph, run);
  return merge_layers(graph, run) || constants;
}

}  // namespace anneal
