// remove_identity: a layer whose output equals its first input, element for element, is removed.
//
//   y = Pointwise(x) program=$0;  Reshape to the same shape;  Transpose that keeps the order;
//   Expand
//   and Tile to the same shape;  Concat of one;  Slice of everything;  Pad by nothing;  Pool of
//   windows of one element;  Resize to the nearest of the same positions;  Reduce along axes of one
//   element, or along none   =>   x
//   y = Reduce(x) keepdims=false along axes of one element   =>   y = Reshape(x)
//
// Not where the layer has an epilogue, or connects a graph input or constant with a graph output: a
// layer must write the output. A linear Resize stays: its kernels weigh neighbours by 0, which an
// infinity survives. The sum of one element is that element, -0 included.
#include <algorithm>

#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

bool takes_single_elements(const Pool& op) {
  return op.kind != PoolKind::kLp && !op.with_indices && all_are(op.kernel, 1) &&
         all_are(op.strides, 1) && all_are(op.pads_begin, 0) && all_are(op.pads_end, 0);
}

// To a shape that is the input's.
bool keeps_positions(const Graph& graph, const Resize& op, const Layer& layer) {
  const auto has = [&](size_t input) {
    return layer.inputs.size() > input && layer.inputs[input] != ValueId::kNone;
  };
  if (op.mode != ResizeMode::kNearest || op.policy != ResizePolicy::kStretch) return false;
  if (op.coordinates == ResizeCoordinates::kTfCropAndResize ||
      op.coordinates == ResizeCoordinates::kTfHalfPixelForNn)
    return false;
  // Scales decide the coordinates where they are given; a size may be the same all the same.
  if (has(3)) {
    const Tensor* scales = graph.constant(layer.inputs[3]);
    return scales && std::ranges::all_of(scales->as<float>(), [](float s) { return s == 1; });
  }
  return has(1) || std::ranges::all_of(op.scales, [](float scale) { return scale == 1; });
}

bool reduces_single_elements(const Graph& graph, const Layer& layer) {
  const auto& axes = graph.value(layer.inputs[1]).fact.elements;
  const Shape& shape = graph.value(layer.inputs[0]).type().shape;
  return std::get<Reduce>(layer.op).map.empty() && axes &&
         std::ranges::all_of(*axes, [&](Size axis) {
           if (!axis.known()) return false;
           const int64_t at = axis.value() < 0 ? axis.value() + shape.rank() : axis.value();
           return shape[static_cast<int>(at)] == Size(1);
         });
}

// Whether a layer keeps the order of elements; its output has its first input's type.
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
  if (std::holds_alternative<Pad>(layer.op)) {
    const auto& pads = graph.value(layer.inputs[1]).fact.elements;
    return pads && std::ranges::all_of(*pads, [](Size pad) { return pad == Size(0); });
  }
  if (const auto* op = std::get_if<Pool>(&layer.op)) return takes_single_elements(*op);
  if (const auto* op = std::get_if<Resize>(&layer.op)) return keeps_positions(graph, *op, layer);
  if (std::holds_alternative<Reduce>(layer.op)) return reduces_single_elements(graph, layer);
  return std::holds_alternative<Reshape>(layer.op) || std::holds_alternative<Expand>(layer.op) ||
         std::holds_alternative<Tile>(layer.op);
}

bool remove(Graph& graph, LayerId id, PassRun& run) {
  const Layer& layer = graph.layer(id);
  if (layer.outputs.size() != 1 || layer.inputs.empty() || !layer.epilogues.empty()) return false;
  const ValueId input = layer.inputs[0], output = layer.outputs[0];
  if (input == ValueId::kNone) return false;
  if (graph.value(input).type() != graph.value(output).type()) {
    if (!op_as<Reduce>(graph, id) || !reduces_single_elements(graph, layer)) return false;
    const std::string name = layer.name;
    Rewrite rewrite(graph, id);
    if (!rewrite.finish(rewrite.reshape(input, graph.value(output).type().shape))) return false;
    run.did(name, "only drops axes");
    return true;
  }
  if (!keeps_order(graph, layer)) return false;
  if (graph.is_output(output) && producer(graph, input) == LayerId::kNone) return false;
  run.did(layer.name, "changes nothing", saving_of(graph, output));
  graph.replace_uses(output, input);
  return true;
}

}  // namespace

bool remove_identity(Graph& graph, PassRun& run) { return sweep(graph, run, remove); }

}  // namespace anneal
