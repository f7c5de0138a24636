// Scan of opset 8: states and sequences have a batch axis 0 and are scanned along axis 1. It
// becomes a Scan over the batch, whose body is a Scan over the sequences.
#include <fmt/format.h>

#include <utility>

#include "anneal/importer/graph/control_flow.h"
#include "anneal/importer/graph/loop_body.h"
#include "anneal/importer/onnx/onnx.pb.h"

namespace anneal {
namespace {

Type without_first_axis(const Graph& graph, ValueId value) {
  Type type = graph.value(value).type();
  type.shape = Shape(type.shape.span().subspan(1));
  return type;
}

}  // namespace

std::optional<Outputs> import_batched_scan(const anneal_onnx::GraphProto& body_proto, Node& node,
                                           Scope& scope, NodeImporter& nodes) {
  if (node.input_count() < 1) node.invalid("no inputs");
  if (node.has_input(0)) node.unsupported("sequences of different lengths");
  const int64_t scanned = node.integer("num_scan_inputs");
  if (scanned < 1 || scanned > node.input_count() - 1)
    node.invalid(fmt::format("{} of {} inputs are scanned", scanned, node.input_count() - 1));
  const auto sequences = static_cast<size_t>(scanned);
  const size_t count = static_cast<size_t>(node.input_count()) - 1, carried = count - sequences;
  if (static_cast<size_t>(body_proto.output_size()) < carried)
    node.invalid("the body has too few outputs");
  const auto elements = static_cast<size_t>(body_proto.output_size()) - carried;
  auto reverse = node.find_integers("directions").value_or(std::vector<int64_t>(sequences, 0));
  if (reverse.size() != sequences)
    node.invalid(fmt::format("attribute \"directions\" has {} values for {} tensors",
                             reverse.size(), sequences));

  // One element of the batch.
  const auto batch = BodyImporter(nodes).begin(node.name() + "/batch", scope);
  std::vector<ValueId> outer_inputs, inner_inputs;
  std::vector<Type> inner_types;
  for (size_t i = 0; i < count; ++i) {
    const int index = static_cast<int>(i) + 1;
    if (node.rank(index) < (i < carried ? 1 : 2)) node.invalid("an input without a batch axis");
    outer_inputs.push_back(node.input(index));
    const Type type = without_first_axis(node.graph(), outer_inputs.back());
    inner_inputs.push_back(
        batch->graph.add_input(fmt::format("{}in{}", batch->scope.prefix, i), type));
    inner_types.push_back(i < carried ? type
                                      : without_first_axis(batch->graph, inner_inputs.back()));
  }
  const LoopBody iterated =
      import_loop_body(body_proto, node, {inner_types, 0, carried}, batch->scope, nodes);
  if (!iterated.changes_rank.empty()) node.unsupported(iterated.changes_rank);
  Body* const body = iterated.body.get();
  if (!body) return std::nullopt;
  inner_inputs.insert(inner_inputs.end(), body->scope.captures.begin(), body->scope.captures.end());
  batch->graph.add_body(std::move(body->graph));
  const LayerId inner =
      batch->graph.add({.name = node.name() + "/sequence",
                        .op = Scan{.carried = static_cast<int64_t>(carried),
                                   .axes = std::vector<int64_t>(sequences, 0),
                                   .reverse = std::move(reverse),
                                   .output_axes = std::vector<int64_t>(elements, 0),
                                   .output_reverse = std::vector<int64_t>(elements, 0)},
                        .inputs = std::move(inner_inputs)});
  const std::vector<ValueId> results = batch->graph.layer(inner).outputs;
  for (size_t k = 0; k < results.size(); ++k)
    batch->graph.mark_output(results[k], fmt::format("{}out{}", batch->scope.prefix, k));

  outer_inputs.insert(outer_inputs.end(), batch->scope.captures.begin(),
                      batch->scope.captures.end());
  Graph& graph = node.graph();
  Scan over_batch{.body = static_cast<int64_t>(graph.bodies().size()),
                  .axes = std::vector<int64_t>(count, 0),
                  .reverse = std::vector<int64_t>(count, 0),
                  .output_axes = std::vector<int64_t>(results.size(), 0),
                  .output_reverse = std::vector<int64_t>(results.size(), 0)};
  graph.add_body(std::move(batch->graph));
  std::vector<std::string> names = names_of_outputs(node, results.size());
  const LayerId outer = graph.add({.name = node.name(),
                                   .op = std::move(over_batch),
                                   .inputs = std::move(outer_inputs),
                                   .output_names = std::move(names)});
  return graph.layer(outer).outputs;
}

}  // namespace anneal
