// remove_identity: a layer whose output is its first input, element for element, goes.
//
//   y = Pointwise(x) program=$0;  Reshape to the same shape;  Transpose that moves nothing;  Expand
//   to the same shape;  Concat of one;  Slice of everything   =>   x
//
// Not where the layer has an epilogue, or connects a graph input or constant with a graph output:
// somebody must write the output.
#include <algorithm>

#include "anneal/optimizer/passes.h"
#include "anneal/optimizer/query.h"

namespace anneal {
namespace {

bool keeps_order(const Graph& graph, const Layer& layer) {
  if (const auto* op = std::get_if<Pointwise>(&layer.op)) return op->program.is_identity();
  if (const auto* op = std::get_if<Transpose>(&layer.op))
    return std::is_sorted(op->permutation.begin(), op->permutation.end());
  if (std::holds_alternative<Concat>(layer.op)) return layer.inputs.size() == 1;
  if (std::holds_alternative<Slice>(layer.op)) {
    // With the shape unchanged, only steps of -1 could still change the order.
    const auto& steps = graph.value(layer.inputs[4]).fact.elements;
    return steps && std::all_of(steps->begin(), steps->end(),
                                [](Size s) { return s.known() && s.value() > 0; });
  }
  return std::holds_alternative<Reshape>(layer.op) || std::holds_alternative<Expand>(layer.op);
}

bool remove(Graph& graph, LayerId id, PassRun& run) {
  const Layer& layer = graph.layer(id);
  if (layer.outputs.size() != 1 || layer.inputs.empty() || !layer.epilogues.empty()) return false;
  const ValueId input = layer.inputs[0], output = layer.outputs[0];
  if (input == ValueId::kNone || graph.value(input).type() != graph.value(output).type())
    return false;
  if (!keeps_order(graph, layer)) return false;
  if (graph.is_output(output) && producer(graph, input) == LayerId::kNone) return false;
  run.did(layer.name, "changes nothing");
  graph.replace_uses(output, input);
  return true;
}

}  // namespace

bool remove_identity(Graph& graph, PassRun& run) { return sweep(graph, run, remove); }

}  // namespace anneal
