// Graph: the symbolic form of a model. Layers and values have stable ids and inferred types. Only
// the methods of Graph change it.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "anneal/graph/op/infer.h"
#include "anneal/graph/op/op.h"

namespace anneal {

enum class ValueId : uint32_t { kNone = ~0u };  // kNone: an absent optional input
enum class LayerId : uint32_t { kNone = ~0u };  // kNone: no producer (graph input, constant)

struct Value {
  std::string name;  // unique in the graph; ONNX's where there is one
  Fact fact;
  std::optional<Tensor> constant;
  std::optional<Tensor> default_value;  // of an input: what it is where the caller gives nothing
  LayerId producer = LayerId::kNone;
  std::vector<LayerId> users;  // one entry per use, in no order
  const Type& type() const { return fact.type; }
};

// inputs: the op's own first (op_input_count of them), then the further inputs of epilogues[0],
// epilogues[1], ... epilogues is empty, or holds one program per output of the op, where an empty
// program passes that output on. outputs: the results of each program (or the op's output) in
// order.
struct Layer {
  std::string name = {};                  // unique in the graph
  std::vector<std::string> origins = {};  // names of the ONNX nodes it stands for
  Op op = {};
  std::vector<Program> epilogues = {};
  int op_input_count = 0;
  std::vector<ValueId> inputs = {}, outputs = {};
};

// The argument of add(): a layer without ids. origins default to {name}; outputs names default to
// the layer's.
struct NewLayer {
  std::string name;
  Op op;
  std::vector<ValueId> inputs;
  std::vector<Program> epilogues = {};
  int op_input_count = -1;  // -1: all of inputs
  std::vector<std::string> origins = {};
  std::vector<std::string> output_names = {};
  std::vector<Type> output_types = {};  // what is known beyond infer(): sizes it leaves unknown
};

// Names that are taken get a suffix: "conv", "conv.2". Not thread-safe. Ids stay valid for ever; an
// erased layer holds std::monostate and is in no order.
class Graph {
 public:
  Graph();  // with a size table of its own
  Graph(Graph&&) = default;
  Graph& operator=(Graph&&) = default;
  Graph clone() const;  // deep, but for constants' bytes; the clone has a size table of its own

  std::string name;
  SizeTable& sizes() const { return *sizes_; }

  // REQUIRES: a default value of the input's element type. That its dims are the input's is for
  // each run to see.
  ValueId add_input(std::string name, Type type, std::optional<Tensor> default_value = {});
  ValueId add_constant(std::string name, Tensor tensor);
  // Infers the outputs' types; Size::unknown() becomes a fresh symbol, one for all outputs of the
  // layer that have the same shape unless bodies give them. Fails as infer_layer does, with the
  // layer's name as context.
  LayerId add(NewLayer layer);
  // Marks a value as the next graph output, under this name (which may differ from the value's).
  void mark_output(ValueId value, std::string name);
  // REQUIRES: equal dtypes.
  void replace_output(size_t index, ValueId value);
  // Every use of `from`, graph outputs included, becomes a use of `to`. REQUIRES: equal dtypes and
  // ranks. A symbol that only `from` has stands for the size of `to` after the next refine().
  void replace_uses(ValueId from, ValueId to);
  // For a value or layer that takes the place of another, and should be known by its name.
  void swap_names(ValueId a, ValueId b);
  void swap_names(LayerId a, LayerId b);
  // replace_uses() and swap_names() for each output, then for the layers. REQUIRES: as many
  // outputs.
  void replace_layer(LayerId from, LayerId to);
  // Erases layers whose outputs have no user, and constants without a reader. Inputs stay. A
  // Require stays unless its condition is known to hold, together with the layer that runs it if it
  // is in a body. A layer also stays if it computes a size that another layer writes into a tensor
  // (SizeDependencies).
  void erase_unused();
  // Infers everything again, in order; types may only become narrower (an unknown or wider size
  // becomes a known one). For new bounds, or inputs whose sizes got fixed by set_input_shape. A
  // size that the bounds leave one value becomes that value, in inputs and SizeTensor too. A symbol
  // of a size that depended on values, and now follows from other sizes, is replaced everywhere, as
  // are the symbols of `solved` and those whose bounds are one value.
  void refine(SizeReplacements solved = {});
  // Then refine(). A symbol that gets a known size has it everywhere: its bounds become that.
  void set_input_shape(ValueId input, const Shape& shape);

