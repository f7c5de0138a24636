#include "anneal/optimizer/quantizable.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/optimizer/query.h"

namespace anneal {
namespace {

constexpr size_t kLongestName = 4096;  // the library's matching recurses for each character

}  // namespace

std::string_view name(Precision precision) {
  switch (precision) {
    case Precision::kF16:
      return "f16";
    case Precision::kBF16:
      return "bf16";
    case Precision::kI8:
      return "int8";
    case Precision::kF32:
      break;
  }
  return "f32";
}

std::optional<Quantizable> quantizable(const Graph& graph, LayerId id) {
  const Layer& layer = graph.layer(id);
  if (layer.op_input_count != 2 || op_output_count(layer) != 1) return std::nullopt;
  const auto is_conv = op_as<Conv>(graph, id) != nullptr;
  const auto* product = op_as<MatMul>(graph, id);
  if (!is_conv && !product) return std::nullopt;
  const ValueId data = layer.inputs[0], weights = layer.inputs[1];
  const Type& type = graph.value(weights).type();
  if (!graph.constant(weights) || type.dtype != DataType::kF32 || graph.constant(data))
    return std::nullopt;
  const int64_t rank = type.shape.rank();
  return Quantizable{data, weights, is_conv ? 0 : rank - (product->transpose_b ? 2 : 1)};
}

std::vector<ValueId> values_to_calibrate(const Graph& graph) {
  std::vector<ValueId> values;
  for (const LayerId id : graph.order()) {
    const auto found = quantizable(graph, id);
    if (!found || op_as<Dequantize>(graph, producer(graph, found->data)) ||
        std::ranges::find(values, found->data) != values.end())
      continue;
    values.push_back(found->data);
  }
  return values;
}

LayerPrecisions::LayerPrecisions(const std::vector<LayerPrecision>& layers) {
  for (const LayerPrecision& layer : layers) {
    try {
      rules_.push_back({std::regex(layer.pattern), layer.precision});
    } catch (const std::regex_error& error) {
      fail(Code::kInvalidArgument, fmt::format("layer pattern \"{}\" is no regular expression: {}",
                                               layer.pattern, error.what()));
    }
  }
}

std::optional<Precision> LayerPrecisions::of(const Layer& layer) const {
  for (const Rule& rule : rules_) {
    const auto matches = [&](const std::string& name) {
      return name.size() <= kLongestName && std::regex_match(name, rule.pattern);
    };
    if (matches(layer.name) || std::ranges::any_of(layer.origins, matches)) return rule.precision;
  }
  return std::nullopt;
}

}  // namespace anneal
