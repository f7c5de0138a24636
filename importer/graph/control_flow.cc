#include "anneal/importer/graph/control_flow.h"

#include <fmt/format.h>

#include "anneal/importer/onnx/onnx.pb.h"

namespace anneal {

using anneal_onnx::GraphProto;
using anneal_onnx::NodeProto;

std::optional<Outputs> import_control_flow(const NodeProto& proto, Node& node, Scope& scope,
                                           NodeImporter& nodes) {
  if (proto.op_type() == "If") return import_if(proto, node, scope, nodes);
  if (proto.op_type() == "Loop") return import_loop(proto, node, scope, nodes);
  return import_scan(proto, node, scope, nodes);
}

const GraphProto& graph_attribute(const NodeProto& proto, Node& node, std::string_view name) {
  node.ignore(name);
  for (const auto& attribute : proto.attribute())
    if (attribute.name() == name && attribute.has_g()) return attribute.g();
  node.invalid(fmt::format("attribute \"{}\" is missing", name));
}

std::vector<std::string> names_of_outputs(const GraphProto& graph) {
  std::vector<std::string> names;
  for (const auto& output : graph.output()) names.push_back(output.name());
  return names;
}

std::vector<std::string> names_of_outputs(const Node& node, size_t count) {
  std::vector<std::string> names;
  for (size_t k = 0; k < count; ++k) names.push_back(node.output_name(static_cast<int>(k)));
  return names;
}

}  // namespace anneal
