// The ranges of values that follow from the model itself.
#pragma once
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "anneal/core/dtype_kinds.h"
#include "anneal/optimizer/precision.h"
#include "anneal/optimizer/precision/number_range.h"
#include "anneal/optimizer/precision/product_norms.h"
#include "anneal/optimizer/precision/value_flow.h"

namespace anneal {

// A largest magnitude as the samples of the table showed it; negative if none did.
float seen_in(const PrecisionOptions& options, const std::string& value);
// Samples show less than there is: extremes must be this many times inside a range.
inline constexpr float kSampleMargin = 4;

struct NodeFacts {
  // Proven by constants, bounded functions, normalizations and types of integers; where those show
  // nothing, the table's extremes with a margin. Samples do not bound what comes of integers, such
  // as positions and sizes.
  NumberRange range;
  // A guess at the largest magnitude of values that inputs of ordinary magnitude give, where
  // trained layers keep features ordinary. Infinite where nothing speaks for one: integers of 32
  // bits and more, products of two computed values.
  double expected = 0;
  bool is_of_product = false;   // at any distance
  bool is_feature = false;      // of a product by way of an activation, a norm or the like
  bool is_of_integers = false;  // of 32 bits and more
};

struct FlowFacts {
  std::vector<NodeFacts> nodes;                             // one for each node
  std::unordered_map<LayerId, ProductNorms> norms{};        // of products by one constant
  std::map<int64_t, std::vector<NodeFacts>> body_inputs{};  // of each body's inputs, by its index
  const NodeFacts& operator[](int node) const { return nodes[static_cast<size_t>(node)]; }
};
// `inputs`: of the graph's inputs, where the graph is a body; empty where nothing surrounds it.
// threads: that read weights; 0: one per core.
FlowFacts facts_of(const ValueFlow& flow, const PrecisionOptions& options,
                   std::span<const NodeFacts> inputs = {}, int threads = 1);

// How the inputs and outputs of a body correspond to those of its layer.
struct BodyPorts {
  int input_shift = 0;    // input i of the body is input i + input_shift of the layer
  int first_output = 0;   // the body's output that is the layer's first
  int first_carried = 0;  // the first of the body's inputs that its last iteration gives
  int carried = 0;        // number of inputs, from output first_output on
};
BodyPorts ports_of(const Op& op);

// How many products a result of a MatMul adds up; infinite if nothing bounds it.
double summands(const Graph& graph, LayerId product);

}  // namespace anneal
