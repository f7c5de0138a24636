// Integers of 8 and 16 bits and floats of 8 and 4 bits with scales: conversions, and products that
// accumulate in i32.
#include "anneal/importer/ops/quant.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <unordered_set>
#include <vector>

#include "anneal/core/dtype_kinds.h"
#include "anneal/importer/onnx/minifloat.h"
#include "anneal/importer/onnx/onnx.pb.h"
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

// Absent where it is a constant of zeros: kernels then need not subtract it.
ValueId zero_point_of(Node& node, int index, std::string_view suffix) {
  const Tensor* const constant = node.constant(index);
  if (constant != nullptr &&
      std::ranges::all_of(constant->bytes(), [](std::byte each) { return each == std::byte{0}; }))
    return ValueId::kNone;
  return optional_scalar(node, index, suffix);
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

// The largest power of two that is not above |x|, exactly, and 0 for 0: algorithm 3.5 of Rump,
// Ogita and Oishi, "Accurate floating-point summation, part I" (2008). REQUIRES: an f32 of
// magnitude below 2^100
Expression unit_in_the_first_place(Expression x) {
  const Expression q = x * 0x1.000002p23;
  return (q - q * (1 - 0x1p-24)).apply(Opcode::kAbs);
}

Expression within(Expression x, double limit) {
  return min(max(x, x.number(-limit)), x.number(limit));
}

// The nearest number of the type, of two the even one. saturates: numbers beyond the largest become
// it; else infinity, or NaN where the type has none. REQUIRES: a type with a sign and fractions
Expression rounded_to(Expression x, const Minifloat& type, bool saturates) {
  const double largest = type.largest(), limit = saturates ? largest : 2 * largest;
  const Expression near = within(x, limit);
  const Expression power = max(unit_in_the_first_place(near), near.number(type.least_normal()));
  // Beside it f32 has the digits that the type has for x: the sum rounds, and the rest is exact.
  const Expression large = power * std::ldexp(1.5, 23 - type.fraction_bits);
  const Expression rounded = within((near + large) - large, limit);
  if (saturates) return rounded;
  const bool has_infinity = type.specials == Minifloat::Specials::kIeee;
  const double beyond = has_infinity ? std::numeric_limits<double>::infinity()
                                     : std::numeric_limits<double>::quiet_NaN();
  return select(rounded.apply(Opcode::kAbs) <= largest, rounded, rounded * beyond);
}

// A scale that broadcasts against x: of the tensor, one for each index of `axis`, or for each
// block_size > 0 elements along it.
ValueId broadcast_scale(Node& node, ValueId scale, int64_t axis, int64_t block_size) {
  const Shape shape = node.graph().value(scale).type().shape;
  if (shape.rank() == 0) return scale;
  if (block_size > 0) {
    const Size size = node.shape(0)[static_cast<int>(axis)];
    if (!size.known()) node.unsupported("blocks along an open size");
    constexpr int64_t kMost = int64_t{1} << 30;  // each takes an index of 8 bytes
    if (size.value() > kMost)
      node.unsupported(fmt::format("blocks along an axis of {} elements", size.value()));
    const int64_t wanted = size.value() / block_size + (size.value() % block_size != 0 ? 1 : 0);
    for (int i = 0; i < shape.rank(); ++i) {
      const Size of_x = i == axis ? Size(wanted) : node.shape(0)[i];
      if (shape[i].known() && of_x.known() && shape[i] != of_x)
        node.invalid(fmt::format("axis {} of the scale has {} elements, not {}", i,
                                 shape[i].value(), of_x.value()));
    }
    std::vector<int64_t> blocks(static_cast<size_t>(size.value()));
    for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<int64_t>(i) / block_size;
    const ValueId indices = node.integers_value(blocks, "blocks");
    return node.layer(Gather{.axis = axis}, {scale, indices}, "scale_per_element");
  }
  std::vector<Size> sizes(static_cast<size_t>(node.rank(0) - axis), Size(1));
  sizes[0] = shape[0];
  return reshape(node, scale, sizes, "scale_per_index");
}

// x / scale as a float of 8 or 4 bits.
Outputs quantize_to_minifloat(Node& node, const Parameters& parameters, int32_t element_type,
                              bool saturates) {
  const Minifloat type = *minifloat(element_type);
  if (!type.has_sign) node.unsupported("to float8e8m0");
  const ValueId scale =
      broadcast_scale(node, parameters.scale, parameters.axis, parameters.block_size);
  const auto real = [](Expression x) { return x.cast(RegisterType::kF32); };
  Outputs made = pointwise_result(
      node, {node.input(0), scale}, DataType::kF32,
      [&](Expressions in) { return rounded_to(real(in[0]) / real(in[1]), type, saturates); });
  node.set_narrow_type(made[0], element_type);
  return made;
}

// The integers of 4 or 2 bits; nullopt: another type.
struct FewBits {
  DataType stored;  // what holds them here
  double low, high;
};
std::optional<FewBits> few_bits(int32_t element_type) {
  switch (element_type) {
    case anneal_onnx::TensorProto::INT4:
      return FewBits{DataType::kI8, -8, 7};
    case anneal_onnx::TensorProto::UINT4:
      return FewBits{DataType::kU8, 0, 15};
    case anneal_onnx::TensorProto::INT2:
      return FewBits{DataType::kI8, -2, 1};
    case anneal_onnx::TensorProto::UINT2:
      return FewBits{DataType::kU8, 0, 3};
    default:
      return std::nullopt;
  }
}

// Integers of 8 bits within the limits of the type.
Outputs quantize_to_few_bits(Node& node, const Parameters& parameters, int32_t element_type) {
  const FewBits type = *few_bits(element_type);
  const Quantize op{
      .axis = parameters.axis, .block_size = parameters.block_size, .dtype = type.stored};
  const ValueId wide = node.layer(
      op, without_trailing_absent({node.input(0), parameters.scale, parameters.zero_point}),
      "in_8_bits");
  Outputs made = pointwise_result(node, {wide}, type.stored, [&](Expressions in) {
    return min(max(in[0], in[0].number(type.low)), in[0].number(type.high));
  });
  node.set_narrow_type(made[0], element_type);
  return made;
}

// wanted: ONNX's element type of attribute output_dtype, 0 if there is none.
Outputs quantize(Node& node, const Parameters& parameters, int32_t wanted) {
  node.expect_inputs(2, 3);
  node.dtype(0, {DataType::kF32, DataType::kF16, DataType::kBF16, DataType::kI32});
  node.dtype(1, kFloats);
  const bool saturates = node.flag("saturate", true);
  const bool has_zero_point = parameters.zero_point != ValueId::kNone;
  const int32_t narrow = has_zero_point ? node.narrow_type(2) : wanted;
  if (is_narrow(narrow)) {
    if (wanted != 0 && wanted != narrow)
      node.invalid("\"output_dtype\" contradicts the zero point");
    return few_bits(narrow) ? quantize_to_few_bits(node, parameters, narrow)
                            : quantize_to_minifloat(node, parameters, narrow, saturates);
  }
  const DataType dtype = has_zero_point ? node.dtype(2, kQuantized)
                         : wanted != 0  ? require_dtype(wanted)
                                        : DataType::kU8;
  if (wanted != 0 && require_dtype(wanted) != dtype)
    node.invalid("\"output_dtype\" contradicts the zero point");
  if (!kQuantized.contains(dtype)) node.unsupported(fmt::format("to {}", to_string(dtype)));
  const Quantize op{.axis = parameters.axis, .block_size = parameters.block_size, .dtype = dtype};
  return node.result(
      op, without_trailing_absent({node.input(0), parameters.scale, parameters.zero_point}));
}

Outputs import_quantize_per_tensor(Node& node) { return quantize(node, per_tensor(node), 0); }
Outputs import_quantize_axis(Node& node) { return quantize(node, axis_parameters(node, 0), 0); }
Outputs import_quantize(Node& node) {
  const int64_t precision = node.integer("precision", 0);
  if (precision != 0 && require_dtype(static_cast<int32_t>(precision)) != DataType::kF32)
    node.unsupported("a division in another type than float (precision)");
  const auto wanted = static_cast<int32_t>(node.integer("output_dtype", 0));
  return quantize(node, axis_parameters(node, read_block_size(node)), wanted);
}

// Whether a build computes the value: it is made of constants by layers without bodies.
bool is_of_constants(const Graph& graph, ValueId value) {
  std::vector<ValueId> left = {value};
  std::unordered_set<ValueId> seen(left.begin(), left.end());
  while (!left.empty()) {
    const ValueId one = left.back();
    left.pop_back();
    if (one == ValueId::kNone || graph.constant(one)) continue;
    const LayerId made_by = graph.value(one).producer;
    if (made_by == LayerId::kNone || graph.layer(made_by).inputs.empty() ||
        !bodies_of(graph.layer(made_by).op).empty())
      return false;
    for (const ValueId input : graph.layer(made_by).inputs)
      if (seen.insert(input).second) left.push_back(input);
  }
  return true;
}

// The codes of constant weights, which passes may keep; else none.
std::optional<Tensor> codes_of_weights(const Node& node, const Parameters& parameters) {
  const Tensor* numbers = node.constant(0);
  const auto encoding = weight_encoding(node.narrow_type(0));
  if (!numbers || !encoding || !is_of_constants(node.graph(), parameters.scale))
    return std::nullopt;
  return codes_of(*numbers, *encoding);
}

// x * scale. The zero point of such floats is 0.
Outputs dequantize_minifloat(Node& node, const Parameters& parameters, DataType dtype) {
  if (auto codes = codes_of_weights(node, parameters);
      codes && dtype == node.graph().value(parameters.scale).type().dtype) {
    const Dequantize op{.axis = parameters.axis,
                        .block_size = parameters.block_size,
                        .encoding = *weight_encoding(node.narrow_type(0))};
    return node.result(op, {node.constant_value(*std::move(codes), "codes"), parameters.scale});
  }
  const ValueId scale =
      broadcast_scale(node, parameters.scale, parameters.axis, parameters.block_size);
  return pointwise_result(node, {node.input(0), scale}, dtype,
                          [](Expressions in) { return in[0] * in[1].cast(RegisterType::kF32); });
}

Outputs dequantize(Node& node, const Parameters& parameters) {
  node.expect_inputs(2, 3);
  if (minifloat(node.narrow_type(0))) {
    const DataType scale = node.dtype(1, kFloats);
    const auto type = static_cast<int32_t>(node.integer("output_dtype", 0));
    if (type == 0 && node.narrow_type(1) != 0)
      node.invalid(fmt::format("scales of {} without \"output_dtype\"",
                               onnx_type_name(node.narrow_type(1))));
    const DataType dtype = type == 0 ? scale : require_dtype(type);
    if (!is_float(dtype)) node.invalid("\"output_dtype\" is no float");
    return dequantize_minifloat(node, parameters, dtype);
  }
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

// The type is always float8e4m3fn, and there is no zero point.
Outputs import_trt_quantize(Node& node) {
  return quantize(node, axis_parameters(node, 0), anneal_onnx::TensorProto::FLOAT8E4M3FN);
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
  const ValueId zero_point = zero_point_of(node, 2, "x_zero_point");
  const auto [op, input] = read_conv(node, node.input(0), node.input(1), zero_point);
  return node.result(op, without_trailing_absent({input, node.input(1), zero_point,
                                                  zero_point_of(node, 3, "w_zero_point")}));
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

struct Requantization {
  ValueId sum, scale_a, scale_b, scale_y, zero_point, bias = ValueId::kNone;
};

// saturate(round((sum + bias) * (scale_a * scale_b / scale_y)) + zero_point)
Outputs requantize(Node& node, const Requantization& r, DataType dtype) {
  const auto real = [](Expression term) { return term.cast(RegisterType::kF32); };
  // A layer of its own, so that constant scales give one constant.
  const ValueId scale =
      pointwise(node, "scale", {r.scale_a, r.scale_b, r.scale_y}, DataType::kF32,
                [&](Expressions in) { return real(in[0]) * real(in[1]) / real(in[2]); });
  std::vector<ValueId> inputs = {r.sum, scale, r.zero_point};
  if (r.bias != ValueId::kNone) inputs.push_back(r.bias);
  return pointwise_result(
      node, inputs, dtype,
      [&](Expressions in) {
        const Expression sum = in.size() > 3 ? in[0] + in[3] : in[0];
        const Expression q = (real(sum) * in[1]).apply(Opcode::kRoundEven) + real(in[2]);
        return q.saturate(dtype);
      },
      "requantize");
}

Outputs import_q_linear_conv(Node& node) {
  node.expect_inputs(8, 9);
  node.dtype(0, k8Bit);
  node.dtype(3, k8Bit);
  const ValueId zero_point = zero_point_of(node, 2, "x_zero_point");
  const auto [op, input] = read_conv(node, node.input(0), node.input(3), zero_point);
  const ValueId sum = node.layer(op,
                                 without_trailing_absent({input, node.input(3), zero_point,
                                                          zero_point_of(node, 5, "w_zero_point")}),
                                 "");
  const int rank = node.rank(0);
  ValueId weight_scale = scalar_if_one(node, 4, "w_scale");
  if (node.graph().value(weight_scale).type().shape.rank() != 0)
    weight_scale = per_channel(node, weight_scale, rank, "w_scale_per_channel");
  Requantization r{.sum = sum,
                   .scale_a = scalar_if_one(node, 1, "x_scale"),
                   .scale_b = weight_scale,
                   .scale_y = scalar_if_one(node, 6, "y_scale"),
                   .zero_point = scalar_if_one(node, 7, "y_zero_point")};
  if (node.has_input(8)) {
    node.dtype(8, {DataType::kI32});
    r.bias = per_channel(node, node.input(8), rank, "bias_per_channel");
  }
  return requantize(node, r, node.dtype(7, k8Bit));
}

Outputs import_q_linear_mat_mul(Node& node) {
  node.expect_inputs(8, 8);
  expect_matrices(node, 0, 3);
  const ValueId sum =
      node.layer(MatMul{},
                 without_trailing_absent({node.input(0), node.input(3),
                                          product_zero_point(node, 2, "a_zero_point"),
                                          product_zero_point(node, 5, "b_zero_point")}),
                 "");
  ValueId a_scale = scalar_if_one(node, 1, "a_scale");
  const Shape rows = node.graph().value(a_scale).type().shape;
  if (rows.rank() == 1) a_scale = reshape(node, a_scale, {rows[0], Size(1)}, "a_scale_per_row");
  return requantize(node,
                    {.sum = sum,
                     .scale_a = a_scale,
                     .scale_b = scalar_if_one(node, 4, "b_scale"),
                     .scale_y = scalar_if_one(node, 6, "y_scale"),
                     .zero_point = scalar_if_one(node, 7, "y_zero_point")},
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
    {kTensorRt, "TRT_FP8DequantizeLinear", 1, kLatest, import_dequantize_axis},
    {kTensorRt, "TRT_FP8QuantizeLinear", 1, kLatest, import_trt_quantize},
};

}  // namespace

Outputs cast_to_minifloat(Node& node, int32_t element_type, bool saturates) {
  const Minifloat type = *minifloat(element_type);
  if (!type.has_sign) node.unsupported("a cast to float8e8m0");
  node.dtype(0, kNumbersAndBooleans);
  Outputs made = pointwise_result(node, {node.input(0)}, DataType::kF32, [&](Expressions in) {
    return rounded_to(in[0].cast(RegisterType::kF32), type, saturates);
  });
  node.set_narrow_type(made[0], element_type);
  return made;
}

ValueId scalar_if_one(Node& node, int index, std::string_view suffix) {
  const Shape& shape = node.shape(index);
  const bool one = shape.rank() == 1 && shape[0] == Size(1);
  return one ? reshape(node, node.input(index), {}, suffix) : node.input(index);
}

ValueId product_zero_point(Node& node, int index, std::string_view suffix) {
  const ValueId zero_point = zero_point_of(node, index, suffix);
  if (zero_point != ValueId::kNone && node.graph().value(zero_point).type().shape.rank() > 1)
    node.unsupported("zero points that differ between matrices");
  return zero_point;
}

std::span<const OpRow> quant_rows() { return kQuantRows; }

}  // namespace anneal
