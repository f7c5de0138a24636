// Which layers can be computed with 8-bit operands, and what of the model that takes.
#pragma once
#include <optional>
#include <regex>
#include <vector>

#include "anneal/graph/graph.h"
#include "anneal/optimizer/precision.h"

namespace anneal {

// A convolution or product of floats by constant weights.
struct Quantizable {
  ValueId data = ValueId::kNone, weights = ValueId::kNone;
  int64_t channel_axis = 0;  // of the weights: one scale for each position
};
std::optional<Quantizable> quantizable(const Graph& graph, LayerId id);

// The values that they read and that are not quantized yet, each once, in the layers' order: those
// whose ranges insert_quantize wants.
std::vector<ValueId> values_to_calibrate(const Graph& graph);

// What PrecisionOptions::layers say; no pattern matches a name of more than 4096 characters. Fails
// with kInvalidArgument on a pattern that is no regular expression.
class LayerPrecisions {
 public:
  explicit LayerPrecisions(const std::vector<LayerPrecision>& layers);
  std::optional<Precision> of(const Layer& layer) const;  // nullopt: no pattern matches

 private:
  struct Rule {
    std::regex pattern;
    Precision precision;
  };
  std::vector<Rule> rules_;
};

}  // namespace anneal
