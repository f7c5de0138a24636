#include "anneal/importer/ops/expression.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <utility>

#include "anneal/core/new_tensor.h"
#include "anneal/importer/onnx/tensor_data.h"

namespace anneal {
namespace {

Pointwise pointwise_op(Node& node, const std::vector<ValueId>& inputs, DataType dtype,
                       Formula formula) {
  std::vector<DataType> types;
  for (const ValueId input : inputs) {
    types.push_back(node.graph().value(input).type().dtype);
    if (types.back() == DataType::kString) node.unsupported("strings");
  }
  return {program_of(types, dtype, formula)};
}

}  // namespace

Program program_of(std::span<const DataType> inputs, DataType dtype, Formula formula) {
  ProgramBuilder builder;
  std::vector<Expression> terms;
  for (size_t i = 0; i < inputs.size(); ++i)
    terms.push_back({&builder, builder.input(static_cast<int>(i), inputs[i])});
  return builder.finish(formula(terms).reg, dtype);
}

Expression softplus(Expression x) {
  return max(x, x.number(0)) + (-x.apply(Opcode::kAbs)).apply(Opcode::kExp).apply(Opcode::kLog1p);
}

Expression erf_gelu(Expression x) {
  return x * 0.5 * ((x * std::numbers::sqrt2 * 0.5).apply(Opcode::kErf) + 1.0);
}

Expression tanh_gelu(Expression x) {
  const Expression inner = (x + x * x * x * 0.044715) * std::sqrt(2 / std::numbers::pi);
  return x * 0.5 * (inner.apply(Opcode::kTanh) + 1.0);
}

ValueId pointwise(Node& node, std::string_view suffix, const std::vector<ValueId>& inputs,
                  DataType dtype, Formula formula) {
  return node.layer(pointwise_op(node, inputs, dtype, formula), inputs, suffix);
}

Outputs pointwise_result(Node& node, const std::vector<ValueId>& inputs, DataType dtype,
                         Formula formula, std::string_view suffix, int output) {
  return node.result(pointwise_op(node, inputs, dtype, formula), inputs, suffix, output);
}

Outputs epilogue_result(Node& node, Op op, const std::vector<ValueId>& inputs,
                        const std::vector<ValueId>& further_inputs, DataType dtype, Formula formula,
                        std::string_view suffix) {
  std::vector<DataType> types = {accumulator(dtype)};
  for (const ValueId input : further_inputs)
    types.push_back(node.graph().value(input).type().dtype);
  return node.result_with_epilogue(std::move(op), inputs, program_of(types, dtype, formula),
                                   further_inputs, suffix);
}

ValueId as_i64(Node& node, ValueId value, std::string_view suffix) {
  if (node.graph().value(value).type().dtype == DataType::kI64) return value;
  if (const Tensor* constant = node.graph().constant(value)) {
    const auto integers = integers_of(*constant);
    return node.constant_value(Tensor::of<int64_t>(DataType::kI64, constant->dims(), integers),
                               suffix);
  }
  return as_type(node, value, DataType::kI64, suffix);
}

ValueId reshape(Node& node, ValueId value, const std::vector<Size>& shape,
                std::string_view suffix) {
  const Shape& old = node.graph().value(value).type().shape;
  if (std::ranges::equal(old, shape)) return value;
  const Shape target{std::span<const Size>(shape)};
  if (const Tensor* constant = node.graph().constant(value); constant && known(target)) {
    if (count(dims_of(target)) != constant->count())
      node.invalid(fmt::format("a constant of shape {} where {} is expected",
                               to_string(constant->dims()), to_string(dims_of(target))));
    return node.constant_value(reshaped(*constant, dims_of(target)), suffix);
  }
  const ValueId sizes = node.sizes_value(shape, std::string(suffix) + "/shape");
  return node.layer(Reshape{.allow_zero = true}, {value, sizes}, suffix);
}

ValueId expanded(Node& node, ValueId value, const std::vector<Size>& shape,
                 std::string_view suffix) {
  return node.layer(Expand{}, {value, node.sizes_value(shape, std::string(suffix) + "/shape")},
                    suffix);
}

ValueId as_type(Node& node, ValueId value, DataType dtype, std::string_view suffix) {
  return pointwise(node, suffix, {value}, dtype, [](Expressions in) { return in[0]; });
}

ValueId scalar_value(Node& node, int64_t number, std::string_view suffix) {
  return node.constant_value(Tensor::of<int64_t>(DataType::kI64, {}, {{number}}), suffix);
}

Outputs reshape_result(Node& node, ValueId value, const std::vector<Size>& shape,
                       std::string_view suffix) {
  return node.result(Reshape{.allow_zero = true}, {value, node.sizes_value(shape, "shape")},
                     suffix);
}

ValueId slice_of(Node& node, ValueId value, int64_t axis, Size begin, Size end,
                 std::string_view suffix) {
  const std::string name(suffix);
  return node.layer(
      Slice{},
      {value, node.sizes_value({begin}, name + "/start"), node.sizes_value({end}, name + "/end"),
       node.integers_value({axis}, name + "/axis"), node.integers_value({1}, name + "/step")},
      suffix);
}

ValueId per_channel(Node& node, ValueId vector, int rank, std::string_view suffix) {
  const Shape& shape = node.graph().value(vector).type().shape;
  if (shape.rank() != 1)
    node.invalid(fmt::format("a vector with one element per channel is expected, not {} axes",
                             shape.rank()));
  std::vector<Size> target(static_cast<size_t>(std::max(rank - 1, 1)), Size(1));
  target[0] = shape[0];
  return reshape(node, vector, target, suffix);
}

ValueId aligned_operand(Node& node) {
  const bool broadcast = node.flag("broadcast", false);
  const bool has_axis = node.has_attribute("axis");
  const int64_t axis = node.integer("axis", 0);
  const Shape& b = node.shape(1);
  if (!broadcast || !has_axis || b.rank() == 0) return node.input(1);
  const int rank = node.rank(0);
  const int64_t first = node.resolve_axis(axis, rank);
  if (first + b.rank() > rank)
    node.invalid(fmt::format("axis {} leaves no room for the second operand", axis));
  std::vector<Size> shape(b.begin(), b.end());
  shape.resize(static_cast<size_t>(rank - first), Size(1));
  return reshape(node, node.input(1), shape, "aligned");
}

}  // namespace anneal
