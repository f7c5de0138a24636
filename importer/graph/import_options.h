// Options of an import.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "anneal/core/input_bounds.h"
#include "anneal/graph/op/custom_operator.h"

namespace anneal {

struct ImportOptions {
  // Of inputs with unknown sizes. Bounds of axis 0 that are not the model's number open the batch:
  // all inputs that have such bounds share it.
  InputBoundsByName bounds = {};
  // Fixes the sizes of all inputs, in the model's order; empty: bounds apply.
  std::vector<Dims> input_dims = {};
  // An initializer that the model lists as an input, too, is a constant, unless it is named here
  // ("*": all are), or is among the first `fed_inputs` inputs of the file: then it is an input with
  // a default value.
  std::set<std::string> default_inputs = {};
  int fed_inputs = 0;
  CustomOperators operators = {};  // for nodes that no row of the importer has
};

}  // namespace anneal
