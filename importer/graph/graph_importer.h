// GraphImporter: walks the nodes of a model, functions included, and builds the graph.
#pragma once
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "anneal/graph/graph.h"
#include "anneal/importer/graph/import_options.h"
#include "anneal/importer/graph/node_order.h"
#include "anneal/importer/node/node.h"
#include "anneal/importer/node/unsupported.h"

namespace anneal_onnx {
class FunctionProto;
class GraphProto;
class ModelProto;
}  // namespace anneal_onnx

namespace anneal {

struct OpRow;

// An If whose branches have results of different rank, so that they cannot both be in one graph as
// they are: either they are made alike, or one is taken and the engine refuses inputs that want the
// other. Which one is right shows only in what follows, so a failed import is tried again with the
// next choices. Nodes are known by their names.
class BranchChoices {
 public:
  enum class Choice : uint8_t { kAlign, kThen, kElse };

  std::optional<Choice> find(const std::string& name) const;
  // For a node that was not met before: first its results are made alike, if they can be, then the
  // first branch is tried, then the other one.
  Choice add(const std::string& name, bool can_align, bool then_first);
  // Something tells apart what was made alike: the next import takes a branch.
  void refuse_alignment(const std::string& name);
  bool has_refused() const { return has_refused_; }
  // The next choices to try; false if there are none, or too much has been tried.
  bool next();
  bool is_retry() const { return is_retry_; }
  // Fails with kUnsupported if there are too many, in all tries together.
  void count_again(int nodes);

 private:
  struct RankChoice {
    std::string name;
    bool then_first;
    Choice now;
    Choice branch(bool first) const { return first == then_first ? Choice::kThen : Choice::kElse; }
  };

  std::vector<RankChoice> choices_;  // in order of need
  bool is_retry_ = false, has_refused_ = false;
  int tries_ = 0;
  int nodes_again_ = 0;  // imported more than once
};

// For one model, once. Does not change the model, which must outlive it.
class GraphImporter {
 public:
  GraphImporter(const anneal_onnx::ModelProto& model, std::string folder,
                const ImportOptions& options, BranchChoices& choices);
  Graph import();

 private:
  enum class State : uint8_t {
    kImported,  // value is kNone for an argument that a function call leaves out
    kLost,      // what should produce it is not supported, which has been reported
    kSequence,  // of tensors, which are all known
    kLeftOut,   // an output that a supported node does not compute: reported when used
  };
  struct NamedValue {
    State state = State::kLost;
    ValueId value = ValueId::kNone;
    std::string what = {}, node = {}, reason = {};  // of kLeftOut, for the report
    std::vector<ValueId> sequence = {};             // of kSequence
  };
  using Opsets = std::map<std::string, int, std::less<>>;
  // Where names are looked up: the graph's, a function call's, or a body's.
  struct Scope {
    std::string prefix = {};  // of names of nodes and values
    Opsets opsets = {};
    Node::Model* model = nullptr;  // the graph that is built
    Scope* outer = nullptr;        // of a body: where names from outside are looked up
    // Of a body with a graph of its own: its inputs that stand for values of the outer graph, and
    // those values in order.
    std::unordered_map<ValueId, ValueId> captured = {};
    std::vector<ValueId> captures = {};
    std::unordered_map<std::string, NamedValue> values = {};
    std::unordered_map<std::string, std::string> outer_names = {};  // of a function's outputs
    std::vector<Node::Attribute> attributes = {};                   // of the call
    int depth = 0;
  };
  using FunctionKey = std::tuple<std::string, std::string, std::string>;
  // A body while it is imported.
  struct Body {
    Body(Graph empty, std::string folder)
        : graph(std::move(empty)), model{graph, std::move(folder), {}} {}
    Graph graph;
    Node::Model model;
    Scope scope;
  };

  void import_inputs(const anneal_onnx::GraphProto& graph);
  void import_initializers(const anneal_onnx::GraphProto& graph, Scope& scope);
  // False if an output comes from a node that is not supported.
  bool import_outputs(const anneal_onnx::GraphProto& graph, Scope& scope);
  // Those that the wanted values need.
  void import_nodes(const NodeList& nodes, std::span<const std::string> wanted, Scope& scope);
  void import_node(const anneal_onnx::NodeProto& proto, const std::string& name, Scope& scope);
  void call_function(const anneal_onnx::FunctionProto& function, const anneal_onnx::NodeProto& call,
                     const std::string& name, Scope& scope);
  std::vector<Node::Attribute> attributes_of(const anneal_onnx::NodeProto& proto,
                                             Scope& scope) const;
  const NamedValue& use(const std::string& name, Scope& scope);
  ValueId capture(ValueId outer, Scope& scope);
  static bool known_outside(const std::vector<Size>& elements, const Scope& scope);
  // False if an input comes from a node that is not supported, or is a sequence.
  bool find_inputs(const anneal_onnx::NodeProto& proto, Scope& scope, std::vector<ValueId>* inputs);
  void define(const std::string& name, NamedValue known, Scope& scope);
  bool report_sequences(const anneal_onnx::NodeProto& proto, const std::string& name,
                        bool takes_one, Scope& scope);
  // Reports what the node's bodies need and Anneal does not have.
  void report_bodies(const anneal_onnx::NodeProto& proto, const std::string& name,
                     const Scope& scope);
  int opset_of(const anneal_onnx::NodeProto& proto, const Scope& scope) const;
  // null if there is none, which is reported, and so is what has none in the node's own graphs.
  const OpRow* row_of(const anneal_onnx::NodeProto& proto, const std::string& name,
                      const Scope& scope);
  void define_unsupported(const anneal_onnx::NodeProto& proto, Scope& scope);
  void check_declared_types(const anneal_onnx::GraphProto& graph);

