#include "anneal/optimizer/precision/quantizable.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/fail.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/precision/fingerprint.h"
#include "anneal/optimizer/precision/weight_format.h"

namespace anneal {
namespace {

constexpr size_t kLongestName = 4096;  // the library's matching recurses for each character

}  // namespace

bool is_float_product(const Graph& graph, LayerId id) {
  if (op_as<ConvTranspose>(graph, id)) return true;
  const Layer& layer = graph.layer(id);
  if (layer.op_input_count != 2) return false;  // zero points: of integers
  if (!op_as<Conv>(graph, id) && !op_as<MatMul>(graph, id)) return false;
  return !op_as<Dequantize>(graph, producer(graph, layer.inputs[0])) ||
         !op_as<Dequantize>(graph, producer(graph, layer.inputs[1]));
}

std::string why_not_quantizable(const Graph& graph, LayerId id) {
  if (op_as<ConvTranspose>(graph, id)) return "there is no transposed convolution in 8 bits";
  const Layer& layer = graph.layer(id);
  if (op_output_count(layer) != 1) return "it has several results";
  const ValueId data = layer.inputs[0], weights = layer.inputs[1];
  for (const ValueId operand : {data, weights})
    if (const DataType dtype = graph.value(operand).type().dtype; dtype != DataType::kF32)
      return fmt::format("an operand is {}, not f32", to_string(dtype));
  if (op_as<Dequantize>(graph, producer(graph, weights)))
    return "the model has quantized weights, but its data is not quantized";
  if (!graph.constant(weights))
    return graph.constant(data) ? "its constant is on the left" : "both operands are computed";
  return graph.constant(data) ? "both operands are constant" : "";
}

std::optional<Quantizable> quantizable(const Graph& graph, LayerId id) {
  if (!is_float_product(graph, id) || !why_not_quantizable(graph, id).empty()) return std::nullopt;
  const Layer& layer = graph.layer(id);
  const auto* product = op_as<MatMul>(graph, id);
  const int64_t rank = graph.value(layer.inputs[1]).type().shape.rank();
  return Quantizable{layer.inputs[0], layer.inputs[1],
                     product ? rank - (product->transpose_b ? 2 : 1) : 0};
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
      rules_.push_back({layer.pattern, std::regex(layer.pattern), layer.precision});
    } catch (const std::regex_error& error) {
      fail(ErrorCode::kInvalidArgument,
           fmt::format("layer pattern \"{}\" is no regular expression: {}", layer.pattern,
                       error.what()));
    }
  }
}

bool LayerPrecisions::matches(const Rule& rule, const Layer& layer) {
  const auto match = [&](const std::string& name) {
    return name.size() <= kLongestName && std::regex_match(name, rule.pattern);
  };
  return match(layer.name) || std::ranges::any_of(layer.origins, match);
}

std::optional<Precision> LayerPrecisions::of(const Layer& layer) const {
  for (const Rule& rule : rules_)
    if (matches(rule, layer)) return rule.precision;
  return std::nullopt;
}

bool LayerPrecisions::matches(const Rule& rule, const Graph& graph) {
  return std::ranges::any_of(graph.order(),
                             [&](LayerId id) { return matches(rule, graph.layer(id)); }) ||
         std::ranges::any_of(graph.bodies(),
                             [&](const Graph& body) { return matches(rule, body); });
}

const std::string* LayerPrecisions::unmatched(const Graph& graph) const {
  for (const Rule& rule : rules_)
    if (!matches(rule, graph)) return &rule.text;
  return nullptr;
}

namespace {

// Passes name what they add after what it stands for.
bool has_layer_for(const Graph& graph, const std::string& name) {
  return std::ranges::any_of(graph.order(),
                             [&](LayerId id) { return name.starts_with(graph.layer(id).name); }) ||
         std::ranges::any_of(graph.bodies(),
                             [&](const Graph& body) { return has_layer_for(body, name); });
}

void check_layers(const CalibrationTable& table, const Graph& model) {
  const auto check_name = [&](const std::string& name) {
    if (!has_layer_for(model, name))
      fail(
          ErrorCode::kInvalidArgument,
          fmt::format("the calibration table has a line for layer \"{}\", which the model does not "
                      "have",
                      name));
  };
  for (const auto& [name, layer] : table.layers) check_name(name);
  for (const auto& [name, bias] : table.biases) check_name(name);
}

}  // namespace

void check_precision(const PassOptions& options, const Graph& model) {
  const PrecisionOptions& precision = options.precision;
  if (precision.ranges) {
    const CalibrationTable& table = *precision.ranges;
    check_belongs(table, model, options.threads);
    if (table.fingerprint != 0) check_layers(table, model);
    if (precision.allows(Precision::kI8) && !table.layers.empty() &&
        table.symmetric != precision.symmetric)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("the calibration table was made {} --symmetric, and its errors measured so: "
                       "build likewise, or calibrate again",
                       table.symmetric ? "with" : "without"));
  }
  if (parse_weight_format(precision.weight_format).bits > 0) {
    if (options.exact)
      fail(ErrorCode::kInvalidArgument,
           "a weight format and exact results exclude each other: request only one");
    if (precision.allows(Precision::kI8))
      fail(
          ErrorCode::kInvalidArgument,
          "a weight format is for layers that compute in floats, and int8 stores weights in 8 bits "
          "itself: request only one");
  }
  const LayerPrecisions layers(precision.layers);
  const bool is_lower = precision.allows_half() || precision.allows(Precision::kI8) ||
                        std::ranges::any_of(precision.layers, [](const LayerPrecision& layer) {
                          return layer.precision != Precision::kF32;
                        });
  if (is_lower && options.exact)
    fail(ErrorCode::kInvalidArgument,
         "reduced precision and exact results exclude each other: request only one");
  if (const std::string* pattern = layers.unmatched(model))
    fail(ErrorCode::kInvalidArgument,
         fmt::format("layer pattern \"{}\" matches no layer of the model: a pattern is a regular "
                     "expression for whole names, which anneal inspect lists",
                     *pattern));
}

}  // namespace anneal
