#include "anneal/engine/compare/model_arithmetic.h"
#include "anneal/core/dtype_kinds.h"

#include <algorithm>
#include <set>
#include <vector>

namespace anneal {
namespace {

template <class... T>
bool is_any_of(const Op& op) {
  return (std::holds_alternative<T>(op) || ...);
}

bool is_quantized(const Graph& graph) {
  const std::vector<LayerId> order = graph.order();
  std::set<ValueId> after_dequantize;
  std::vector<LayerId> candidates;
  for (const LayerId id : order) {
    const Layer& layer = graph.layer(id);
    const bool after = std::any_of(layer.inputs.begin(), layer.inputs.end(),
                                   [&](ValueId input) { return after_dequantize.contains(input); });
    if (after && is_any_of<Conv, ConvTranspose, MatMul>(layer.op)) candidates.push_back(id);
    if (after || is_any_of<Dequantize>(layer.op))
      after_dequantize.insert(layer.outputs.begin(), layer.outputs.end());
  }

  std::set<ValueId> before_quantize;
  for (auto id = order.rbegin(); id != order.rend(); ++id) {
    const Layer& layer = graph.layer(*id);
    const bool before =
        std::any_of(layer.outputs.begin(), layer.outputs.end(),
                    [&](ValueId output) { return before_quantize.contains(output); });
    if (before || is_any_of<Quantize>(layer.op))
      before_quantize.insert(layer.inputs.begin(), layer.inputs.end());
  }
  return std::any_of(candidates.begin(), candidates.end(), [&](LayerId id) {
    const auto& outputs = graph.layer(id).outputs;
    return std::any_of(outputs.begin(), outputs.end(),
                       [&](ValueId output) { return before_quantize.contains(output); });
  });
}

bool has_floats(const Graph& graph) {
  const auto is_float_value = [&](ValueId id) {
    return id != ValueId::kNone && is_float(graph.value(id).type().dtype);
  };
  if (std::any_of(graph.inputs().begin(), graph.inputs().end(), is_float_value)) return true;
  for (const LayerId id : graph.order()) {
    const Layer& layer = graph.layer(id);
    if (std::any_of(layer.inputs.begin(), layer.inputs.end(), is_float_value) ||
        std::any_of(layer.outputs.begin(), layer.outputs.end(), is_float_value))
      return true;
  }
  return false;
}

}  // namespace

Arithmetic arithmetic_of(const Plan& plan) {
  bool quantizes = false, multiplies = false, floats = false;
  for (const Step& step : plan.steps) {
    const bool anchor = is_any_of<Conv, ConvTranspose, MatMul>(step.op);
    multiplies |= anchor;
    quantizes |= is_any_of<Quantize>(step.op);
    for (const uint32_t output : step.outputs) {
      const DataType dtype = plan.slots[output].type.dtype;
      floats |= is_float(dtype);
      quantizes |= anchor && is_8bit(dtype);
    }
  }
  if (quantizes && multiplies) return Arithmetic::kQuantized;
  return floats ? Arithmetic::kFloat : Arithmetic::kInteger;
}

Arithmetic arithmetic_of(const Graph& graph) {
  if (is_quantized(graph)) return Arithmetic::kQuantized;
  return has_floats(graph) ? Arithmetic::kFloat : Arithmetic::kInteger;
}

}  // namespace anneal
