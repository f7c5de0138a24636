// What the importers of control flow share.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "anneal/importer/node/node.h"

namespace anneal_onnx {
class GraphProto;
class NodeProto;
}  // namespace anneal_onnx

namespace anneal {

// The body of that name. Fails with kInvalidModel if there is none.
const anneal_onnx::GraphProto& graph_attribute(const anneal_onnx::NodeProto& proto, Node& node,
                                               std::string_view name);
std::vector<std::string> names_of_outputs(const anneal_onnx::GraphProto& graph);
// The values that a layer of control flow has for each of its outputs.
std::vector<std::string> names_of_outputs(const Node& node, size_t count);

}  // namespace anneal
