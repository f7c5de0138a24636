// GraphImporter: walks the nodes of a model, functions included, and builds the graph.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "anneal/graph/graph.h"
#include "anneal/importer/importer.h"
#include "anneal/importer/node.h"
#include "anneal/importer/node_order.h"
#include "anneal/importer/unsupported.h"

namespace anneal_onnx {
class FunctionProto;
class GraphProto;
class ModelProto;
}  // namespace anneal_onnx

namespace anneal {

struct OpRow;

// For one model, once. Does not change the model, which must outlive it.
class GraphImporter {
 public:
  GraphImporter(const anneal_onnx::ModelProto& model, std::string folder,
                const ImportOptions& options);
  Graph import();

 private:
  enum class State : uint8_t {
    kImported,  // value is kNone for an argument that a function call leaves out
    kLost,      // what should produce it is not supported, which has been reported
    kLeftOut,   // an output that a supported node does not compute: reported when used
  };
  struct Known {
    State state = State::kLost;
    ValueId value = ValueId::kNone;
    std::string what = {}, node = {}, reason = {};  // of kLeftOut, for the report
  };
  using Opsets = std::map<std::string, int, std::less<>>;
  // Where names are looked up: the graph's, or a function call's.
  struct Scope {
    std::string prefix = {};  // of names of nodes and values
    Opsets opsets = {};
    std::unordered_map<std::string, Known> values = {};
    std::unordered_map<std::string, std::string> outer_names = {};  // of a function's outputs
    std::vector<Node::Attribute> attributes = {};                   // of the call
    int depth = 0;
  };
  using FunctionKey = std::tuple<std::string, std::string, std::string>;

  void import_inputs(const anneal_onnx::GraphProto& graph);
  void import_initializers(const anneal_onnx::GraphProto& graph);
  void import_outputs(const anneal_onnx::GraphProto& graph);
  void import_nodes(const NodeList& nodes, Scope& scope);
  void import_node(const anneal_onnx::NodeProto& proto, const std::string& name, Scope& scope);
  void call_function(const anneal_onnx::FunctionProto& function, const anneal_onnx::NodeProto& call,
                     const std::string& name, Scope& scope);
  std::vector<Node::Attribute> attributes_of(const anneal_onnx::NodeProto& proto,
                                             Scope& scope) const;
  const Known& use(const std::string& name, const Scope& scope);
  // False if an input comes from a node that is not supported.
  bool find_inputs(const anneal_onnx::NodeProto& proto, Scope& scope, std::vector<ValueId>* inputs);
  void define(const std::string& name, Known known, Scope& scope);
  void report_body(const anneal_onnx::GraphProto& body, const std::string& prefix,
                   const Scope& scope);
  int opset_of(const anneal_onnx::NodeProto& proto, const Scope& scope) const;
  // null if there is none, which is reported, and so is what has none in the node's own graphs.
  const OpRow* row_of(const anneal_onnx::NodeProto& proto, const std::string& name,
                      const Scope& scope);
  void define_unsupported(const anneal_onnx::NodeProto& proto, Scope& scope);
  void check_declared_types(const anneal_onnx::GraphProto& graph);

  const anneal_onnx::ModelProto& model_;
  const ImportOptions& options_;
  Graph graph_;
  Node::Model shared_;
  Scope main_;
  std::map<FunctionKey, const anneal_onnx::FunctionProto*> functions_;
  Unsupported unsupported_;
  int nodes_done_ = 0;
};

}  // namespace anneal
