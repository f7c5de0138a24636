// Programs written as formulas: pointwise(node, "gelu", {x}, dtype, [](auto in) { return in[0] *
// sigmoid(in[0]); }).
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "anneal/core/parallel.h"
#include "anneal/graph/program/program.h"
#include "anneal/importer/node/node.h"

namespace anneal {

// A register with its builder. Both operands of an operator have one register type; a number beside
// a Expression takes the Expression's.
struct Expression {
  ProgramBuilder* builder = nullptr;
  Reg reg;

  Expression apply(Opcode opcode) const { return {builder, builder->apply(opcode, reg)}; }
  Expression apply(Opcode opcode, Expression b) const {
    return {builder, builder->apply(opcode, reg, b.reg)};
  }
  Expression number(double value) const { return {builder, builder->constant(reg.type, value)}; }
  Expression cast(RegisterType type) const { return {builder, builder->cast(reg, type)}; }
  // As a Cast of the model rounds: to f16 and bf16 for good.
  Expression cast_to(DataType dtype) const { return {builder, builder->round_by_cast(reg, dtype)}; }
  // Clamped to the range of an integer type, not rounded.
  Expression saturate(DataType dtype) const { return {builder, builder->saturate(reg, dtype)}; }
  Expression index(int axis) const { return {builder, builder->index(axis)}; }
};

inline Expression operator+(Expression a, Expression b) { return a.apply(Opcode::kAdd, b); }
inline Expression operator-(Expression a, Expression b) { return a.apply(Opcode::kSub, b); }
inline Expression operator*(Expression a, Expression b) { return a.apply(Opcode::kMul, b); }
inline Expression operator/(Expression a, Expression b) { return a.apply(Opcode::kDiv, b); }
inline Expression operator+(Expression a, double b) { return a + a.number(b); }
inline Expression operator-(Expression a, double b) { return a - a.number(b); }
inline Expression operator*(Expression a, double b) { return a * a.number(b); }
inline Expression operator/(Expression a, double b) { return a / a.number(b); }
inline Expression operator-(double a, Expression b) { return b.number(a) - b; }
inline Expression operator/(double a, Expression b) { return b.number(a) / b; }
inline Expression operator-(Expression a) { return a.apply(Opcode::kNeg); }
inline Expression operator<(Expression a, Expression b) { return a.apply(Opcode::kLess, b); }
inline Expression operator<=(Expression a, Expression b) { return a.apply(Opcode::kLessEqual, b); }
inline Expression operator==(Expression a, Expression b) { return a.apply(Opcode::kEqual, b); }
inline Expression operator<(Expression a, double b) { return a < a.number(b); }
inline Expression operator<=(Expression a, double b) { return a <= a.number(b); }
inline Expression operator==(Expression a, double b) { return a == a.number(b); }
inline Expression operator&&(Expression a, Expression b) { return a.apply(Opcode::kAnd, b); }
inline Expression operator!(Expression a) { return a.apply(Opcode::kNot); }
inline Expression min(Expression a, Expression b) { return a.apply(Opcode::kMin, b); }
inline Expression max(Expression a, Expression b) { return a.apply(Opcode::kMax, b); }
inline Expression select(Expression condition, Expression if_true, Expression if_false) {
  return {if_true.builder, if_true.builder->select(condition.reg, if_true.reg, if_false.reg)};
}

// log(1 + exp(x)) without overflow.
Expression softplus(Expression x);
Expression erf_gelu(Expression x);  // x / 2 * (1 + erf(x / sqrt(2)))
// The approximation of GELU by tanh: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
Expression tanh_gelu(Expression x);

using Expressions = std::span<const Expression>;  // one per input of the layer, never empty
using Formula = FunctionRef<Expression(Expressions)>;

// The program of a formula over inputs of these types, its result rounded once, to dtype.
Program program_of(std::span<const DataType> inputs, DataType dtype, Formula formula);
// A Pointwise layer in between, and the one that gives the node's output.
ValueId pointwise(Node& node, std::string_view suffix, const std::vector<ValueId>& inputs,
                  DataType dtype, Formula formula);
Outputs pointwise_result(Node& node, const std::vector<ValueId>& inputs, DataType dtype,
                         Formula formula, std::string_view suffix = {}, int output = 0);

// The layer that gives the node's output, with the formula as its epilogue: one rounding, to dtype,
// for the whole node. The formula's first input is the op's accumulator, of results of type dtype.
// With a suffix, a layer in between.
Outputs epilogue_result(Node& node, Op op, const std::vector<ValueId>& inputs,
                        const std::vector<ValueId>& further_inputs, DataType dtype, Formula formula,
                        std::string_view suffix = {});

// A Cast to i64 unless it is that; the integers that decide shapes are i64.
ValueId as_i64(Node& node, ValueId value, std::string_view suffix);
// Another shape of the same elements; of a constant, a constant.
ValueId reshape(Node& node, ValueId value, const std::vector<Size>& shape, std::string_view suffix);
// The same as the node's output 0.
Outputs reshape_result(Node& node, ValueId value, const std::vector<Size>& shape,
                       std::string_view suffix = {});
ValueId expanded(Node& node, ValueId value, const std::vector<Size>& shape,
                 std::string_view suffix);
// The same numbers in that type.
ValueId as_type(Node& node, ValueId value, DataType dtype, std::string_view suffix);
ValueId scalar_value(Node& node, int64_t number, std::string_view suffix);  // i64
// Elements [begin, end) of an axis.
ValueId slice_of(Node& node, ValueId value, int64_t axis, Size begin, Size end,
                 std::string_view suffix);
// A vector of n elements as [n,1,1...]: it broadcasts along axis 1 of a tensor of that rank.
ValueId per_channel(Node& node, ValueId vector, int rank, std::string_view suffix);
// Input 1 of a binary operator before opset 7, shaped to broadcast as numpy does: its axes are
// consecutive axes of input 0, from attribute `axis`, or the last ones. Reads axis and broadcast.
ValueId aligned_operand(Node& node);
// x itself, known by its ONNX name: no layer.
inline Outputs same_value(ValueId x) { return {x}; }

}  // namespace anneal
