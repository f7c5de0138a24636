// NodeTables: a node as the callbacks of engine/run/library/c_kernels.h see it.
#pragma once
#include <span>
#include <vector>

#include "anneal/core/size/size.h"
#include "anneal/engine/run/library/c_kernels.h"
#include "anneal/graph/op/infer.h"
#include "anneal/kernels/kernel.h"

namespace anneal {

// Negative numbers that stand for unknown sizes. A callback may pass them on, but not compute with
// them: any other negative number stands for no size.
class OpenSizes {
 public:
  int64_t number_of(Size size);
  // Fails with kInvalidArgument on a number that stands for no size.
  Size size_of(int64_t number) const;
  bool any() const { return !sizes_.empty(); }

 private:
  std::vector<Size> sizes_;
};

// Holds the tables that an anneal_node points to. The op must outlive it.
class NodeTables {
 public:
  NodeTables(const Custom& op, std::span<const Operand> inputs);  // of create(), and sizes known
  NodeTables(const Custom& op, const InferInputs& inputs, OpenSizes& open);
  NodeTables(const NodeTables&) = delete;
  NodeTables& operator=(const NodeTables&) = delete;

  // The views of prepare() and run().
  void set_views(std::span<const TensorView> inputs, std::span<const TensorView> outputs);
  void set_data(std::span<const TensorView> inputs, std::span<const TensorView> outputs);
  void set_outputs(std::span<const Operand> outputs);  // of create()
  void set_threads(int threads) { node_.threads = threads; }
  const anneal_node* node() const { return &node_; }
  std::span<const anneal_tensor> outputs() const { return outputs_; }

 private:
  explicit NodeTables(const Custom& op);
  void point();

  std::vector<anneal_attribute> attributes_;
  std::vector<std::vector<const char*>> texts_;  // by attribute
  std::vector<anneal_tensor> tensors_;           // by attribute
  std::vector<anneal_tensor> inputs_, outputs_;
  OpenSizes open_;
  anneal_node node_ = {};
};

}  // namespace anneal
