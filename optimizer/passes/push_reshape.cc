// push_reshape: an elementwise layer moves from after a Reshape to before it, so that it can join
// the normalization there.
//
//   n = Normalize(x) axes=[2]; y = Pointwise(Reshape(n, s), g)
//     =>   n = Normalize(Reshape(x, r)) axes=[2,3]; y = Reshape(Pointwise(n, Reshape(g)), s)
//
// GroupNorm is such a sandwich: x is [N,groups,rest] for the Normalize, [N,channels,H,W] for scale,
// shift and activation. r is the coarsest shape that refines both: an axis that either shape
// divides is divided, [N,groups,channels/groups,H*W], and adjacent axes that no layer distinguishes
// stay one. Constants are cut now, other operands by a Reshape, which is a view. Not where the
// value before or after the Reshape has other readers, where an operand enlarges the result, or
// where sizes are not known to divide each other. Runs after fuse_pointwise, so that an activation
// is one layer, and before fuse_epilogue, which benefits from it.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "anneal/core/dtype_kinds.h"
#include "anneal/optimizer/analysis/axis_map.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/programs/join_programs.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

constexpr int kFarthestReshape = 8;  // elementwise layers between the Normalize and the Reshape

bool counts(const Layer& layer) {
  const auto* pointwise = std::get_if<Pointwise>(&layer.op);
  return (pointwise && pointwise->program.uses_index()) ||
         std::ranges::any_of(layer.epilogues, &Program::uses_index);
}

bool is_reshape(const Graph& graph, LayerId id) {
  return op_as<Reshape>(graph, id) && graph.layer(id).epilogues.empty() && !finds_sizes(graph, id);
}

// From a Normalize on, each read by the next alone, which `reader` is for the value; empty if there
// is none.
std::vector<LayerId> reshape_chain(const Graph& graph, ValueId value, LayerId reader, int most) {
  const LayerId id = producer(graph, value);
  if (id == LayerId::kNone || sole_user(graph, value) != reader) return {};
  const Layer& layer = graph.layer(id);
  if (layer.outputs.size() != 1 || counts(layer)) return {};
  if (op_as<Normalize>(graph, id)) return {id};
  if (!op_as<Pointwise>(graph, id) || !layer.epilogues.empty() || most == 0) return {};
  for (const ValueId input : layer.inputs) {
    if (shape_of(graph, input) != shape_of(graph, value)) continue;
    auto chain = reshape_chain(graph, input, id, most - 1);
    if (chain.empty()) continue;
    chain.push_back(id);
    return chain;
  }
  return {};
}

// Two shapes of the same elements, and the axes of a finer one that each of their axes is.
struct RefinedShape {
  Shape before, behind, shape;
  AxisMap::Parts of_before, of_behind;
};

// Whether the operand is, along each axis of `whole`, either of size 1 or as long as it.
bool spreads_over(const Graph& graph, ValueId operand, const Shape& whole) {
  const Shape& shape = shape_of(graph, operand);
  const int missing = whole.rank() - shape.rank();
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (shape[axis] != Size(1) && (missing < 0 || shape[axis] != whole[missing + axis]))
      return false;
  return missing >= 0;
}

bool is_spread(const Graph& graph, ValueId operand, const Shape& whole, size_t axis) {
  const Shape& shape = shape_of(graph, operand);
  const int own = static_cast<int>(axis) - (whole.rank() - shape.rank());
  return own < 0 || shape[own] == Size(1);
}

