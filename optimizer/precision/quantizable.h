// The layers that can have 8-bit operands, and the parts of the model that this involves.
#pragma once
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "anneal/graph/graph.h"
#include "anneal/optimizer/pass.h"
#include "anneal/optimizer/precision.h"

namespace anneal {

// A convolution or product of floats by constant weights.
struct Quantizable {
  ValueId data = ValueId::kNone, weights = ValueId::kNone;
  int64_t channel_axis = 0;  // of the weights: one scale for each position
};
std::optional<Quantizable> quantizable(const Graph& graph, LayerId id);

// A convolution, transposed or not, or a product that is not of integers yet.
bool is_float_product(const Graph& graph, LayerId id);
// Why one is not quantizable, for people; empty if it is. REQUIRES: is_float_product
std::string why_not_quantizable(const Graph& graph, LayerId id);

// The values that they read and that are not quantized yet, each once, in the layers' order: those
// whose ranges insert_quantize wants.
std::vector<ValueId> values_to_calibrate(const Graph& graph);

// Fails with kInvalidArgument on options that this model, as it was imported, excludes: a table of
// another (check_belongs), a precision below f32 where results shall stay exact, a pattern that
// matches no layer, a weight format beside int8.
void check_precision(const PassOptions& options, const Graph& model);

// The layers that PrecisionOptions::layers selects; no pattern matches a name of more than 4096
// characters. Fails with kInvalidArgument on a pattern that is no regular expression.
class LayerPrecisions {
 public:
  explicit LayerPrecisions(const std::vector<LayerPrecision>& layers);
  std::optional<Precision> of(const Layer& layer) const;  // nullopt: no pattern matches
  // The first pattern that no layer of the graph and its bodies matches; nullptr: none.
  const std::string* unmatched(const Graph& graph) const;

 private:
  struct Rule {
    std::string text;
    std::regex pattern;
    Precision precision;
  };
  static bool matches(const Rule& rule, const Layer& layer);
  static bool matches(const Rule& rule, const Graph& graph);

  std::vector<Rule> rules_;
};

}  // namespace anneal
