// solve_indices: gathers and scatters by constant indices that describe a box become slices.
//
//   y = Gather(x, 2) axis=1, GatherND, GatherElements   =>   s = Slice(x, ...); y = Reshape(s)
//   y = ScatterND(x, i, u), ScatterElements   =>   y = Concat(Slice(x, before), u, Slice(x, after))
//
// A slice is a view, so what a gather copied is not copied any more, and of a scatter only what it
// keeps is. A box that is smaller than x along several axes takes one Concat for each. Not for
// indices that may be out of range, which must fail while running; not for a scatter that reduces
// or that leaves gaps. Runs after fold_constants, which makes indices constant, and before
// remove_identity, which takes the Reshapes that change nothing.
#include <algorithm>

#include "anneal/optimizer/analysis/index_box.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

using Integers = std::vector<int64_t>;

bool covers(const IndexBox& box, size_t i, Size size) {
  return box.starts[i] == 0 && box.steps[i] == 1 && size == Size(box.counts[i]);
}

// Slice of x along the axes from first_axis on, then Reshape to the shape of the layer's output.
bool read_box(Graph& graph, LayerId id, const IndexBox& box, int first_axis) {
  const ValueId x = graph.layer(id).inputs[0], output = graph.layer(id).outputs[0];
  Rewrite rewrite(graph, id);
  Integers starts, ends, axes, steps;
  for (size_t i = 0; i < box.starts.size(); ++i) {
    const int axis = first_axis + static_cast<int>(i);
    if (covers(box, i, rewrite.shape(x)[axis])) continue;
    starts.push_back(box.starts[i]);
    ends.push_back(box.starts[i] + (box.counts[i] - 1) * box.steps[i] + 1);
    axes.push_back(axis);
    steps.push_back(box.steps[i]);
  }
  ValueId result = axes.empty() ? x : rewrite.slice(x, starts, ends, axes, steps);
  if (result == x || rewrite.shape(result) != rewrite.shape(output))
    result = rewrite.reshape(result, rewrite.shape(output));
  return rewrite.finish(result);
}

// x with the box replaced by update, which has its shape. axes: those along which it is smaller.
ValueId replace_box(Rewrite& rewrite, ValueId x, ValueId update, const IndexBox& box,
                    std::span<const int> axes) {
  if (axes.empty()) return update;
  const int axis = axes[0];
  const auto i = static_cast<size_t>(axis);
  const int64_t begin = box.starts[i], end = begin + box.counts[i];
  const int64_t size = rewrite.shape(x)[axis].value();
  ValueId inner = update;
  if (axes.size() > 1)
    inner = replace_box(rewrite, rewrite.slice(x, axis, begin, end), update, box, axes.subspan(1));
  std::vector<ValueId> parts;
  if (begin > 0) parts.push_back(rewrite.slice(x, axis, 0, begin));
  parts.push_back(inner);
  if (end < size) parts.push_back(rewrite.slice(x, axis, end, size));
  return rewrite.concat(std::move(parts), axis);
}

// The box is of the first axes of x.
bool write_box(Graph& graph, LayerId id, const IndexBox& box) {
  const ValueId x = graph.layer(id).inputs[0], update = graph.layer(id).inputs[2];
  Rewrite rewrite(graph, id);
  const Shape from = rewrite.shape(x);
  Shape wanted;
  std::vector<int> smaller;
  for (int axis = 0; axis < from.rank(); ++axis) {
    const auto i = static_cast<size_t>(axis);
    if (i >= box.starts.size()) {
      wanted.push_back(from[axis]);
      continue;
    }
    if (box.steps[i] != 1 || !from[axis].known()) return false;
    wanted.push_back(box.counts[i]);
    if (!covers(box, i, from[axis])) smaller.push_back(axis);
  }
  ValueId inner = update;
  if (rewrite.shape(update) != wanted || smaller.empty()) inner = rewrite.reshape(update, wanted);
  if (inner == ValueId::kNone || rewrite.shape(inner) != wanted) return false;
  return rewrite.finish(replace_box(rewrite, x, inner, box, smaller));
}

bool takes_indices(const Op& op) {
  return std::holds_alternative<Gather>(op) || std::holds_alternative<GatherND>(op) ||
         std::holds_alternative<GatherElements>(op) || std::holds_alternative<ScatterND>(op) ||
         std::holds_alternative<ScatterElements>(op);
}

bool solve_indices_at(Graph& graph, LayerId id, PassRun& run) {
  const Layer& layer = graph.layer(id);
  if (!takes_indices(layer.op) || !layer.epilogues.empty()) return false;
  const Tensor* indices = graph.constant(layer.inputs[1]);
  if (!indices || indices->count() == 0) return false;
  const Type& type = graph.value(layer.inputs[0]).type();
  // Contents that inference knows belong to shape arithmetic, which costs nothing.
  if (type.dtype == DataType::kString || graph.value(layer.outputs[0]).fact.elements) return false;
  const std::string name = layer.name;
  const Shape shape = type.shape;
  std::optional<IndexBox> box;
  bool solved = false;
  if (const auto* op = std::get_if<Gather>(&layer.op)) {
    const int axis = static_cast<int>(op->axis);
    box = box_of_list(*indices, shape[axis], graph.sizes());
    solved = box && read_box(graph, id, *box, axis);
  } else if (const auto* op = std::get_if<GatherND>(&layer.op)) {
    if (op->batch_dims != 0) return false;
    box = box_of_tuples(*indices, shape, graph.sizes());
    solved = box && read_box(graph, id, *box, 0);
  } else if (const auto* op = std::get_if<GatherElements>(&layer.op)) {
    box = box_of_elements(*indices, static_cast<int>(op->axis), shape, graph.sizes());
    solved = box && read_box(graph, id, *box, 0);
  } else if (const auto* op = std::get_if<ScatterND>(&layer.op)) {
    if (op->reduction != ScatterReduction::kNone) return false;
    box = box_of_tuples(*indices, shape, graph.sizes());
    solved = box && write_box(graph, id, *box);
  } else if (const auto* op = std::get_if<ScatterElements>(&layer.op)) {
    if (op->reduction != ScatterReduction::kNone) return false;
    box = box_of_elements(*indices, static_cast<int>(op->axis), shape, graph.sizes());
    solved = box && write_box(graph, id, *box);
  }
  if (solved) run.did(name, "its indices describe a slice");
  return solved;
}

}  // namespace

bool solve_indices(Graph& graph, PassRun& run) { return sweep(graph, run, solve_indices_at); }

}  // namespace anneal
