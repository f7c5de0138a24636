// A graph as one list of operations: each instruction of a program, and each result of an op.
// Analyses of numbers so need not ask how passes cut an expression into layers.
#pragma once
#include <span>
#include <unordered_map>
#include <vector>

#include "anneal/graph/graph.h"

namespace anneal {

struct FlowNode {
  enum class Kind : uint8_t {
    kGiven,        // an input of the graph, or a constant
    kInstruction,  // of a program
    kOp            // a result of an op, before its epilogues
  };
  Kind kind = Kind::kGiven;
  LayerId layer = LayerId::kNone;
  int output = 0;                  // of an op, which of its results
  Instruction one{};               // its operands count in `operands`
  ValueId value = ValueId::kNone;  // that it is stored as, the first of several; or the result
  DataType dtype = DataType::kF32;
  // By number, in the order of the op's inputs; where a program reads the inputs, its result is
  // operand 0 and the others are -1, as absent inputs are.
  std::vector<int> operands{};
  std::vector<int> users{};  // each once per use
  bool is_f32() const { return dtype == DataType::kF32; }
};

class ValueFlow {
 public:
  explicit ValueFlow(const Graph& graph);
  const Graph& graph() const { return graph_; }
  std::span<const FlowNode> nodes() const { return nodes_; }  // operands come first
  const FlowNode& operator[](int node) const { return nodes_[static_cast<size_t>(node)]; }
  int of(ValueId value) const;                      // -1: no such value
  std::span<const int> of_op(LayerId layer) const;  // results before epilogues; none of Pointwise
  // Whether it is computed from a root or a reduction, a few instructions back: a norm, a standard
  // deviation, a mean of magnitudes.
  bool is_norm(int node) const;

 private:
  int add(FlowNode node);
  int input(ValueId value);
  std::vector<int> add_program(LayerId layer, const Program& program, std::span<const int> given);
  void add_layer(LayerId id);
  void store(int node, ValueId value);

  const Graph& graph_;
  std::vector<FlowNode> nodes_;
  std::unordered_map<ValueId, int> of_values_;
  std::unordered_map<LayerId, std::vector<int>> of_ops_;
};

}  // namespace anneal
