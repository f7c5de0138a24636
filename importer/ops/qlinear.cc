// Operators of com.microsoft on 8-bit elements with scales, as quantizers write them: dequantize,
// compute, quantize.
#include <fmt/format.h>

#include <numeric>

#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"
#include "anneal/importer/ops/window.h"

namespace anneal {
namespace {

// Input `index` as a scalar; kNone if absent.
ValueId scalar(Node& node, int index, const std::string& suffix) {
  if (!node.has_input(index)) return ValueId::kNone;
  return node.rank(index) == 0 ? node.input(index) : reshape(node, node.input(index), {}, suffix);
}

// Elements as floats, with the scale and the zero point of these inputs. axis: the axis along which
// scales may differ; -1: none.
ValueId dequantized(Node& node, int index, int scale, int zero_point, int64_t axis = -1) {
  node.dtype(index, k8Bit);
  const std::string name = fmt::format("input{}", index);
  const bool many = axis >= 0 && node.rank(scale) == 1 && node.shape(scale)[0] != Size(1);
  const auto of = [&](int input, const char* suffix) {
    return many ? node.input(input) : scalar(node, input, name + suffix);
  };
  std::vector<ValueId> inputs = {node.input(index), of(scale, "/scale")};
  if (node.has_input(zero_point)) inputs.push_back(of(zero_point, "/zero_point"));
  return node.layer(Dequantize{.axis = many ? axis : 0}, inputs, name);
}
// Inputs index, index + 1 and index + 2: elements, scale, zero point.
ValueId dequantized(Node& node, int index) {
  return dequantized(node, index, index + 1, index + 2);
}

// By the scale and zero point at inputs index and index + 1: the node's output.
Outputs quantized(Node& node, ValueId x, int index, DataType otherwise) {
  std::vector<ValueId> inputs = {x, scalar(node, index, "scale")};
  if (inputs[1] == ValueId::kNone) node.invalid("the scale of the result is missing");
  DataType dtype = otherwise;
  if (node.has_input(index + 1)) {
    dtype = node.dtype(index + 1, k8Bit);
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
Outputs import_qlinear_sigmoid(Node& node) {
  return unary(node, [](Expressions in) { return in[0].apply(Opcode::kSigmoid); });
}
Outputs import_qlinear_leaky_relu(Node& node) {
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

Outputs import_qlinear_reduce_mean(Node& node) {
  node.expect_inputs(4, 5);
  std::vector<int64_t> axes(static_cast<size_t>(node.rank(0)));
  std::iota(axes.begin(), axes.end(), 0);
  if (const auto given = node.find_integers("axes"); given && !given->empty())
    axes = node.resolve_axes(*given, node.rank(0));
  const Reduce mean{.kind = ReduceKind::kMean, .keepdims = node.flag("keepdims", true)};
  const ValueId real =
      node.layer(mean, {dequantized(node, 0), node.integers_value(axes, "axes")}, "mean");
  return quantized(node, real, 3, node.dtype(0));
}

Outputs import_qlinear_average_pool(Node& node) {
  node.expect_inputs(4, 5);
  if (node.flag("channels_last", false)) node.unsupported("channels last");
  const Window window = read_window(node);
  if (!window.open_begin.empty()) node.unsupported("auto_pad with a stride on an open size");
  const Pool op{.kind = PoolKind::kAverage,
                .kernel = window.kernel,
                .strides = window.strides,
                .pads_begin = window.pads_begin,
                .pads_end = window.pads_end,
                .dilations = window.dilations,
                .ceil_mode = node.flag("ceil_mode", false),
                .count_include_pad = node.flag("count_include_pad", false)};
  return quantized(node, node.layer(op, {dequantized(node, 0)}, "real"), 3, node.dtype(0));
}

Outputs import_qlinear_softmax(Node& node) {
  node.expect_inputs(4, 5);
  const int64_t axis = node.resolve_axis(node.integer("axis", -1), node.rank(0));
  // Before opset 13 of ONNX the axes from `axis` on are one.
  if (node.integer("opset") < 13 && axis != node.rank(0) - 1)
    node.unsupported("an axis that is not the last, of an opset below 13");
  const ValueId result = node.layer(Softmax{.axis = axis}, {dequantized(node, 0)}, "real");
  return quantized(node, result, 3, node.dtype(0));
}

// inputs: condition, then three for each choice, and scale and zero point of the result.
Outputs import_qlinear_where(Node& node) {
  node.expect_inputs(8, 9);
  node.dtype(0, {DataType::kBool});
  const ValueId result =
      pointwise(node, "real", {node.input(0), dequantized(node, 1), dequantized(node, 4)},
                DataType::kF32, [](Expressions in) { return select(in[0], in[1], in[2]); });
  return quantized(node, result, 7, node.dtype(1));
}

// y = alpha A B + C, where C has the scale of alpha A B; floats without a scale of y.
Outputs import_gemm(Node& node) {
  node.expect_inputs(6, 9);
  const MatMul op{.transpose_a = node.flag("transA", false),
                  .transpose_b = node.flag("transB", false)};
  const double alpha = node.number("alpha", 1);
  if (node.rank(0) != 2 || node.rank(3) != 2) node.invalid("two matrices are expected");
  const ValueId a = dequantized(node, 0);
  const ValueId b = dequantized(node, 3, 4, 5, op.transpose_b ? 0 : 1);
  std::vector<ValueId> terms = {node.layer(op, {a, b}, "product")};
  if (node.has_input(6)) {
    node.dtype(6, {DataType::kI32});
    terms.insert(terms.end(), {node.input(6), node.input(1), node.input(4)});
  }
  const auto formula = [&](Expressions in) {
    const Expression sum =
        in.size() == 1 ? in[0] : in[0] + in[1].cast(RegisterType::kF32) * in[2] * in[3];
    return sum * alpha;
  };
  if (!node.has_input(7)) return pointwise_result(node, terms, DataType::kF32, formula);
  return quantized(node, pointwise(node, "real", terms, DataType::kF32, formula), 7, node.dtype(0));
}

Outputs product_with_bias(Node& node, ValueId a, ValueId b, int bias) {
  if (!node.has_input(bias)) return node.result(MatMul{}, {a, b});
  return epilogue_result(node, MatMul{}, {a, b}, {node.input(bias)}, DataType::kF32,
                         [](Expressions in) { return in[0] + in[1]; });
}
Outputs import_mat_mul_integer_to_float(Node& node) {
  node.expect_inputs(4, 7);
  return product_with_bias(node, dequantized(node, 0, 2, 4),
                           dequantized(node, 1, 3, 5, node.rank(1) - 1), 6);
}
// Data that the operator quantizes at run time is multiplied without quantization.
Outputs import_dynamic_quantize_mat_mul(Node& node) {
  node.expect_inputs(3, 5);
  node.dtype(0, {DataType::kF32});
  return product_with_bias(node, node.input(0), dequantized(node, 1, 2, 3, node.rank(1) - 1), 4);
}

// inputs: scale and zero point of the result, then three for each part.
Outputs import_qlinear_concat(Node& node) {
  if (node.input_count() < 5 || (node.input_count() - 2) % 3 != 0)
    node.invalid(fmt::format("{} inputs", node.input_count()));
  const int64_t axis = node.resolve_axis(node.integer("axis"), node.rank(2));
  std::vector<ValueId> parts;
  for (int i = 2; i < node.input_count(); i += 3) parts.push_back(dequantized(node, i));
  const ValueId whole = node.layer(Concat{.axis = axis}, parts, "real");
  return quantized(node, whole, 0, node.dtype(2));
}

constexpr OpRow kQlinearRows[] = {
    {kMicrosoft, "DynamicQuantizeMatMul", 1, kLatest, import_dynamic_quantize_mat_mul},
    {kMicrosoft, "MatMulIntegerToFloat", 1, kLatest, import_mat_mul_integer_to_float},
    {kMicrosoft, "QGemm", 1, kLatest, import_gemm},
    {kMicrosoft, "QLinearAdd", 1, kLatest, import_add},
    {kMicrosoft, "QLinearAveragePool", 1, kLatest, import_qlinear_average_pool},
    {kMicrosoft, "QLinearConcat", 1, kLatest, import_qlinear_concat},
    {kMicrosoft, "QLinearGlobalAveragePool", 1, kLatest, import_global_average_pool},
    {kMicrosoft, "QLinearLeakyRelu", 1, kLatest, import_qlinear_leaky_relu},
    {kMicrosoft, "QLinearMul", 1, kLatest, import_mul},
    {kMicrosoft, "QLinearReduceMean", 1, kLatest, import_qlinear_reduce_mean},
    {kMicrosoft, "QLinearSigmoid", 1, kLatest, import_qlinear_sigmoid},
    {kMicrosoft, "QLinearSoftmax", 1, kLatest, import_qlinear_softmax},
    {kMicrosoft, "QLinearWhere", 1, kLatest, import_qlinear_where},
};

}  // namespace

std::span<const OpRow> qlinear_rows() { return kQlinearRows; }

}  // namespace anneal
