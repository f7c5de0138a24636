// The order in which nodes can be imported.
#pragma once
#include <google/protobuf/repeated_ptr_field.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace anneal_onnx {
class GraphProto;
class NodeProto;
}  // namespace anneal_onnx

namespace anneal {

using NodeList = google::protobuf::RepeatedPtrField<anneal_onnx::NodeProto>;

// Indices so that every node comes after those it, or a body of it, reads from; among the ready the
// first in the file. ONNX asks for such an order, but not every exporter keeps it. Fails with
// kInvalidModel on a cycle and on a value that two nodes produce. Values that no node produces are
// the caller's business. Only nodes that `wanted` values need, directly or through others.
std::vector<int> node_order(const NodeList& nodes, std::span<const std::string> wanted);

using VisitName = std::function<void(const std::string& name)>;

// Visits every value that the nodes or outputs of a body read from outside, some more than once.
void for_values_from_outside(const anneal_onnx::GraphProto& body, const VisitName& visit);

// "conv1", or "Conv_17" for the 17th node if it has no name.
std::string node_name(const anneal_onnx::NodeProto& node, int index);

}  // namespace anneal
