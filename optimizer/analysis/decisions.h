// Where a small difference of a number may change a result by a whole step.
#pragma once
#include <unordered_set>
#include <vector>

#include "anneal/core/parallel.h"
#include "anneal/graph/graph.h"

namespace anneal {

struct DecisionOptions {
  bool by_readers = false;    // the readers of the results decide by them
  bool quantizes_too = true;  // rounding and saturating to integers of 8 or 16 bits is a decision
};
// By register: whether the program decides by it, at once or by way of arithmetic: it rounds it to
// a whole number, cuts it to an integer, compares or tests it. A comparison with a number that only
// selects between two functions that meet there is no decision, as in a leaky ReLU.
std::vector<bool> decided_registers(const Program& program, const DecisionOptions& options);

// Whether layers that read the value, of floats, do so: by way of programs and of layers that move
// or select elements, such as a maximum. Layers with bodies count, since these may. What follows a
// product, a sum or the end of a body does not count.
bool is_decided(const Graph& graph, ValueId value);
bool has_decided_output(const Graph& graph, const Layer& layer);

// The values of a graph for which is_decided() holds. However far a decision is: is_decided() takes
// a value with many readers of readers for decided.
class DecidedValues {
 public:
  // carries: whether a decision by the layer's result is one by this input as well, beyond what
  // is_decided() follows.
  using Carries = FunctionRef<bool(const Layer& layer, ValueId input)>;
  explicit DecidedValues(const Graph& graph);
  DecidedValues(const Graph& graph, Carries carries);

  bool contains(ValueId value) const { return values_.contains(value); }
  bool contains_output(const Layer& layer) const;
  // Whether the layer's epilogues or readers of its outputs decide by what its op computes.
  bool contains_result(const Layer& layer) const;

 private:
  std::unordered_set<ValueId> values_;
};

}  // namespace anneal