  // sequences.cc. Whether the node makes or takes a sequence, and what its output is.
  static bool is_sequence_operator(const anneal_onnx::NodeProto& proto);
  bool is_of_sequences(const anneal_onnx::NodeProto& proto, Scope& scope);
  NamedValue import_sequence(const anneal_onnx::NodeProto& proto, Node& node, Scope& scope);

  // control_flow.cc, and branches.cc for If. Each gives the values of the node's outputs; none if
  // something in a body is not supported, which has been reported.
  std::optional<Outputs> import_control_flow(const anneal_onnx::NodeProto& proto, Node& node,
                                             Scope& scope);
  std::optional<Outputs> import_if(const anneal_onnx::NodeProto& proto, Node& node, Scope& scope);
  std::optional<Outputs> import_loop(const anneal_onnx::NodeProto& proto, Node& node, Scope& scope);
  std::optional<Outputs> import_scan(const anneal_onnx::NodeProto& proto, Node& node, Scope& scope);
  std::optional<Outputs> import_batched_scan(const anneal_onnx::GraphProto& body, Node& node,
                                             Scope& scope);  // batched_scan.cc
  std::optional<Outputs> import_branch(const anneal_onnx::GraphProto& branch,
                                       const anneal_onnx::NodeProto& proto, const std::string& name,
                                       Scope& scope);
  std::optional<Outputs> assume_branch(bool condition, const anneal_onnx::GraphProto& branch,
                                       const anneal_onnx::NodeProto& proto, Node& node,
                                       Scope& scope);
  // The If that leaves the rank of an input open, if the node's results are numbers because of
  // that;
  // "" if there is none; nullopt if the rank makes a difference, which has been reported.
  std::optional<std::string> find_open_rank(const anneal_onnx::NodeProto& proto, const OpRow* row,
                                            const std::string& name,
                                            const std::vector<ValueId>& inputs, Scope& scope);
  // Whether an If leaves the rank of the value open, which has been reported then.
  bool refuse_open_rank(ValueId value, const std::string& what, const std::string& name,
                        const std::string& where, Scope& scope);
  std::unique_ptr<Body> begin_body(const std::string& name, Scope& scope);
  void add_body_input(const anneal_onnx::GraphProto& proto, int index, const Type& type,
                      Body& body);
  bool import_body(const anneal_onnx::GraphProto& proto, Body& body);
  // The same; a branch that the types rule out gives an error.
  bool import_if_valid(const anneal_onnx::GraphProto& proto, Body& body, std::exception_ptr& error);
  // A body that is run many times; none if something in it is not supported, which has been
  // reported, or if the loop changes the rank of a carried value.
  struct LoopBody {
    std::unique_ptr<Body> body;
    std::string changes_rank;  // which value
  };
  LoopBody import_iterated(const anneal_onnx::GraphProto& proto, const Node& node,
                           std::vector<Type> inputs, size_t first_carried, size_t carried,
                           Scope& scope, int64_t first_iteration);
  void count_iterations_from(int64_t first, const std::string& name, Body& body);
  // What a Loop begins with.
  struct LoopStart {
    ValueId trips, condition;  // kNone: absent
    std::vector<ValueId> carried;
  };
  // Gives the elements that the iteration adds to stacked results, and moves the start behind it.
  std::optional<Outputs> import_first_iteration(const anneal_onnx::GraphProto& proto, Node& node,
                                                LoopStart& start, Scope& scope);

  const anneal_onnx::ModelProto& model_;
  const ImportOptions& options_;
  BranchChoices& choices_;
  Graph graph_;
  Node::Model main_model_;
  Scope main_;
  std::map<FunctionKey, const anneal_onnx::FunctionProto*> functions_;
  UnsupportedReport unsupported_;
  int nodes_done_ = 0;
  // By name of a Loop or Scan: which axes of each carried value vary.
  std::unordered_map<std::string, std::vector<std::vector<bool>>> varying_;
};

}  // namespace anneal
