// 8-bit (and 16-bit) integers with scales: conversions, and products that accumulate in i32.
#include "anneal/importer/ops/quant.h"

#include <fmt/format.h>

#include <numeric>

#include "anneal/core/dtype_kinds.h"
#include "anneal/importer/onnx/tensor_proto.h"
#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"
#include "anneal/importer/ops/window.h"

namespace anneal {
namespace {

constexpr TypeSet kQuantized = {DataType::kI8, DataType::kU8, DataType::kI16, DataType::kU16};

ValueId optional_scalar(Node& node, int index, std::string_view suffix) {
  return node.has_input(index) ? scalar_if_one(node, index, suffix) : ValueId::kNone;
}

std::vector<ValueId> without_trailing_absent(std::vector<ValueId> inputs) {
  while (inputs.back() == ValueId::kNone) inputs.pop_back();
  return inputs;
}

struct Parameters {
  ValueId scale, zero_point;
  int64_t axis = 0, block_size = 0;
};

Parameters per_tensor(Node& node) {
  const Parameters result{scalar_if_one(node, 1, "scale"), optional_scalar(node, 2, "zero_point")};
  if (node.graph().value(result.scale).type().shape.rank() != 0)
    node.invalid("the scale is not a scalar");
  return result;
}

// block_size > 0: the scale has the rank of x.
Parameters axis_parameters(Node& node, int64_t block_size) {
  Parameters result{scalar_if_one(node, 1, "scale"), optional_scalar(node, 2, "zero_point")};
  const int64_t axis = node.integer("axis", 1);
  const int scale_rank = node.graph().value(result.scale).type().shape.rank();
  if (scale_rank == 0) return result;  // the axis has no meaning
  if (scale_rank != (block_size > 0 ? node.rank(0) : 1))
    node.invalid(fmt::format("a scale of {} axes", scale_rank));
  result.axis = node.resolve_axis(axis, node.rank(0));
  result.block_size = block_size;
  return result;
}

int64_t read_block_size(Node& node) {
  const int64_t block_size = node.integer("block_size", 0);
  if (block_size < 0) node.invalid("attribute \"block_size\" is negative");
  return block_size;
}

Outputs quantize(Node& node, const Parameters& parameters, std::optional<DataType> wanted) {
  node.expect_inputs(2, 3);
  node.dtype(0, {DataType::kF32, DataType::kF16, DataType::kBF16, DataType::kI32});
  node.dtype(1, kFloats);
  if (node.is_sub_byte(2)) node.unsupported("to integers of 4 or 2 bits");
  const bool has_zero_point = parameters.zero_point != ValueId::kNone;
  const DataType dtype =
      has_zero_point ? node.dtype(2, kQuantized) : wanted.value_or(DataType::kU8);
  if (wanted && *wanted != dtype) node.invalid("\"output_dtype\" contradicts the zero point");
  if (!kQuantized.contains(dtype)) node.unsupported(fmt::format("to {}", to_string(dtype)));
  const Quantize op{.axis = parameters.axis, .block_size = parameters.block_size, .dtype = dtype};
  return node.result(
      op, without_trailing_absent({node.input(0), parameters.scale, parameters.zero_point}));
}

Outputs import_quantize_per_tensor(Node& node) {
  return quantize(node, per_tensor(node), std::nullopt);
}
Outputs import_quantize_axis(Node& node) {
  node.ignore("saturate");  // of the 8-bit floats
  return quantize(node, axis_parameters(node, 0), std::nullopt);
}
Outputs import_quantize(Node& node) {
  node.ignore("saturate");
  const int64_t precision = node.integer("precision", 0);
  if (precision != 0 && require_dtype(static_cast<int32_t>(precision)) != DataType::kF32)
    node.unsupported("a division in another type than float (precision)");
  const int64_t type = node.integer("output_dtype", 0);
  std::optional<DataType> wanted;
  if (type != 0) wanted = require_dtype(static_cast<int32_t>(type));
  return quantize(node, axis_parameters(node, read_block_size(node)), wanted);
}

Outputs dequantize(Node& node, const Parameters& parameters) {
  node.expect_inputs(2, 3);
  node.dtype(0, kQuantized | TypeSet{DataType::kI32});
  node.expect_same_dtype({0, 2});
  const DataType scale = node.dtype(1, kFloats);
  const Dequantize op{.axis = parameters.axis, .block_size = parameters.block_size};
  const auto inputs =
      without_trailing_absent({node.input(0), parameters.scale, parameters.zero_point});
  const int64_t type = node.integer("output_dtype", 0);
  const DataType dtype = type == 0 ? scale : require_dtype(static_cast<int32_t>(type));
  if (dtype == scale) return node.result(op, inputs);
  if (!is_float(dtype)) node.invalid("\"output_dtype\" is no float");
  return pointwise_result(
      node, {node.layer(op, inputs, "")}, dtype, [](Expressions in) { return in[0]; }, "cast");
}

Outputs import_dequantize_per_tensor(Node& node) { return dequantize(node, per_tensor(node)); }
Outputs import_dequantize_axis(Node& node) { return dequantize(node, axis_parameters(node, 0)); }
Outputs import_dequantize(Node& node) {
  return dequantize(node, axis_parameters(node, read_block_size(node)));
}

// scale = (max(0, x) - min(0, x)) / 255, zero point where 0 falls.
Outputs import_dynamic_quantize(Node& node) {
  node.expect_inputs(1, 1);
  node.dtype(0, {DataType::kF32});
  std::vector<int64_t> all(static_cast<size_t>(node.rank(0)));
  std::iota(all.begin(), all.end(), 0);
  const ValueId axes = node.integers_value(all, "axes");
  const auto extreme = [&](ReduceKind kind, const char* suffix) {
    return node.layer(Reduce{.kind = kind, .keepdims = false}, {node.input(0), axes}, suffix);
  };
  const ValueId low = extreme(ReduceKind::kMin, "min"), high = extreme(ReduceKind::kMax, "max");
  const auto low_of = [](Expressions in) { return min(in[0], in[0].number(0)); };
  const ValueId scale = pointwise_result(
      node, {low, high}, DataType::kF32,
      [&](Expressions in) { return (max(in[1], in[1].number(0)) - low_of(in)) / 255.0; }, "scale",
      1)[0];
  const ValueId zero_point = pointwise_result(
      node, {low, scale}, DataType::kU8,
      [&](Expressions in) {
        const Expression zero = (0.0 - low_of(in) / in[1]).apply(Opcode::kRoundEven);
        return Expression{zero.builder, zero.builder->saturate(zero.reg, DataType::kU8)};
      },
      "zero_point", 2)[0];
  return {node.result(Quantize{.dtype = DataType::kU8}, {node.input(0), scale, zero_point})[0],
          scale, zero_point};
}

Outputs import_conv_integer(Node& node) {
  node.expect_inputs(2, 4);
  node.dtype(0, k8Bit);
  node.dtype(1, k8Bit);
  const ValueId zero_point = optional_scalar(node, 2, "x_zero_point");
  const auto [op, input] = read_conv(node, 1, zero_point);
  return node.result(op, without_trailing_absent({input, node.input(1), zero_point,
                                                  optional_scalar(node, 3, "w_zero_point")}));
}

void expect_matrices(Node& node, int a, int b) {
  node.dtype(a, k8Bit);
  node.dtype(b, k8Bit);
  if (node.rank(a) < 2 || node.rank(b) < 2) node.unsupported("a product with a vector");
}

Outputs import_mat_mul_integer(Node& node) {
  node.expect_inputs(2, 4);
  expect_matrices(node, 0, 1);
  return node.result(MatMul{},
                     without_trailing_absent({node.input(0), node.input(1),
                                              product_zero_point(node, 2, "a_zero_point"),
                                              product_zero_point(node, 3, "b_zero_point")}));
}

// saturate(round((sum + bias) * (scale_a * scale_b / scale_y)) + zero_point). inputs: sum, scale_a,
// scale_b, scale_y, zero_point of y, [bias].
Outputs requantize(Node& node, const std::vector<ValueId>& inputs, DataType dtype) {
  return pointwise_result(
      node, inputs, dtype,
      [&](Expressions in) {
        const Expression sum = in.size() > 5 ? in[0] + in[5] : in[0];
        const auto real = [](Expression term) { return term.cast(RegisterType::kF32); };
        const Expression scale = real(in[1]) * real(in[2]) / real(in[3]);
        const Expression q = (real(sum) * scale).apply(Opcode::kRoundEven) + real(in[4]);
        return Expression{q.builder, q.builder->saturate(q.reg, dtype)};
      },
      "requantize");
}

Outputs import_q_linear_conv(Node& node) {
  node.expect_inputs(8, 9);
  node.dtype(0, k8Bit);
  node.dtype(3, k8Bit);
  const ValueId zero_point = optional_scalar(node, 2, "x_zero_point");
  const auto [op, input] = read_conv(node, 3, zero_point);
  const ValueId sum = node.layer(
      op, {input, node.input(3), zero_point, optional_scalar(node, 5, "w_zero_point")}, "");
  const int rank = node.rank(0);
  ValueId weight_scale = scalar_if_one(node, 4, "w_scale");
  if (node.graph().value(weight_scale).type().shape.rank() != 0)
    weight_scale = per_channel(node, weight_scale, rank, "w_scale_per_channel");
  std::vector<ValueId> inputs = {sum, scalar_if_one(node, 1, "x_scale"), weight_scale,
                                 scalar_if_one(node, 6, "y_scale"),
                                 scalar_if_one(node, 7, "y_zero_point")};
  if (node.has_input(8)) {
    node.dtype(8, {DataType::kI32});
    inputs.push_back(per_channel(node, node.input(8), rank, "bias_per_channel"));
  }
  return requantize(node, inputs, node.dtype(7, k8Bit));
}

Outputs import_q_linear_mat_mul(Node& node) {
  node.expect_inputs(8, 8);
  expect_matrices(node, 0, 3);
  const ValueId sum =
      node.layer(MatMul{},
                 {node.input(0), node.input(3), product_zero_point(node, 2, "a_zero_point"),
                  product_zero_point(node, 5, "b_zero_point")},
                 "");
  ValueId a_scale = scalar_if_one(node, 1, "a_scale");
  const Shape rows = node.graph().value(a_scale).type().shape;
  if (rows.rank() == 1) a_scale = reshape(node, a_scale, {rows[0], Size(1)}, "a_scale_per_row");
  return requantize(node,
                    {sum, a_scale, scalar_if_one(node, 4, "b_scale"),
                     scalar_if_one(node, 6, "y_scale"), scalar_if_one(node, 7, "y_zero_point")},
                    node.dtype(7, k8Bit));
}

constexpr OpRow kQuantRows[] = {
    {"", "ConvInteger", 10, kLatest, import_conv_integer},
    {"", "DequantizeLinear", 10, 12, import_dequantize_per_tensor},
    {"", "DequantizeLinear", 13, 20, import_dequantize_axis},
    {"", "DequantizeLinear", 21, kLatest, import_dequantize},
    {"", "DynamicQuantizeLinear", 11, kLatest, import_dynamic_quantize},
    {"", "MatMulInteger", 10, kLatest, import_mat_mul_integer},
    {"", "QLinearConv", 10, kLatest, import_q_linear_conv},
    {"", "QLinearMatMul", 10, kLatest, import_q_linear_mat_mul},
    {"", "QuantizeLinear", 10, 12, import_quantize_per_tensor},
    {"", "QuantizeLinear", 13, 20, import_quantize_axis},
    {"", "QuantizeLinear", 21, kLatest, import_quantize},
    {kMicrosoft, "DequantizeLinear", 1, kLatest, import_dequantize_axis},
    {kMicrosoft, "QuantizeLinear", 1, kLatest, import_quantize_axis},
};

}  // namespace

ValueId scalar_if_one(Node& node, int index, std::string_view suffix) {
  const Shape& shape = node.shape(index);
  const bool one = shape.rank() == 1 && shape[0] == Size(1);
  return one ? reshape(node, node.input(index), {}, suffix) : node.input(index);
}

ValueId product_zero_point(Node& node, int index, std::string_view suffix) {
  const ValueId zero_point = optional_scalar(node, index, suffix);
  if (zero_point != ValueId::kNone && node.graph().value(zero_point).type().shape.rank() > 1)
    node.unsupported("zero points that differ between matrices");
  return zero_point;
}

std::span<const OpRow> quant_rows() { return kQuantRows; }

}  // namespace anneal
