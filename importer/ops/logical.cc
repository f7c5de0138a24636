// Comparisons, truth values and bits of each element: one Pointwise layer per node.
#include "anneal/importer/ops/rows.h"

#include <fmt/format.h>

#include "anneal/importer/ops/expression.h"

namespace anneal {
namespace {

// combine(a, b) is the formula; the result is bool unless `same_type`.
template <Expression (*combine)(Expression, Expression), const TypeSet& types, bool same_type>
Outputs import_combination(Node& node) {
  node.expect_inputs(2, 2);
  node.expect_same_dtype({0, 1});
  const DataType dtype = node.dtype(0, types);
  return pointwise_result(node, {node.input(0), node.input(1)}, same_type ? dtype : DataType::kBool,
                          [](Expressions in) { return combine(in[0], in[1]); });
}

template <Expression (*combine)(Expression, Expression), const TypeSet& types>
Outputs import_combination_with_axis(Node& node) {
  node.expect_inputs(2, 2);
  node.expect_same_dtype({0, 1});
  node.dtype(0, types);
  return pointwise_result(node, {node.input(0), aligned_operand(node)}, DataType::kBool,
                          [](Expressions in) { return combine(in[0], in[1]); });
}

template <Opcode opcode>
Expression combined(Expression a, Expression b) {
  return a.apply(opcode, b);
}
Expression greater(Expression a, Expression b) { return b < a; }
Expression greater_or_equal(Expression a, Expression b) { return b <= a; }

template <Expression (*combine)(Expression, Expression)>
constexpr auto import_comparison = import_combination<combine, kNumbers, false>;
template <Opcode opcode>
constexpr auto import_logic = import_combination<combined<opcode>, kBooleans, false>;
template <Opcode opcode>
constexpr auto import_bits = import_combination<combined<opcode>, kIntegers, true>;

Outputs import_not(Node& node) {
  node.expect_inputs(1, 1);
  return pointwise_result(node, {node.input(0)}, node.dtype(0, kBooleans),
                          [](Expressions in) { return !in[0]; });
}

Outputs import_bitwise_not(Node& node) {
  node.expect_inputs(1, 1);
  return pointwise_result(node, {node.input(0)}, node.dtype(0, kIntegers),
                          [](Expressions in) { return in[0].apply(Opcode::kBitNot); });
}

Outputs import_bit_shift(Node& node) {
  const std::string direction = node.text("direction", "");
  if (direction != "LEFT" && direction != "RIGHT")
    node.invalid(fmt::format("attribute \"direction\" is \"{}\"", direction));
  return direction == "LEFT"
             ? import_combination<combined<Opcode::kShiftLeft>, kUnsignedIntegers, true>(node)
             : import_combination<combined<Opcode::kShiftRight>, kUnsignedIntegers, true>(node);
}

Outputs import_is_nan(Node& node) {
  node.expect_inputs(1, 1);
  node.dtype(0, kFloats);
  return pointwise_result(node, {node.input(0)}, DataType::kBool,
                          [](Expressions in) { return in[0].apply(Opcode::kIsNan); });
}

Outputs import_is_inf(Node& node) {
  node.expect_inputs(1, 1);
  node.dtype(0, kFloats);
  const bool negative = node.flag("detect_negative", true);
  const bool positive = node.flag("detect_positive", true);
  return pointwise_result(node, {node.input(0)}, DataType::kBool, [&](Expressions in) {
    const Expression x = in[0];
    const Expression infinite = x.apply(Opcode::kIsInf);
    if (negative && positive) return infinite;
    if (negative) return infinite && x < 0;
    if (positive) return infinite && x.number(0) < x;
    return infinite && !infinite;
  });
}

Outputs import_where(Node& node) {
  node.expect_inputs(3, 3);
  node.dtype(0, kBooleans);
  node.expect_same_dtype({1, 2});
  return pointwise_result(node, {node.input(0), node.input(1), node.input(2)},
                          node.dtype(1, kNumbersAndBooleans),
                          [](Expressions in) { return select(in[0], in[1], in[2]); });
}

constexpr auto import_equal =
    import_combination<combined<Opcode::kEqual>, kNumbersAndBooleans, false>;

constexpr OpRow kLogicalRows[] = {
    {"", "And", 1, 6, import_combination_with_axis<combined<Opcode::kAnd>, kBooleans>},
    {"", "And", 7, kLatest, import_logic<Opcode::kAnd>},
    {"", "BitShift", 11, kLatest, import_bit_shift},
    {"", "BitwiseAnd", 18, kLatest, import_bits<Opcode::kBitAnd>},
    {"", "BitwiseNot", 18, kLatest, import_bitwise_not},
    {"", "BitwiseOr", 18, kLatest, import_bits<Opcode::kBitOr>},
    {"", "BitwiseXor", 18, kLatest, import_bits<Opcode::kBitXor>},
    {"", "Equal", 1, 6,
     import_combination_with_axis<combined<Opcode::kEqual>, kNumbersAndBooleans>},
    {"", "Equal", 7, kLatest, import_equal},
    {"", "Greater", 1, 6, import_combination_with_axis<greater, kNumbers>},
    {"", "Greater", 7, kLatest, import_comparison<greater>},
    {"", "GreaterOrEqual", 12, kLatest, import_comparison<greater_or_equal>},
    {"", "IsInf", 10, kLatest, import_is_inf},
    {"", "IsNaN", 9, kLatest, import_is_nan},
    {"", "Less", 1, 6, import_combination_with_axis<combined<Opcode::kLess>, kNumbers>},
    {"", "Less", 7, kLatest, import_comparison<combined<Opcode::kLess>>},
    {"", "LessOrEqual", 12, kLatest, import_comparison<combined<Opcode::kLessEqual>>},
    {"", "Not", 1, kLatest, import_not},
    {"", "Or", 1, 6, import_combination_with_axis<combined<Opcode::kOr>, kBooleans>},
    {"", "Or", 7, kLatest, import_logic<Opcode::kOr>},
    {"", "Where", 9, kLatest, import_where},
    {"", "Xor", 1, 6, import_combination_with_axis<combined<Opcode::kXor>, kBooleans>},
    {"", "Xor", 7, kLatest, import_logic<Opcode::kXor>},
};

}  // namespace

std::span<const OpRow> logical_rows() { return kLogicalRows; }

}  // namespace anneal
