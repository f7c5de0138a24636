// If, Loop and Scan: bodies become graphs beside the graph, and the values that they use from
// outside become their inputs.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/importer/graph/node_importer.h"
#include "anneal/importer/graph/scope.h"

namespace anneal {

// Each gives the values of the node's outputs; none if something in a body is not supported, which
// has been reported.
std::optional<Outputs> import_control_flow(const anneal_onnx::NodeProto& proto, Node& node,
                                           Scope& scope, NodeImporter& nodes);
std::optional<Outputs> import_if(const anneal_onnx::NodeProto& proto, Node& node, Scope& scope,
                                 NodeImporter& nodes);
std::optional<Outputs> import_loop(const anneal_onnx::NodeProto& proto, Node& node, Scope& scope,
                                   NodeImporter& nodes);
// Whether a Loop carries a sequence, or its body reads one from outside.
bool is_loop_of_sequences(const anneal_onnx::NodeProto& proto, const Scope& scope);
// Imports such a Loop; none if something in its body is not supported, which has been reported.
std::optional<std::vector<ScopedValue>> import_sequence_loop(const anneal_onnx::NodeProto& proto,
                                                             Node& node, Scope& scope,
                                                             NodeImporter& nodes);
inline constexpr int64_t kMostUnrolled = 4096;  // iterations
// A Loop whose iterations are counted while importing: the graph has its body once for each. Fails
// with kUnsupported if the number of iterations is not known, or above kMostUnrolled.
std::optional<std::vector<ScopedValue>> import_unrolled_loop(const anneal_onnx::NodeProto& proto,
                                                             Node& node, Scope& scope,
                                                             NodeImporter& nodes);
std::optional<Outputs> import_scan(const anneal_onnx::NodeProto& proto, Node& node, Scope& scope,
                                   NodeImporter& nodes);
// Scan of opset 8.
std::optional<Outputs> import_batched_scan(const anneal_onnx::GraphProto& body, Node& node,
                                           Scope& scope, NodeImporter& nodes);

// The body of that name. Fails with kInvalidModel if there is none.
const anneal_onnx::GraphProto& graph_attribute(const anneal_onnx::NodeProto& proto, Node& node,
                                               std::string_view name);
std::vector<std::string> names_of_outputs(const anneal_onnx::GraphProto& graph);
// The values that a layer of control flow has for each of its outputs.
std::vector<std::string> names_of_outputs(const Node& node, size_t count);

}  // namespace anneal
