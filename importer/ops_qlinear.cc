// Operators of com.microsoft on 8-bit elements with scales, as quantizers write them: dequantize,
// compute, quantize.
#include <numeric>

#include "anneal/importer/expression.h"
#include "anneal/importer/rows.h"
#include "anneal/importer/window.h"

namespace anneal {
namespace {

constexpr std::string_view kDomain = "com.microsoft";
constexpr TypeSet kBytes = {DataType::kI8, DataType::kU8};

// Input `index` as a scalar; kNone if absent.
ValueId scalar(Node& node, int index, const std::string& suffix) {
  if (!node.has_input(index)) return ValueId::kNone;
  return node.rank(index) == 0 ? node.input(index) : reshape(node, node.input(index), {}, suffix);
}

// Inputs index, index + 1 and index + 2: elements, scale, zero point.
ValueId dequantized(Node& node, int index) {
  node.dtype(index, kBytes);
  const std::string name = "input" + std::to_string(index);
  std::vector<ValueId> inputs = {node.input(index), scalar(node, index + 1, name + "/scale")};
  if (node.has_input(index + 2)) inputs.push_back(scalar(node, index + 2, name + "/zero_point"));
  return node.layer(Dequantize{}, inputs, name);
}

// By the scale and zero point at inputs index and index + 1: the node's output.
Outputs quantized(Node& node, ValueId x, int index, DataType otherwise) {
  std::vector<ValueId> inputs = {x, scalar(node, index, "scale")};
  if (inputs[1] == ValueId::kNone) node.invalid("the scale of the result is missing");
  DataType dtype = otherwise;
  if (node.has_input(index + 1)) {
    dtype = node.dtype(index + 1, kBytes);
    inputs.push_back(scalar(node, index + 1, "zero_point"));
  }
  return node.result(Quantize{.dtype = dtype}, inputs);
}

Outputs binary(Node& node, Opcode opcode) {
  node.expect_inputs(7, 8);
  const ValueId result =
      pointwise(node, "real", {dequantized(node, 0), dequantized(node, 3)}, DataType::kF32,
                [&](Expressions in) { return in[0].apply(opcode, in[1]); });
  return quantized(node, result, 6, node.dtype(0));
}
Outputs import_add(Node& node) { return binary(node, Opcode::kAdd); }
Outputs import_mul(Node& node) { return binary(node, Opcode::kMul); }

Outputs unary(Node& node, Formula formula) {
  node.expect_inputs(4, 5);
  const ValueId result = pointwise(node, "real", {dequantized(node, 0)}, DataType::kF32, formula);
  return quantized(node, result, 3, node.dtype(0));
}
Outputs import_sigmoid(Node& node) {
  return unary(node, [](Expressions in) { return in[0].apply(Opcode::kSigmoid); });
}
Outputs import_leaky_relu(Node& node) {
  const double alpha = node.number("alpha", 0.01F);
  return unary(node, [&](Expressions in) { return select(in[0] < 0, in[0] * alpha, in[0]); });
}

Outputs import_global_average_pool(Node& node) {
  node.expect_inputs(4, 5);
  const bool channels_last = node.flag("channels_last", false);
  std::vector<int64_t> axes(static_cast<size_t>(std::max(node.rank(0) - 2, 0)));
  std::iota(axes.begin(), axes.end(), channels_last ? 1 : 2);
  const ValueId mean =
      node.layer(Reduce{.kind = ReduceKind::kMean},
                 {dequantized(node, 0), node.integers_value(axes, "axes")}, "mean");
  return quantized(node, mean, 3, node.dtype(0));
}

// inputs: scale and zero point of the result, then three for each part.
Outputs import_concat(Node& node) {
  if (node.input_count() < 5 || (node.input_count() - 2) % 3 != 0)
    node.invalid(std::to_string(node.input_count()) + " inputs");
  const int64_t axis = node.resolve_axis(node.integer("axis"), node.rank(2));
  std::vector<ValueId> parts;
  for (int i = 2; i < node.input_count(); i += 3) parts.push_back(dequantized(node, i));
  const ValueId whole = node.layer(Concat{.axis = axis}, parts, "real");
  return quantized(node, whole, 0, node.dtype(2));
}

constexpr OpRow kRows[] = {
    {kDomain, "QLinearAdd", 1, kLatest, import_add},
    {kDomain, "QLinearConcat", 1, kLatest, import_concat},
    {kDomain, "QLinearGlobalAveragePool", 1, kLatest, import_global_average_pool},
    {kDomain, "QLinearLeakyRelu", 1, kLatest, import_leaky_relu},
    {kDomain, "QLinearMul", 1, kLatest, import_mul},
    {kDomain, "QLinearSigmoid", 1, kLatest, import_sigmoid},
};

}  // namespace

std::span<const OpRow> qlinear_rows() { return kRows; }

}  // namespace anneal
