// Where a small difference of a number may change a result by a whole step.
#pragma once
#include <vector>

#include "anneal/graph/graph.h"

namespace anneal {

// By register: whether the program rounds it to a whole number, cuts it to an integer or compares
// it, at once or by way of arithmetic. A comparison with a number that only selects between two
// functions that meet there is none, as in a leaky ReLU.
struct DecisionOptions {
  bool by_readers = false;    // the readers of the results do any of it
  bool quantizes_too = true;  // rounding and saturating to integers of 8 or 16 bits counts, too
};
std::vector<bool> decided_registers(const Program& program, const DecisionOptions& options);

// Whether layers that read the value, of floats, do so: by way of programs and of layers that move
// or select elements, such as a maximum. Layers with bodies count, since these may. What follows a
// product, a sum or the end of a body is not looked at.
bool is_decided(const Graph& graph, ValueId value);

}  // namespace anneal
