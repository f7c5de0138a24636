// Scan, since opset 9.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "anneal/importer/graph/control_flow.h"
#include "anneal/importer/graph/loop_body.h"
#include "anneal/importer/onnx/onnx.pb.h"
#include "anneal/importer/ops/expression.h"

namespace anneal {
namespace {

using anneal_onnx::GraphProto;
using anneal_onnx::NodeProto;

// The axes that a list of ONNX's gives to `count` tensors; 0 for all if there is no list.
std::vector<int64_t> per_tensor(Node& node, std::string_view name, size_t count) {
  auto values = node.find_integers(name).value_or(std::vector<int64_t>(count, 0));
  if (values.size() != count)
    node.invalid(
        fmt::format("attribute \"{}\" has {} values for {} tensors", name, values.size(), count));
  return values;
}

Shape without_axis(const Shape& shape, int64_t axis) {
  Shape rest;
  for (int i = 0; i < shape.rank(); ++i)
    if (i != axis) rest.push_back(shape[i]);
  return rest;
}

}  // namespace

std::optional<Outputs> import_scan(const NodeProto& proto, Node& node, Scope& scope,
                                   NodeImporter& nodes) {
  const GraphProto& body_proto = graph_attribute(proto, node, "body");
  if (node.opset() < 9) return import_batched_scan(body_proto, node, scope, nodes);
  const int64_t scanned = node.integer("num_scan_inputs");
  if (scanned < 1 || scanned > node.input_count())
    node.invalid(fmt::format("{} of {} inputs are scanned", scanned, node.input_count()));
  const auto sequences = static_cast<size_t>(scanned);
  const size_t carried = static_cast<size_t>(node.input_count()) - sequences;
  const auto elements = static_cast<size_t>(body_proto.output_size()) - carried;
  if (static_cast<size_t>(body_proto.output_size()) < carried)
    node.invalid("the body has too few outputs");
  std::vector<ValueId> layer_inputs;
  for (int i = 0; i < node.input_count(); ++i) layer_inputs.push_back(node.input(i));
  Scan scan{.carried = static_cast<int64_t>(carried),
            .axes = per_tensor(node, "scan_input_axes", sequences),
            .reverse = per_tensor(node, "scan_input_directions", sequences),
            .output_axes = per_tensor(node, "scan_output_axes", elements),
            .output_reverse = per_tensor(node, "scan_output_directions", elements)};

  std::vector<Type> inputs;
  for (size_t i = 0; i < carried + sequences; ++i) {
    inputs.push_back(node.graph().value(layer_inputs[i]).type());
    if (i < carried) continue;
    int64_t& axis = scan.axes[i - carried];
    axis = node.resolve_axis(axis, inputs.back().shape.rank());
    inputs.back().shape = without_axis(inputs.back().shape, axis);
  }
  const LoopBody iterated = import_loop_body(body_proto, node, {inputs, 0, carried}, scope, nodes);
  if (!iterated.changes_rank.empty()) node.unsupported(iterated.changes_rank);
  Body* const body = iterated.body.get();
  if (!body) return std::nullopt;
  for (size_t k = 0; k < elements; ++k) {
    const Type& type = body->graph.value(body->graph.outputs()[carried + k].value).type();
    scan.output_axes[k] = node.resolve_axis(scan.output_axes[k], type.shape.rank() + 1);
  }

  Graph& graph = node.graph();
  scan.body = static_cast<int64_t>(graph.bodies().size());
  layer_inputs.insert(layer_inputs.end(), body->scope.captures.begin(), body->scope.captures.end());
  const size_t count = body->graph.outputs().size();
  graph.add_body(std::move(body->graph));
  const LayerId layer = graph.add({.name = node.name(),
                                   .op = std::move(scan),
                                   .inputs = std::move(layer_inputs),
                                   .output_names = names_of_outputs(node, count)});
  return graph.layer(layer).outputs;
}

}  // namespace anneal