// Adjacent axes in both shapes become one, unless an operand of the layer is spread over only one
// axis, or one axis is the channels, which channels-last memory stores apart. nullopt if there is
// no finer shape.
std::optional<RefinedShape> refine(const Graph& graph, const Shape& before, const Layer& layer) {
  const Shape& behind = shape_of(graph, layer.outputs[0]);
  AxisMap map(before, graph.sizes());
  if (!map.reshape(behind)) return std::nullopt;
  const auto is_alike = [&](size_t a, size_t b) {
    const bool is_spatial = a >= 2 && b >= 2;
    return (a == b || is_spatial) && std::ranges::all_of(layer.inputs, [&](ValueId operand) {
             return is_spread(graph, operand, behind, a) == is_spread(graph, operand, behind, b);
           });
  };
  RefinedShape refined{
      .before = before, .behind = behind, .shape = {}, .of_before = {}, .of_behind = {}};
  if (!map.refinement(is_alike, refined.shape, refined.of_before, refined.of_behind))
    return std::nullopt;
  return refined;
}

class Mover {
 public:
  Mover(Graph& graph, LayerId id, const RefinedShape& refined)
      : graph_(graph), rewrite_(graph, id), refined_(refined) {}

  // kNone: no Reshape can say so.
  ValueId whole(ValueId x) { return reshaped(x, refined_.shape); }

  // The layer with `moved` in place of `replaced`; its other inputs fit `shape`.
  LayerId layer(LayerId id, ValueId replaced, ValueId moved, bool is_before) {
    const Layer& old = graph_.layer(id);
    NewLayer added{.name = old.name,
                   .op = old.op,
                   .inputs = {},
                   .epilogues = old.epilogues,
                   .op_input_count = old.op_input_count,
                   .origins = old.origins};
    if (auto* normalize = std::get_if<Normalize>(&added.op)) normalize->axes = axes(*normalize);
    for (const ValueId output : old.outputs)
      added.output_names.push_back(graph_.value(output).name + "/moved");
    for (const ValueId input : old.inputs) {
      added.inputs.push_back(input == replaced ? moved : operand(input, is_before));
      if (added.inputs.back() == ValueId::kNone) return LayerId::kNone;
    }
    return graph_.add(std::move(added));
  }

  std::vector<int64_t> axes(const Normalize& op) const {
    std::vector<int64_t> moved;
    for (const int64_t axis : op.axes)
      for (const int part : refined_.of_before[static_cast<size_t>(axis)]) moved.push_back(part);
    return moved;
  }

 private:
  ValueId operand(ValueId value, bool is_before) {
    const Shape& whole = is_before ? refined_.before : refined_.behind;
    const AxisMap::Parts& parts = is_before ? refined_.of_before : refined_.of_behind;
    Shape cut = Shape::filled(refined_.shape.rank(), Size(1));
    for (size_t axis = 0; axis < parts.size(); ++axis)
      for (const int part : parts[axis])
        if (!is_spread(graph_, value, whole, axis)) cut[part] = refined_.shape[part];
    while (cut.rank() > 0 && cut[0] == Size(1)) cut = Shape(cut.span().subspan(1));
    return reshaped(value, cut);
  }
  ValueId reshaped(ValueId value, const Shape& to) {
    if (shape_of(graph_, value) == to) return value;
    if (const Tensor* constant = graph_.constant(value); constant && known(to)) {
      const Value& info = graph_.value(value);
      return graph_.add_constant(
          info.name, Tensor(constant->dtype(), dims_of(to), std::make_shared<Tensor>(*constant),
                            constant->bytes()));
    }
    while (is_reshape(graph_, producer(graph_, value)))
      value = graph_.layer(producer(graph_, value)).inputs[0];
    return shape_of(graph_, value) == to ? value : rewrite_.reshape(value, to);
  }

  Graph& graph_;
  Rewrite rewrite_;
  const RefinedShape& refined_;
};

struct ReshapeMatch {
  LayerId reshape = LayerId::kNone;
  std::vector<LayerId> chain;
};

