// pool_to_reduce: a pool whose only window is the whole input is a reduction.
//
//   y = Pool(x[N,C,7,7]) kind=average kernel=[7,7]   =>   y = Reduce(x, [2,3]) kind=mean
//
// For averages and maxima without pads and indices, of sizes that are known. Reduce is the form
// that the importer gives global pools, too: its kernels share the elements of one window among
// threads, those of Pool give a window to one thread. The order of the summation becomes Reduce's.
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

// One position only, at which the window meets each element once.
bool covers_all(const Pool& op, const Shape& x, const Shape& y) {
  for (size_t i = 0; i < op.kernel.size(); ++i) {
    const auto axis = static_cast<int>(i) + 2;
    if (op.pads_begin[i] != 0 || op.pads_end[i] != 0 || x[axis] != Size(op.kernel[i]) ||
        y[axis] != Size(1) || (op.dilations[i] != 1 && op.kernel[i] != 1))
      return false;
  }
  return true;
}

bool reduce(Graph& graph, LayerId id, PassRun& run) {
  const auto* op = op_as<Pool>(graph, id);
  const Layer& layer = graph.layer(id);
  if (!op || op->kind == PoolKind::kLp || op->with_indices) return false;
  const Shape shape = graph.value(layer.inputs[0]).type().shape;
  if (!covers_all(*op, shape, graph.value(layer.outputs[0]).type().shape)) return false;
  std::vector<int64_t> axes;
  for (int axis = 2; axis < shape.rank(); ++axis) axes.push_back(axis);
  const std::string name = layer.name;
  const Dims dims = {static_cast<int64_t>(axes.size())};
  std::vector<ValueId> inputs = layer.inputs;
  inputs.insert(inputs.begin() + 1,
                graph.add_constant(name + ".in1", Tensor::of<int64_t>(DataType::kI64, dims, axes)));
  NewLayer reduction = {
      .name = name,
      .op = Reduce{.kind = op->kind == PoolKind::kMax ? ReduceKind::kMax : ReduceKind::kMean},
      .inputs = std::move(inputs),
      .epilogues = layer.epilogues,
      .op_input_count = 2,
      .origins = layer.origins};
  if (const std::string why_not = run.ask_targets(graph, reduction); !why_not.empty()) {
    run.refused(name, "no better as a reduction: " + why_not);
    return false;
  }
  const LayerId added = graph.add(std::move(reduction));
  graph.replace_layer(id, added);
  run.did(name, "its window is the whole input");
  return true;
}

}  // namespace

bool pool_to_reduce(Graph& graph, PassRun& run) { return sweep(graph, run, reduce); }

}  // namespace anneal
