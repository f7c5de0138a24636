// The graph that steps add to.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "anneal/tests/random/random_model.h"
#include "anneal/tests/random/random_numbers.h"

namespace anneal::random_graphs {

using Fits = std::function<bool(const Value&)>;
using Attributes = std::function<void(anneal_onnx::NodeProto&)>;

// A graph, or the body of a node, while it is written.
struct Scope {
  anneal_onnx::GraphProto graph = {};
  std::vector<Value> values = {};  // that its nodes may read: those around it as well
};

class Maker {
 public:
  explicit Maker(const Recipe& recipe);
  RandomModel make();

  // For steps. A step that finds no operands adds nothing and returns false.
  RandomNumbers& random() { return random_; }
  int opset() const { return opset_; }
  Kind kind() const { return recipe_.kind; }
  int depth() const { return static_cast<int>(scopes_.size()) - 1; }
  const std::vector<Value>& values() const { return scopes_.back().values; }
  std::optional<Value> choose(const Fits& fits);
  // Adds a node and gives its result a name. A float beyond 32 is made smaller by another node.
  Value apply(const char* op, const std::vector<Value>& inputs, Value result,
              const Attributes& attributes = {});
  // Of several results.
  std::vector<Value> apply_all(const char* op, const std::vector<Value>& inputs,
                               std::vector<Value> results, const Attributes& attributes = {});
  // No other step reads it, and it is no output.
  void hide(const Value& value);
  Value constant(anneal_onnx::TensorProto tensor, Value value);
  // Steps that run inside of a body; they may do nothing.
  void add_steps(int count);
  void open_scope() { scopes_.push_back({{}, scopes_.back().values}); }
  anneal_onnx::GraphProto close_scope();
  Value body_input(Value value);
  void body_output(const Value& value, bool with_shape = false);
  std::string new_name(const char* prefix);
  void round_coarsely() { model_.rounds_coarsely = true; }

 private:
  void add_inputs();
  void add_input(Value value);
  Value show(Value value);
  Value smaller(const Value& value);

  const Recipe& recipe_;
  RandomNumbers random_;
  int opset_;
  int step_ = 0, names_ = 0;
  std::vector<Scope> scopes_;
  std::vector<anneal_onnx::TensorProto> constants_;
  RandomModel model_;
};

// Whether tensors of these dims are quick to compute and not empty.
bool is_small(const Extents& dims);

// Constants. Elements are multiples of 1/4 if they are exact, else any in the range.
Value float_constant(Maker& maker, const Extents& dims, double low, double high, bool exact);
Value number_constant(Maker& maker, double number);  // a scalar of f32
Value integer_constant(Maker& maker, const std::vector<int64_t>& numbers, int type = onnx::INT64);
Value scalar_constant(Maker& maker, int64_t number, int type = onnx::INT64);

// The grid of a result with elements up to `largest`, if its operands' finest grid is `grid`.
int exact_grid(int grid, double largest);
// The grid of a product of two values, before its bounds are checked.
inline int product_grid(const Value& a, const Value& b) {
  return a.exact() && b.exact() ? a.grid + b.grid : -1;
}

}  // namespace anneal::random_graphs
