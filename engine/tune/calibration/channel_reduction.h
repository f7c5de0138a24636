// Statistics per channel that the engine itself computes, so that measured tensors need no memory.
#pragma once
#include <string>
#include <vector>

#include "anneal/graph/graph.h"

namespace anneal {

// Adds an output, and gives its name, which is `name` or begins so: the program of the inputs,
// reduced over all axes of the first but `channel_axis`, so one number per channel. An empty
// program: the first input itself.
std::string add_channel_reduction(Graph& graph, const std::string& name, ReduceKind kind,
                                  Program program, std::vector<ValueId> inputs, int channel_axis);

Program square_program();  // x * x

}  // namespace anneal
