// Node: an ONNX node while it is imported, and the layers it becomes.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "anneal/graph/graph.h"
#include "anneal/importer/node/type_set.h"

namespace anneal_onnx {
class AttributeProto;
}  // namespace anneal_onnx

namespace anneal {

// Values of the node's outputs, in order. Those that a row does not compute may be left out at the
// end: the model is refused only if it uses them.
using Outputs = std::vector<ValueId>;

// Remembers what was read: after the row's function returns, an attribute that nobody read is an
// error, so that a new attribute in a new opset cannot be ignored in silence. Everything throws
// kInvalidModel where the model breaks the rules of ONNX, kUnsupported where we do not go along.
class Node {
 public:
  struct Attribute {
    std::string_view name;
    const anneal_onnx::AttributeProto* data = nullptr;
    bool read = false;
  };
  // What all nodes of a model share.
  struct Model {
    Graph& graph;
    std::string folder;                              // of external data
    std::unordered_set<std::string> reserved_names;  // of ONNX values: no other value takes them
    // Numbers that ONNX has as [1] where the If of that name says so: nothing may tell the two
    // apart.
    std::unordered_map<ValueId, std::string> open_ranks = {};
  };

  Node(Model& model, std::string name, int opset, std::vector<Attribute> attributes,
       std::vector<ValueId> inputs, std::vector<std::string> output_names);

  const std::string& name() const { return name_; }  // never empty
  int opset() const { return opset_; }
  Graph& graph() const { return model_.graph; }
  SizeTable& sizes() const { return model_.graph.sizes(); }

  // Inputs. An absent optional input is ValueId::kNone.
  int input_count() const { return static_cast<int>(inputs_.size()); }
  bool has_input(int index) const;
  ValueId input(int index) const;  // throws if absent
  ValueId optional_input(int index) const;
  void expect_inputs(int min, int max) const;
  const Shape& shape(int index) const;
  int rank(int index) const { return shape(index).rank(); }
  DataType dtype(int index) const;
  DataType dtype(int index, TypeSet allowed) const;                  // throws if it is none of them
  void expect_same_dtype(std::initializer_list<int> indices) const;  // absent ones are skipped
  const Tensor* constant(int index) const;                           // null if absent or computed
  // The contents of an integer input, as far as they are known while importing.
  std::optional<std::vector<Size>> contents(int index) const;
  // As expressions of the sizes of the graph's inputs: what they come from need not run. Empty if
  // one is unknown, or a size that only the run of a layer tells.
  std::optional<std::vector<Size>> known_sizes(int index) const;
  std::optional<std::vector<int64_t>> known_integers(int index) const;
  // Throw kUnsupported with `what` ("axes") if the contents are known only at run time.
  std::vector<int64_t> integers_of_input(int index, std::string_view what) const;
  std::vector<double> numbers_of_input(int index, std::string_view what) const;

  // Attributes, by kind. Without `otherwise` the attribute is required.
  bool has_attribute(std::string_view name) const;
  void ignore(std::string_view name);  // it has no meaning here, or none for inference
  int64_t integer(std::string_view name);
  int64_t integer(std::string_view name, int64_t otherwise);
  bool flag(std::string_view name, bool otherwise);
  float number(std::string_view name, float otherwise);
  std::string text(std::string_view name, std::string_view otherwise);
  // The index of the attribute's text in allowed, whose first is the default.
  int choice(std::string_view name, std::initializer_list<std::string_view> allowed);
  std::optional<int64_t> find_integer(std::string_view name);
  std::optional<std::vector<int64_t>> find_integers(std::string_view name);
  std::optional<std::vector<float>> find_numbers(std::string_view name);
  std::optional<std::vector<std::string>> find_texts(std::string_view name);
  std::optional<Tensor> find_tensor(std::string_view name);
  void expect_all_read() const;
  // 0 <= result < rank, for rank axes.
  int64_t resolve_axis(int64_t axis, int rank) const;
  std::vector<int64_t> resolve_axes(std::vector<int64_t> axes, int rank) const;  // ascending

  int output_count() const { return static_cast<int>(output_names_.size()); }
  bool has_output(int index) const;  // named, so somebody may use it
  std::string output_name(int index) const;

  // A layer in between, named after the node and suffix; without suffix it has the node's name.
  ValueId layer(Op op, std::vector<ValueId> inputs, std::string_view suffix);
  std::vector<ValueId> layers(Op op, std::vector<ValueId> inputs, std::string_view suffix);
  // The layer that computes the node's output of that index: its value gets that name.
  Outputs result(Op op, std::vector<ValueId> inputs, std::string_view suffix = {}, int output = 0);
  // The same with an epilogue, whose further inputs follow the op's.
  Outputs result_with_epilogue(Op op, std::vector<ValueId> inputs, Program epilogue,
                               const std::vector<ValueId>& further_inputs);
  Outputs results(Op op, std::vector<ValueId> inputs);  // one layer for all outputs
  ValueId result_constant(Tensor tensor);               // as output 0
  ValueId constant_value(Tensor tensor, std::string_view suffix);
  ValueId integers_value(const std::vector<int64_t>& values, std::string_view suffix);
  ValueId sizes_value(const std::vector<Size>& values, std::string_view suffix);

  [[noreturn]] void invalid(const std::string& why) const;
  [[noreturn]] void unsupported(const std::string& why) const;

 private:
  const anneal_onnx::AttributeProto* find(std::string_view name, int type);
  std::string layer_name(std::string_view suffix) const;
  std::string free_value_name(std::string name) const;

  Model& model_;
  std::string name_;
  int opset_;
  std::vector<Attribute> attributes_;
  std::vector<ValueId> inputs_;
  std::vector<std::string> output_names_;
};

}  // namespace anneal
