// What layers are to the choice of 16-bit types.
#pragma once
#include <utility>
#include <vector>

#include "anneal/graph/graph.h"
#include "anneal/graph/op/op_traits.h"

namespace anneal {

// The op's role (graph/op/op_traits.h), as its fields, epilogues and element types leave it.
HalfRole role_of(const Graph& graph, LayerId id);

// The op's inputs that share its data's type, and those whose types a program tells: of the op
// itself, as the op's input and the program's.
struct DataInputs {
  std::vector<size_t> data;
  std::vector<std::pair<size_t, int>> of_program;
};
DataInputs data_inputs(const Layer& layer);

}  // namespace anneal
