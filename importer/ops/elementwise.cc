// Arithmetic on each element: one Pointwise layer per node.
#include <fmt/format.h>

#include <cctype>
#include <limits>
#include <optional>
#include <string>

#include "anneal/core/dtype_kinds.h"
#include "anneal/importer/onnx/minifloat.h"
#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/importer/onnx/tensor_proto.h"
#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/quant.h"
#include "anneal/importer/ops/rows.h"

namespace anneal {
namespace {

template <Opcode opcode, const TypeSet& types>
Outputs import_unary(Node& node) {
  node.expect_inputs(1, 1);
  return pointwise_result(node, {node.input(0)}, node.dtype(0, types),
                          [](Expressions in) { return in[0].apply(opcode); });
}

// On integers ceil, floor and round would change nothing; ONNX does not allow them there.
template <Opcode opcode>
Outputs import_float_unary(Node& node) {
  return import_unary<opcode, kFloats>(node);
}

template <Outputs (*import)(Node&)>
Outputs import_consuming(Node& node) {
  node.ignore("consumed_inputs");
  return import(node);
}

template <Opcode opcode, const TypeSet& types>
Outputs import_binary(Node& node) {
  node.expect_inputs(2, 2);
  node.expect_same_dtype({0, 1});
  return pointwise_result(node, {node.input(0), node.input(1)}, node.dtype(0, types),
                          [](Expressions in) { return in[0].apply(opcode, in[1]); });
}

// Before opset 7: the second operand has the shape of consecutive axes of the first, from `axis`.
template <Opcode opcode>
Outputs import_binary_with_axis(Node& node) {
  node.expect_inputs(2, 2);
  node.expect_same_dtype({0, 1});
  node.ignore("consumed_inputs");
  const ValueId b = aligned_operand(node);
  return pointwise_result(node, {node.input(0), b}, node.dtype(0, kNumbers),
                          [](Expressions in) { return in[0].apply(opcode, in[1]); });
}

Outputs import_reciprocal(Node& node) {
  node.expect_inputs(1, 1);
  return pointwise_result(node, {node.input(0)}, node.dtype(0, kFloats),
                          [](Expressions in) { return 1.0 / in[0]; });
}

// Powers that a product, quotient or root gives, within 2 ulp and without over- or underflow that
// the power itself does not have.
bool is_simple_power(double exponent) {
  return exponent == 2 || exponent == 3 || exponent == 4 || exponent == -1 || exponent == 0.5;
}
Expression simple_power(Expression x, double exponent) {
  if (exponent == 2) return x * x;
  if (exponent == 3) return x * x * x;
  if (exponent == 4) return (x * x) * (x * x);
  if (exponent == -1) return 1.0 / x;
  // Unlike a root, the power of -0 is 0, and that of -inf is inf.
  const Expression root = x.apply(Opcode::kSqrt).apply(Opcode::kAbs);
  const double infinity = std::numeric_limits<double>::infinity();
  return select(x == -infinity, x.number(infinity), root);
}

// The base decides the type. A power of mixed types is taken in the base's registers if that is a
// float, in f64 if only the exponent is.
Outputs power(Node& node, ValueId exponent) {
  const DataType dtype = node.dtype(0, kNumbers);
  const Tensor* constant = node.graph().constant(exponent);
  if (constant && constant->count() == 1 && constant->dims().rank() <= node.rank(0) &&
      is_float(dtype)) {
    const double value = numbers_of(*constant)[0];
    if (is_simple_power(value))
      return pointwise_result(node, {node.input(0)}, dtype,
                              [&](Expressions in) { return simple_power(in[0], value); });
  }
  return pointwise_result(node, {node.input(0), exponent}, dtype, [&](Expressions in) {
    const RegisterType base = in[0].reg.type;
    const bool fraction = !is_float(dtype) && is_float(node.graph().value(exponent).type().dtype);
    const RegisterType common = fraction ? RegisterType::kF64 : base;
    return in[0].cast(common).apply(Opcode::kPow, in[1].cast(common)).cast(base);
  });
}

Outputs import_pow(Node& node) {
  node.expect_inputs(2, 2);
  node.dtype(1, kNumbers);
  return power(node, node.input(1));
}

Outputs import_pow_with_axis(Node& node) {
  node.expect_inputs(2, 2);
  node.dtype(1, kNumbers);
  return power(node, aligned_operand(node));
}

Outputs import_mod(Node& node) {
  node.expect_inputs(2, 2);
  node.expect_same_dtype({0, 1});
  const DataType dtype = node.dtype(0, kNumbers);
  const Opcode opcode = node.flag("fmod", false) ? Opcode::kRem : Opcode::kMod;
  return pointwise_result(node, {node.input(0), node.input(1)}, dtype,
                          [&](Expressions in) { return in[0].apply(opcode, in[1]); });
}

// More terms go through several layers, so that kernels take the operands of each.
constexpr size_t kMostTerms = 32;

// Any number of operands; computed in registers from left to right, rounded once.
template <Opcode opcode, bool mean>
Outputs import_variadic(Node& node) {
  if (node.input_count() == 0) node.invalid("no inputs");
  std::vector<ValueId> inputs;
  for (int i = 0; i < node.input_count(); ++i) {
    node.expect_same_dtype({0, i});
    inputs.push_back(node.input(i));
  }
  const DataType dtype = node.dtype(0, mean || opcode == Opcode::kAdd ? kFloats : kNumbers);
  const auto fold = [](Expressions in) {
    Expression result = in[0];
    for (const Expression term : in.subspan(1)) result = result.apply(opcode, term);
    return result;
  };
  const auto all = static_cast<double>(inputs.size());
  for (int part = 0; inputs.size() > kMostTerms; ++part) {
    const auto end = inputs.begin() + static_cast<ptrdiff_t>(kMostTerms);
    const ValueId folded = pointwise(node, fmt::format("part{}", part), {inputs.begin(), end},
                                     opcode == Opcode::kAdd ? accumulator(dtype) : dtype, fold);
    inputs.erase(inputs.begin() + 1, end);
    inputs[0] = folded;
  }
  return pointwise_result(node, inputs, dtype, [&](Expressions in) {
    // A partial sum of f16 is f32, as all registers are.
    const Expression result = fold(in);
    return mean ? result / all : result;
  });
}

// A bound that is constant becomes part of the program, however the opset passes it.
Outputs clip(Node& node, std::optional<double> low, std::optional<double> high, ValueId low_value,
             ValueId high_value) {
  std::vector<ValueId> inputs = {node.input(0)};
  const auto add = [&](ValueId value) {
    if (value != ValueId::kNone) inputs.push_back(value);
    return static_cast<int>(inputs.size()) - 1;
  };
  const int low_index = add(low_value);
  const int high_index = add(high_value);
  return pointwise_result(node, inputs, node.dtype(0, kNumbers), [&](Expressions in) {
    Expression result = in[0];
    if (low) result = max(result, result.number(*low));
    if (low_value != ValueId::kNone) result = max(result, in[low_index]);
    if (high) result = min(result, result.number(*high));
    if (high_value != ValueId::kNone) result = min(result, in[high_index]);
    return result;
  });
}

Outputs import_clip_attributes(Node& node) {
  node.expect_inputs(1, 1);
  node.ignore("consumed_inputs");
  std::optional<double> low, high;
  if (node.has_attribute("min")) low = node.number("min", 0);
  if (node.has_attribute("max")) high = node.number("max", 0);
  return clip(node, low, high, ValueId::kNone, ValueId::kNone);
}

Outputs import_clip(Node& node) {
  node.expect_inputs(1, 3);
  node.expect_same_dtype({0, 1, 2});
  std::optional<double> bounds[2];
  ValueId values[2] = {ValueId::kNone, ValueId::kNone};
  for (int i = 0; i < 2; ++i) {
    const Tensor* constant = node.constant(i + 1);
    // A double does not hold every 64-bit integer.
    const bool exact = constant && size_of(constant->dtype()) <= 4;
    if (constant && constant->count() != 1) node.invalid("a bound that is not a scalar");
    if (constant && (exact || constant->dtype() == DataType::kF64)) {
      bounds[i] = node.numbers_of_input(i + 1, "a bound")[0];
    } else {
      values[i] = node.optional_input(i + 1);
    }
  }
  return clip(node, bounds[0], bounds[1], values[0], values[1]);
}

Outputs cast_to(Node& node, DataType dtype) {
  node.dtype(0, kNumbersAndBooleans);
  if (dtype == DataType::kString) node.unsupported("a cast to strings");
  const bool is_same = dtype == node.dtype(0) && node.narrow_type(0) == 0;
  if (is_same) return same_value(node.input(0));
  return pointwise_result(node, {node.input(0)}, dtype, [&](Expressions in) {
    return dtype == DataType::kBool ? in[0].cast(RegisterType::kBool) : in[0].cast_to(dtype);
  });
}

Outputs cast_to(Node& node, int32_t element_type) {
  node.ignore("round_mode");  // of casts to float8e8m0, which are refused
  const bool saturates = node.flag("saturate", true);
  if (minifloat(element_type)) return cast_to_minifloat(node, element_type, saturates);
  return cast_to(node, require_dtype(element_type));
}

Outputs import_cast(Node& node) {
  node.expect_inputs(1, 1);
  return cast_to(node, static_cast<int32_t>(node.integer("to")));
}

Outputs import_bit_cast(Node& node) {
  node.expect_inputs(1, 1);
  const DataType from = node.dtype(0, kNumbersAndBooleans);
  const DataType to = require_dtype(static_cast<int32_t>(node.integer("to")));
  if (from == to) return same_value(node.input(0));
  if (to == DataType::kBool) node.unsupported("bits as bool");
  return node.result(BitCast{to}, {node.input(0)});
}

Outputs import_cast_by_name(Node& node) {
  node.expect_inputs(1, 1);
  const std::string to = node.text("to", "");
  for (int type = 1; type <= kLastOnnxType; ++type) {
    std::string name = onnx_type_name(type);
    for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    if (name == to) return cast_to(node, require_dtype(type));
  }
  node.invalid(fmt::format("a cast to \"{}\"", to));
}

Outputs import_cast_like(Node& node) {
  node.expect_inputs(2, 2);
  if (const int32_t like = node.narrow_type(1); like != 0) return cast_to(node, like);
  node.ignore("saturate");
  node.ignore("round_mode");
  return cast_to(node, node.dtype(1));
}

constexpr OpRow kElementwiseRows[] = {
    {"", "Abs", 1, 5, import_consuming<import_unary<Opcode::kAbs, kNumbers>>},
    {"", "Abs", 6, kLatest, import_unary<Opcode::kAbs, kNumbers>},
    {"", "Acos", 7, kLatest, import_float_unary<Opcode::kAcos>},
    {"", "Acosh", 9, kLatest, import_float_unary<Opcode::kAcosh>},
    {"", "Add", 1, 6, import_binary_with_axis<Opcode::kAdd>},
    {"", "Add", 7, kLatest, import_binary<Opcode::kAdd, kNumbers>},
    {"", "Asin", 7, kLatest, import_float_unary<Opcode::kAsin>},
    {"", "Asinh", 9, kLatest, import_float_unary<Opcode::kAsinh>},
    {"", "Atan", 7, kLatest, import_float_unary<Opcode::kAtan>},
    {"", "Atanh", 9, kLatest, import_float_unary<Opcode::kAtanh>},
    {"", "BitCast", 26, kLatest, import_bit_cast},
    {"", "Cast", 1, 5, import_cast_by_name},
    {"", "Cast", 6, kLatest, import_cast},
    {"", "CastLike", 15, kLatest, import_cast_like},
    {"", "Ceil", 1, 5, import_consuming<import_float_unary<Opcode::kCeil>>},
    {"", "Ceil", 6, kLatest, import_float_unary<Opcode::kCeil>},
    {"", "Clip", 1, 10, import_clip_attributes},
    {"", "Clip", 11, kLatest, import_clip},
    {"", "Cos", 7, kLatest, import_float_unary<Opcode::kCos>},
    {"", "Cosh", 9, kLatest, import_float_unary<Opcode::kCosh>},
    {"", "Div", 1, 6, import_binary_with_axis<Opcode::kDiv>},
    {"", "Div", 7, kLatest, import_binary<Opcode::kDiv, kNumbers>},
    {"", "Erf", 9, kLatest, import_float_unary<Opcode::kErf>},
    {"", "Exp", 1, 5, import_consuming<import_float_unary<Opcode::kExp>>},
    {"", "Exp", 6, kLatest, import_float_unary<Opcode::kExp>},
    {"", "Floor", 1, 5, import_consuming<import_float_unary<Opcode::kFloor>>},
    {"", "Floor", 6, kLatest, import_float_unary<Opcode::kFloor>},
    {"", "Log", 1, 5, import_consuming<import_float_unary<Opcode::kLog>>},
    {"", "Log", 6, kLatest, import_float_unary<Opcode::kLog>},
    {"", "Max", 1, 5, import_consuming<import_variadic<Opcode::kMax, false>>},
    {"", "Max", 6, kLatest, import_variadic<Opcode::kMax, false>},
    {"", "Mean", 1, 5, import_consuming<import_variadic<Opcode::kAdd, true>>},
    {"", "Mean", 6, kLatest, import_variadic<Opcode::kAdd, true>},
    {"", "Min", 1, 5, import_consuming<import_variadic<Opcode::kMin, false>>},
    {"", "Min", 6, kLatest, import_variadic<Opcode::kMin, false>},
    {"", "Mod", 10, kLatest, import_mod},
    {"", "Mul", 1, 6, import_binary_with_axis<Opcode::kMul>},
    {"", "Mul", 7, kLatest, import_binary<Opcode::kMul, kNumbers>},
    {"", "Neg", 1, 5, import_consuming<import_unary<Opcode::kNeg, kNumbers>>},
    {"", "Neg", 6, kLatest, import_unary<Opcode::kNeg, kNumbers>},
    {"", "Pow", 1, 6, import_pow_with_axis},
    {"", "Pow", 7, kLatest, import_pow},
    {"", "Reciprocal", 1, 5, import_consuming<import_reciprocal>},
    {"", "Reciprocal", 6, kLatest, import_reciprocal},
    {"", "Round", 11, kLatest, import_float_unary<Opcode::kRoundEven>},
    {"", "Sign", 9, kLatest, import_unary<Opcode::kSign, kNumbers>},
    {"", "Sin", 7, kLatest, import_float_unary<Opcode::kSin>},
    {"", "Sinh", 9, kLatest, import_float_unary<Opcode::kSinh>},
    {"", "Sqrt", 1, 5, import_consuming<import_float_unary<Opcode::kSqrt>>},
    {"", "Sqrt", 6, kLatest, import_float_unary<Opcode::kSqrt>},
    {"", "Sub", 1, 6, import_binary_with_axis<Opcode::kSub>},
    {"", "Sub", 7, kLatest, import_binary<Opcode::kSub, kNumbers>},
    {"", "Sum", 1, 5, import_consuming<import_variadic<Opcode::kAdd, false>>},
    {"", "Sum", 6, kLatest, import_variadic<Opcode::kAdd, false>},
    {"", "Tan", 7, kLatest, import_float_unary<Opcode::kTan>},
    {"", "Tanh", 1, 5, import_consuming<import_float_unary<Opcode::kTanh>>},
    {"", "Tanh", 6, kLatest, import_float_unary<Opcode::kTanh>},
};

}  // namespace

std::span<const OpRow> elementwise_rows() { return kElementwiseRows; }

}  // namespace anneal
