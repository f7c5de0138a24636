// NodeImporter: imports the nodes of the main graph, of a function or of a body into a graph.
#pragma once
#include <set>
#include <span>
#include <string>
#include <vector>

#include "anneal/importer/graph/import_context.h"
#include "anneal/importer/graph/node_order.h"
#include "anneal/importer/graph/scope.h"
#include "anneal/importer/node/node.h"

namespace anneal_onnx {
class FunctionProto;
class GraphProto;
class NodeProto;
}  // namespace anneal_onnx

namespace anneal {

// An operator that is not supported is reported in the context, and its results are lost. Fails
// with kInvalidModel, and with kUnsupported where the import becomes too large.
class NodeImporter {
 public:
  explicit NodeImporter(ImportContext& context) : context_(context) {}

  ImportContext& context() { return context_; }
  // left_out: names of initializers that are inputs instead.
  void import_initializers(const anneal_onnx::GraphProto& graph, Scope& scope,
                           const std::set<std::string>& left_out = {});
  // The nodes that the wanted values need.
  void import_nodes(const NodeList& nodes, std::span<const std::string> wanted, Scope& scope);
  // As outputs of the scope's graph. False if an output comes from a node that is not supported.
  bool import_outputs(const anneal_onnx::GraphProto& graph, Scope& scope);

 private:
  void import_node(const anneal_onnx::NodeProto& proto, const std::string& name, Scope& scope);
  void call_function(const anneal_onnx::FunctionProto& function, const anneal_onnx::NodeProto& call,
                     const std::string& name, Scope& scope);
  // False if an input comes from a node that is not supported, or is a sequence.
  bool find_inputs(const anneal_onnx::NodeProto& proto, Scope& scope, std::vector<ValueId>* inputs);
  // The inputs that may be sequences.
  enum class SequenceInputs : uint8_t { kNone, kFirst, kCarried };
  bool report_sequences(const anneal_onnx::NodeProto& proto, const std::string& name,
                        SequenceInputs taken, Scope& scope);
  SequenceInputs sequence_inputs(const anneal_onnx::NodeProto& proto, Scope& scope);
  // The values of the node's outputs; none if something in a body is not supported, which has been
  // reported.
  std::vector<ScopedValue> import_operator(const anneal_onnx::NodeProto& proto, const OpRow* row,
                                           Node& node, Scope& scope);
  // Fails if an attribute was not read.
  static std::vector<ScopedValue> imported(const Outputs& outputs,
                                           const anneal_onnx::NodeProto& proto, const Node& node,
                                           const Scope& scope);

  ImportContext& context_;
};

}  // namespace anneal