std::optional<ReshapeMatch> find_reshape(const Graph& graph, LayerId id) {
  for (const ValueId input : graph.layer(id).inputs) {
    const LayerId reshape = producer(graph, input);
    if (!is_reshape(graph, reshape) || sole_user(graph, input) != id ||
        shape_of(graph, input) != shape_of(graph, graph.layer(id).outputs[0]))
      continue;
    auto chain = reshape_chain(graph, graph.layer(reshape).inputs[0], reshape, kFarthestReshape);
    if (!chain.empty()) return ReshapeMatch{reshape, std::move(chain)};
  }
  return std::nullopt;
}

bool operands_fit(const Graph& graph, LayerId id, const Shape& whole) {
  const Layer& layer = graph.layer(id);
  return std::ranges::all_of(layer.inputs,
                             [&](ValueId input) { return spreads_over(graph, input, whole); });
}

// The layer's outputs, one Reshape behind those of `moved` each.
bool put_behind(Graph& graph, LayerId id, LayerId moved) {
  const std::vector<ValueId> outputs = graph.layer(id).outputs;
  Rewrite rewrite(graph, id);
  std::vector<ValueId> results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    results.push_back(rewrite.reshape(graph.layer(moved).outputs[i], shape_of(graph, outputs[i])));
    if (results.back() == ValueId::kNone ||
        graph.value(results.back()).type() != graph.value(outputs[i]).type())
      return false;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    graph.replace_uses(outputs[i], results[i]);
    graph.swap_names(outputs[i], results[i]);
  }
  return true;
}

bool push_reshape_at(Graph& graph, LayerId id, PassRun& run) {
  if (!op_as<Pointwise>(graph, id) || !graph.layer(id).epilogues.empty() || counts(graph.layer(id)))
    return false;
  const auto match = find_reshape(graph, id);
  if (!match) return false;
  const LayerId first = match->chain[0];
  const ValueId normal = graph.layer(first).outputs[0], x = graph.layer(first).inputs[0];
  const DataType dtype = graph.value(normal).type().dtype;
  if (!is_float(dtype) || dtype == DataType::kF64) return false;  // it takes no epilogue
  const Shape before = shape_of(graph, normal);
  const std::string name = graph.layer(first).name, moved_name = graph.layer(id).name;
  const auto refuse = [&](std::string_view why) {
    run.refused(name, fmt::format("not joined with \"{}\": {}", moved_name, why));
    return false;
  };
  const auto refined = refine(graph, before, graph.layer(id));
  if (!refined) return refuse("a Reshape between them cuts other axes");
  if (!operands_fit(graph, id, refined->behind) ||
      !std::ranges::all_of(match->chain,
                           [&](LayerId each) { return operands_fit(graph, each, before); }))
    return refuse("an operand has a shape that the Reshape between them cannot have");

  Mover mover(graph, id, *refined);
  if (mover.axes(std::get<Normalize>(graph.layer(first).op)).empty()) return false;
  ValueId replaced = x, moved = mover.whole(x);
  std::vector<LayerId> added;
  for (const LayerId each : match->chain) {
    if (moved == ValueId::kNone) break;
    added.push_back(mover.layer(each, replaced, moved, true));
    replaced = graph.layer(each).outputs[0];
    moved = added.back() == LayerId::kNone ? ValueId::kNone : graph.layer(added.back()).outputs[0];
  }
  replaced = graph.layer(match->reshape).outputs[0];
  const LayerId last =
      moved == ValueId::kNone ? LayerId::kNone : mover.layer(id, replaced, moved, false);
  if (last == LayerId::kNone || !put_behind(graph, id, last)) {
    graph.erase_unused();
    return refuse("sizes that are known only at run time");
  }
  for (size_t i = 0; i < added.size(); ++i) graph.swap_names(match->chain[i], added[i]);
  graph.swap_names(id, last);
  graph.erase_unused();  // or the next rule would take the dead layer for a reader
  run.did(name, fmt::format("\"{}\" moved before the Reshape and joined to it", moved_name));
  return true;
}

}  // namespace

bool push_reshape(Graph& graph, PassRun& run) { return sweep(graph, run, push_reshape_at); }

}  // namespace anneal