  struct Output {
    std::string name;
    ValueId value = ValueId::kNone;
  };
  // Some of the inputs and outputs, in any order. REQUIRES: nothing reads an input that is left
  // out.
  void keep_ports(std::vector<ValueId> inputs, std::vector<Output> outputs);
  const std::vector<ValueId>& inputs() const { return inputs_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  const Layer& layer(LayerId id) const;
  const Value& value(ValueId id) const;
  const Tensor* constant(ValueId id) const;  // null if not a constant
  bool is_output(ValueId id) const;
  ValueId find_value(std::string_view name) const;  // kNone if there is none
  size_t layer_count() const;                       // live ones
  std::vector<LayerId> layers() const;              // live ones, in the order they were added
  // The facts that infer_layer() finds now for a layer's outputs, and the layer's demands on sizes.
  Facts infer_outputs(LayerId id, SizeDemands* demands = nullptr) const;
  Signature signature() const;  // the types of inputs and outputs
  // By index: whether the symbol is a size of an input, so that every run knows it.
  std::vector<bool> symbols_of_inputs() const;
  // The fact that refine() would leave: `inferred`, or `old` where that knows more. Fails with
  // kInvalidModel if they contradict each other.
  Fact narrowed(const Fact& old, const Fact& inferred) const;
  // Topological, SizeDependencies included; among the ready the one added first, where what a
  // Require needs counts as added with it: a check comes before what was added behind it. Fails
  // with kInvalidModel on a cycle.
  std::vector<LayerId> order() const;

  // Bodies of control flow, by index; they share this graph's size table. One that no layer runs is
  // emptied by erase_unused().
  Graph make_body() const { return Graph(sizes_); }
  Graph& add_body(Graph body);  // REQUIRES: made by make_body()
  std::deque<Graph>& bodies() { return bodies_; }
  const std::deque<Graph>& bodies() const { return bodies_; }

 private:
  friend class Refinement;
  explicit Graph(std::shared_ptr<SizeTable> sizes) : sizes_(std::move(sizes)) {}
  Value& mutable_value(ValueId id);
  Layer& mutable_layer(LayerId id);
  ValueId new_value(std::string name, Fact fact);
  template <class Id>
  std::string unique(std::string name, const std::unordered_map<std::string, Id>& taken);
  Facts infer_outputs(const Layer& layer, SizeDemands* demands) const;
  bool must_run(const Layer& layer) const;  // even without users of its outputs
  // alike: outputs of one shape have the same sizes, also where these are unknown.
  void name_unknown_sizes(Facts& facts, const std::vector<std::string>& names, bool alike) const;
  Graph copy_into(const std::shared_ptr<SizeTable>& sizes) const;
  void erase(LayerId id);

  std::shared_ptr<SizeTable> sizes_;
  std::deque<Layer> layers_;  // deque: a rule may hold a reference while it adds layers
  std::deque<Value> values_;
  std::vector<ValueId> inputs_;
  std::vector<Output> outputs_;
  std::deque<Graph> bodies_;
  std::unordered_map<std::string, ValueId> value_names_;
  std::unordered_map<std::string, LayerId> layer_names_;
  std::unordered_map<std::string, int> next_suffix_;  // where to look for the next free one
  SizeReplacements replaced_sizes_;
};

// Fails with kInternal naming the layer and the rule that is broken: an order exists; users and
// producers agree; every type is what infer() says; every symbol in a type or SizeTensor is found
// by an input or a layer before it; names are unique; epilogues fit their outputs; op inputs are
// within input_arity. Run after every pass, in every build.
void verify(const Graph& graph);

}  // namespace anneal
