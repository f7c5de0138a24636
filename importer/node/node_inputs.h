// NodeInputs: the inputs of an ONNX node, and their values as far as the import knows them.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "anneal/graph/graph.h"
#include "anneal/importer/node/type_set.h"

namespace anneal {

// An absent optional input is ValueId::kNone. Throws kInvalidModel where an input breaks the rules
// of ONNX, kUnsupported where Anneal has no equivalent.
class NodeInputs {
 public:
  NodeInputs(Graph& graph, std::vector<ValueId> inputs);

  Graph& graph() const { return graph_; }
  SizeTable& sizes() const { return graph_.sizes(); }

  int input_count() const { return static_cast<int>(inputs_.size()); }
  bool has_input(int index) const;
  ValueId input(int index) const;  // throws if absent
  ValueId optional_input(int index) const;
  void expect_inputs(int min, int max) const;
  const Shape& shape(int index) const;
  int rank(int index) const { return shape(index).rank(); }
  DataType dtype(int index) const;
  DataType dtype(int index, TypeSet allowed) const;                  // throws if not allowed
  void expect_same_dtype(std::initializer_list<int> indices) const;  // absent ones are skipped
  const Tensor* constant(int index) const;                           // null if absent or computed
  // The contents of an integer input, if they are known while importing.
  std::optional<std::vector<Size>> contents(int index) const;
  // As expressions of the sizes of the graph's inputs: the layers that compute them need not run.
  // Empty if one is unknown, or known only after a layer has run.
  std::optional<std::vector<Size>> known_sizes(int index) const;
  std::optional<std::vector<int64_t>> known_integers(int index) const;
  // Throw kUnsupported with `what` ("axes") if the contents are known only at run time.
  std::vector<int64_t> integers_of_input(int index, std::string_view what) const;
  std::vector<double> numbers_of_input(int index, std::string_view what) const;

 private:
  Graph& graph_;
  std::vector<ValueId> inputs_;
};

}  // namespace anneal
