// keep_exact_sums: convolutions whose sums of whole numbers decide are not computed by Winograd's
// algorithm.
//
//   y = Floor(Conv(x, w))   =>   y = Floor(Conv(x, w) exact_sums=true)
//
// Where all elements of w are small multiples of one power of two, as in binarized networks,
// cellular automata and fixed-point arithmetic, and the sums are rounded to whole numbers or
// compared, here, by a later layer, or by a later sum of whole numbers. If x has such numbers as
// well, sums in f32 are exact. Winograd's transforms multiply by 1/24 and others, so that its sums
// are off in their last bits: 2.9999998 in place of 3, which Floor makes 2, and which is not equal
// to 3. Other weights make sums that are rounded in any order. Exact. Runs last: no later pass
// changes a convolution.
#include <algorithm>
#include <bit>
#include <limits>
#include <span>

#include "anneal/optimizer/analysis/decisions.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

// Of weights: sums of thousands of products with small numbers fit in the 24 bits of f32.
constexpr int kMostBits = 12;

// The places of the highest and the lowest set bit of all numbers.
class UsedBits {
 public:
  void add(float number) {
    constexpr int kMantissaBits = 23, kExponents = 255;
    const auto bits = std::bit_cast<uint32_t>(number);
    const auto exponent = static_cast<int>(bits >> kMantissaBits & kExponents);
    if (exponent == kExponents) is_finite_ = false;
    uint32_t mantissa = bits & ((1U << kMantissaBits) - 1);
    if (exponent != 0) mantissa |= 1U << kMantissaBits;
    if (mantissa == 0) return;
    const int place = std::max(exponent, 1);
    lowest_ = std::min(lowest_, place + std::countr_zero(mantissa));
    highest_ = std::max(highest_, place + static_cast<int>(std::bit_width(mantissa)) - 1);
  }
  bool are_few() const { return is_finite_ && highest_ - lowest_ < kMostBits; }

 private:
  int lowest_ = std::numeric_limits<int>::max() / 2, highest_ = 0;
  bool is_finite_ = true;
};

bool are_whole_multiples(const Tensor& weights) {
  UsedBits used;
  if (weights.dtype() == DataType::kF32) {
    for (const float weight : weights.as<float>()) {
      used.add(weight);
      if (!used.are_few()) return false;
    }
    return true;
  }
  if (weights.dtype() != DataType::kBF16) return false;
  for (const uint16_t weight : weights.as<uint16_t>())
    used.add(std::bit_cast<float>(uint32_t{weight} << 16));
  return used.are_few();
}

// Whether results of whole numbers are whole multiples as well.
bool keeps_whole_numbers(const Graph& graph, const Layer& layer, ValueId input) {
  if (const auto* reduce = std::get_if<Reduce>(&layer.op))
    return reduce->map.empty() && layer.inputs[0] == input;
  if (std::holds_alternative<Pool>(layer.op)) return layer.inputs[0] == input;
  if (!std::holds_alternative<Conv>(layer.op) && !std::holds_alternative<MatMul>(layer.op))
    return false;
  const size_t data = layer.inputs[0] == input ? 0 : 1;
  const Tensor* const weights = graph.constant(layer.inputs[1 - data]);
  return layer.inputs[data] == input && weights != nullptr && are_whole_multiples(*weights);
}

}  // namespace

bool keep_exact_sums(Graph& graph, PassRun& run) {
  const DecidedValues decided(graph, [&](const Layer& layer, ValueId input) {
    return keeps_whole_numbers(graph, layer, input);
  });
  bool changed = false;
  for (const LayerId id : graph.order()) {
    const auto* conv = op_as<Conv>(graph, id);
    if (conv == nullptr || conv->exact_sums || !decided.contains_result(graph.layer(id))) continue;
    const Tensor* const weights = graph.constant(graph.layer(id).inputs[1]);
    if (weights == nullptr || !are_whole_multiples(*weights) || !run.may_rewrite()) continue;
    const std::string name = graph.layer(id).name;
    NewLayer exact = copy_of(graph, id);
    std::get<Conv>(exact.op).exact_sums = true;
    graph.replace_layer(id, graph.add(std::move(exact)));
    run.did(name, "sums of whole numbers decide: not by Winograd's algorithm");
    changed = true;
  }
  return changed;
}

}  // namespace anneal
