// Node: an ONNX node during its import, and the layers that it becomes.
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
#include "anneal/importer/node/node_attributes.h"
#include "anneal/importer/node/node_inputs.h"
#include "anneal/importer/node/open_batch.h"
#include "anneal/importer/node/rank_choices.h"

namespace anneal {

// Values of the node's outputs, in order. A row may leave out the last ones if it does not compute
// them: the model is refused only if it uses them.
using Outputs = std::vector<ValueId>;

// Its inputs and attributes are read by a row's function, which adds the layers. Every function
// throws kInvalidModel where the model breaks the rules of ONNX, kUnsupported where Anneal has no
// equivalent.
class Node : public NodeInputs, public NodeAttributes {
 public:
  // The state that all nodes of a model share.
  struct Model {
    Graph& graph;
    std::string folder;                              // of external data
    std::unordered_set<std::string> reserved_names;  // of ONNX values: no other value takes them
    // Scalars that ONNX has as [1] where the If of that name says so: no operator may distinguish
    // the two.
    std::unordered_map<ValueId, std::string> open_ranks = {};
    // ONNX's element types of values that have another one here (is_narrow()).
    std::unordered_map<ValueId, int32_t> narrow_types = {};
    RankChoices* choices = nullptr;  // never null during an import
    std::optional<OpenBatch> batch = {};
    std::shared_ptr<const void> file = {};  // whose memory large constants are
    ValueId iteration = ValueId::kNone;     // in the body of a Loop: its number, i64 without axes
    bool is_of_pytorch = false;             // its exporter wrote the model
  };

  Node(Model& model, std::string name, int opset, std::vector<Attribute> attributes,
       std::vector<ValueId> inputs, std::vector<std::string> output_names);

  const std::string& name() const { return name_; }  // never empty
  int opset() const { return opset_; }
  // ONNX's element type of an input that has another one here (is_narrow()); 0 of others.
  int32_t narrow_type(int index) const;
  void set_narrow_type(ValueId value, int32_t element_type);
  // An assumption about a rank that all nodes of the model share, by name: at_first, or the
  // opposite in another attempt of the import.
  bool assume(const std::string& name, bool at_first);

  // 0 <= result < rank, for rank axes.
  int64_t resolve_axis(int64_t axis, int rank) const;
  std::vector<int64_t> resolve_axes(std::vector<int64_t> axes, int rank) const;  // ascending

  int output_count() const { return static_cast<int>(output_names_.size()); }
  bool has_output(int index) const;  // named, so it may have a reader
  // Why the row gives no value for this output, for the report of a model that uses it.
  void leave_out(int output, std::string why) { left_out_[output] = std::move(why); }
  std::string why_left_out(int output) const;
  std::string output_name(int index) const;

  // A layer in between, named after the node and suffix; without suffix it has the node's name.
  ValueId layer(Op op, std::vector<ValueId> inputs, std::string_view suffix);
  std::vector<ValueId> layers(Op op, std::vector<ValueId> inputs, std::string_view suffix);
  // The layer that computes the node's output of that index: its value gets that name.
  Outputs result(Op op, std::vector<ValueId> inputs, std::string_view suffix = {}, int output = 0);
  // The same with an epilogue, whose further inputs follow the op's. With a suffix, a layer in
  // between.
  Outputs result_with_epilogue(Op op, std::vector<ValueId> inputs, Program epilogue,
                               const std::vector<ValueId>& further_inputs,
                               std::string_view suffix = {});
  Outputs results(Op op, std::vector<ValueId> inputs);  // one layer for all outputs
  // As output 0. narrow_type: as of inputs.
  ValueId result_constant(Tensor tensor, int32_t narrow_type = 0);
  ValueId constant_value(Tensor tensor, std::string_view suffix);
  ValueId integers_value(const std::vector<int64_t>& values, std::string_view suffix);
  ValueId sizes_value(const std::vector<Size>& values, std::string_view suffix);
  // The axis of the open batch in input x, if it has one.
  std::optional<int> batch_axis(int x) const;
  bool has_batch(int x) const { return batch_axis(x) == 0; }  // on axis 0
  const std::optional<OpenBatch>& batch() const { return model_.batch; }
  bool is_of_pytorch() const { return model_.is_of_pytorch; }  // its exporter wrote the model
  // In the body of a Loop, but not in bodies inside it: the number of the iteration; else kNone.
  ValueId iteration() const { return model_.iteration; }
  // Sizes from axis 0 on that the model has for input x: with the open batch where x has it, and
  // the sizes begin with its number. The batch is the outermost axis, so each row keeps its
  // elements under any other sizes.
  std::vector<Size> with_batch(int x, std::vector<Size> sizes) const;
  // Input x, whose one row along the axis serves the whole batch, with that row for each row of the
  // open batch. Input x itself where it has no such row. REQUIRES: batch()
  ValueId repeated_for_batch(int x, int axis);
  // The same of those in input `sizes`, as a value.
  ValueId sizes_input(int x, int sizes);

  [[noreturn]] void invalid(const std::string& why) const;
  [[noreturn]] void unsupported(const std::string& why) const;

 private:
  std::string layer_name(std::string_view suffix) const;
  std::string free_value_name(std::string name) const;

  Model& model_;
  std::string name_;
  int opset_;
  std::vector<std::string> output_names_;
  std::unordered_map<int, std::string> left_out_;
};

}  // namespace anneal
