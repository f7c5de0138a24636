// fold_constants: a layer whose inputs are all constants is computed now, by the reference kernels.
//
//   y = Pointwise(1, 2) program=add   =>   const y = 3
//
// A Dequantize of 8 and 16 bits stays, for integer_products to see; lower_quantize computes those
// that are left. Not when the results would be larger than PassOptions::fold_budget_bytes: then the
// layer runs each time, and the engine file stays small.
#include <algorithm>

#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/analysis/scaling.h"
#include "anneal/optimizer/passes.h"
#include "anneal/optimizer/rewrite/evaluate.h"

namespace anneal {
namespace {

bool fold_constants_at(Graph& graph, LayerId id, PassRun& run) {
  const Layer& layer = graph.layer(id);
  if (layer.inputs.empty() || !bodies_of(layer.op).empty()) return false;
  if (op_as<Dequantize>(graph, id) && scaling_of(graph, id)) return false;
  uint64_t bytes = 0;
  for (const ValueId input : layer.inputs)
    if (input != ValueId::kNone && !graph.constant(input)) return false;
  for (const ValueId output : layer.outputs) {
    const Type& type = graph.value(output).type();
    if (type.container != Container::kTensor || type.dtype == DataType::kString) return false;
    if (!known(type.shape)) continue;  // a size that depends on values, which are known
    bytes += static_cast<uint64_t>(count(dims_of(type.shape))) * size_of(type.dtype);
  }
  if (bytes > run.options.fold_budget_bytes) {
    run.refused(layer.name, "constant, but larger than the budget for folding");
    return false;
  }
  std::vector<const Tensor*> inputs;
  for (const ValueId input : layer.inputs) inputs.push_back(graph.constant(input));
  const std::vector<Tensor> results = evaluate(layer, inputs, graph.sizes());
  const std::vector<ValueId> outputs = layer.outputs;
  for (size_t i = 0; i < results.size(); ++i) {
    const ValueId folded = graph.add_constant(graph.value(outputs[i]).name, results[i]);
    graph.swap_names(folded, outputs[i]);
    graph.replace_uses(outputs[i], folded);
  }
  run.did(layer.name, "computed while building");
  return true;
}

}  // namespace

bool fold_constants(Graph& graph, PassRun& run) {
  const bool changed = sweep(graph, run, fold_constants_at);
  if (changed) graph.refine();  // contents that became known may narrow sizes
  return changed;
}

}  // namespace anneal
