// GraphImporter: builds the graph of a model.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "anneal/graph/graph.h"
#include "anneal/importer/graph/import_context.h"
#include "anneal/importer/graph/import_options.h"
#include "anneal/importer/graph/scope.h"
#include "anneal/importer/node/node.h"

namespace anneal_onnx {
class GraphProto;
class ModelProto;
class TensorProto;
class ValueInfoProto;
}  // namespace anneal_onnx

namespace anneal {

class GraphInputs;

// For one model, once. Constants of the graph share the model's memory.
class GraphImporter {
 public:
  GraphImporter(std::shared_ptr<const anneal_onnx::ModelProto> model, std::string folder,
                const ImportOptions& options, RankChoices& choices);
  // Fails with kInvalidModel, and with kUnsupported for everything in the model that is not
  // supported.
  Graph import();
  // After import(): whether values have the ranks that the model says.
  bool fits_declared_ranks() const { return fits_declared_ranks_; }
  // After import(): initializers that are inputs, too, and became constants.
  const std::vector<std::string>& constant_inputs() const { return constant_inputs_; }
  const std::optional<OpenBatch>& batch() const { return main_model_.batch; }  // that is opened

 private:
  std::set<std::string> default_inputs(const anneal_onnx::GraphProto& graph);
  Tensor default_value(const anneal_onnx::TensorProto& initializer) const;
  ValueId import_input(const anneal_onnx::ValueInfoProto& input, GraphInputs& inputs);
  void refuse_too_many_nodes(const anneal_onnx::GraphProto& graph) const;
  void import_inputs(const anneal_onnx::GraphProto& graph);
  void check_declared_types(const anneal_onnx::GraphProto& graph);
  bool has_declared_ranks(const anneal_onnx::GraphProto& graph) const;

  std::shared_ptr<const anneal_onnx::ModelProto> file_;
  const anneal_onnx::ModelProto& model_;
  const ImportOptions& options_;
  Graph graph_;
  Node::Model main_model_;
  Scope main_;
  ImportContext context_;
  bool fits_declared_ranks_ = true;
  std::vector<std::string> constant_inputs_;
  std::map<std::string, const anneal_onnx::TensorProto*> default_values_;  // of inputs
};

}  // namespace anneal
