// A random graph as an ONNX model, with what is known of its values.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/tensor.h"
#include "anneal/tests/random/extent.h"
#include "anneal/tests/random/node_writer.h"
#include "anneal/tests/random/recipe.h"

namespace anneal::random_graphs {

struct Value {
  std::string name = {};  // empty: an optional input that is left out
  int type = onnx::FLOAT;
  Extents dims = {};
  double low = 0, high = 0;  // of all elements
  // From 0 on: all elements are multiples of 2^-grid, and so few that sums and products of them are
  // the same in any order. -1: elements are rounded.
  int grid = -1;
  std::optional<Extents> contents = {};  // the elements of a small integer tensor
  int step = 0;                          // that made it
  bool is_constant = false;

  bool is_float() const { return type == onnx::FLOAT; }
  bool exact() const { return grid >= 0; }
  int rank() const { return static_cast<int>(dims.size()); }
  double largest() const { return std::max(-low, high); }
};

struct RandomModel {
  anneal_onnx::ModelProto proto = {};
  std::vector<Value> inputs = {};
  std::vector<std::vector<Tensor>> data = {};  // by binding, by input
  std::map<std::string, Value> facts = {};     // by name, in bodies too
  int steps = 0;                               // that the recipe had, with those left out
  bool rounds_coarsely = false;                // somewhere: by 1/255 of a range
};

RandomModel random_model(const Recipe& recipe);

}  // namespace anneal::random_graphs
