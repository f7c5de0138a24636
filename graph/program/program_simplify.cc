#include "anneal/graph/program/program_simplify.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "anneal/core/dtype_kinds.h"
#include "anneal/graph/program/program_rules.h"

namespace anneal {
namespace {

bool loses_nothing(RegisterType from, RegisterType to) {
  using enum RegisterType;
  switch (from) {
    case kBool:
      return true;
    case kF32:
      return to == kF64;
    case kI32:
      return to == kI64 || to == kF64;
    case kU32:
      return to == kI64 || to == kU64 || to == kF64;
    default:
      return false;
  }
}

// -0 is distinguished from 0.
bool is_number(RegisterType type, uint64_t bits, double number) {
  switch (type) {
    case RegisterType::kF32:
      return bits == Scalar::of(static_cast<float>(number)).bits;
    case RegisterType::kF64:
      return bits == Scalar::of(number).bits;
    case RegisterType::kBool:
      return false;
    default: {
      const Scalar value = Scalar::of(static_cast<int64_t>(number));
      const uint64_t mask = width(type) < 64 ? 0xffffffffu : ~uint64_t{0};
      return !std::signbit(number) && bits == (value.bits & mask);
    }
  }
}

// Whether an opcode returns its left operand unchanged if this is the right one.
bool is_neutral(Opcode opcode, RegisterType type, uint64_t bits) {
  switch (opcode) {
    case Opcode::kAdd:
      return is_number(type, bits, is_float(type) ? -0.0 : 0.0);
    case Opcode::kSub:
    case Opcode::kBitOr:
    case Opcode::kBitXor:
    case Opcode::kShiftLeft:
    case Opcode::kShiftRight:
      return is_number(type, bits, 0.0);
    case Opcode::kMul:
    case Opcode::kDiv:
    case Opcode::kPow:
      return is_number(type, bits, 1.0);
    case Opcode::kAnd:
      return bits == 1;
    case Opcode::kOr:
    case Opcode::kXor:
      return bits == 0;
    case Opcode::kBitAnd:
      return bits == (width(type) < 64 ? 0xffffffffu : ~uint64_t{0});
    default:
      return false;
  }
}

bool undoes_itself(Opcode opcode) {
  return opcode == Opcode::kNeg || opcode == Opcode::kNot || opcode == Opcode::kBitNot;
}

bool is_idempotent(Opcode opcode) {
  switch (opcode) {
    case Opcode::kAbs:
    case Opcode::kSign:
    case Opcode::kCeil:
    case Opcode::kFloor:
    case Opcode::kRoundEven:
    case Opcode::kTrunc:
      return true;
    default:
      return false;
  }
}

bool gives_whole_numbers(Opcode opcode) { return is_idempotent(opcode) && opcode != Opcode::kAbs; }

bool is_rounding(Opcode opcode) { return gives_whole_numbers(opcode) && opcode != Opcode::kSign; }

double as_double(const Instruction& constant) {
  const Scalar value{constant.immediate};
  return constant.type == RegisterType::kF32 ? static_cast<double>(value.as<float>())
                                             : value.as<double>();
}

struct ValueRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
};

bool is_integer_register(RegisterType type) {
  return !is_float(type) && type != RegisterType::kBool;
}

// Casting by way of `between` gives what casting at once gives. From an integer, floats saturate
// where integers wrap.
bool is_detour(RegisterType from, RegisterType between, RegisterType to) {
  if (!loses_nothing(from, between)) return false;
  return !is_integer_register(from) || !is_float(between) || !is_integer_register(to) ||
         from == to || loses_nothing(from, to);
}

class Simplifier {
 public:
  Simplifier(ProgramBuilder& builder, const std::vector<Instruction>& code)
      : builder_(builder), code_(code) {}

  std::optional<Reg> unary(const Instruction& instruction);
  std::optional<Reg> binary(const Instruction& instruction);
  std::optional<Reg> select(const Instruction& instruction);

 private:
  Reg reg(uint16_t index) const { return {index, code_[index].type}; }
  bool is_constant(uint16_t index) const { return code_[index].opcode == Opcode::kConstant; }
  ValueRange range_of(uint16_t index, int depth) const;
  std::optional<Reg> bound(Opcode opcode, Reg a, Reg b);
  std::optional<Reg> same_operands(Opcode opcode, Reg a);
  std::optional<Reg> by_constant(Opcode opcode, Reg a, Reg b);

  ProgramBuilder& builder_;
  const std::vector<Instruction>& code_;  // grows while simpler instructions are emitted
};

// The range of a float register, as far as a few instructions show it: no value but NaN is outside.
ValueRange Simplifier::range_of(uint16_t index, int depth) const {
  const Instruction& instruction = code_[index];
  const auto of = [&](size_t operand) {
    return range_of(instruction.operands[operand], depth - 1);
  };
  if (!is_float(instruction.type) || depth == 0) return {};
  switch (instruction.opcode) {
    case Opcode::kConstant: {
      const double value = as_double(instruction);
      return std::isnan(value) ? ValueRange{} : ValueRange{value, value};
    }
    case Opcode::kMax:
      return {std::max(of(0).low, of(1).low), std::max(of(0).high, of(1).high)};
    case Opcode::kMin:
      return {std::min(of(0).low, of(1).low), std::min(of(0).high, of(1).high)};
    case Opcode::kSelect:
      return {std::min(of(1).low, of(2).low), std::max(of(1).high, of(2).high)};
    case Opcode::kAbs:
    case Opcode::kSqrt:
      return {.low = 0};
    default:
      return {};
  }
}

// min and max by a constant. A NaN on the left stays one.
std::optional<Reg> Simplifier::bound(Opcode opcode, Reg a, Reg b) {
  if (is_float(a.type)) {
    const double value = as_double(code_[b.index]);
    if (std::isnan(value)) return b;
    const ValueRange range = range_of(a.index, 6);
    if (opcode == Opcode::kMax ? range.low >= value : range.high <= value) return a;
  }
  const Instruction inner = code_[a.index];
  if (inner.opcode != opcode || !is_constant(inner.operands[1])) return std::nullopt;
  return builder_.apply(opcode, reg(inner.operands[0]),
                        builder_.apply(opcode, reg(inner.operands[1]), b));
}

std::optional<Reg> Simplifier::unary(const Instruction& instruction) {
  const Reg a = reg(instruction.operands[0]);
  const Instruction inner = code_[a.index];
  if (instruction.opcode == Opcode::kCast) {
    if (a.type == instruction.type) return a;
    if (inner.opcode != Opcode::kCast) return std::nullopt;
    const Reg from = reg(inner.operands[0]);
    if (!is_detour(from.type, inner.type, instruction.type)) return std::nullopt;
    return builder_.cast(from, instruction.type);
  }
  if (inner.opcode == instruction.opcode && undoes_itself(inner.opcode))
    return reg(inner.operands[0]);
  if (inner.opcode == instruction.opcode && is_idempotent(inner.opcode)) return a;
  if (is_rounding(instruction.opcode) && gives_whole_numbers(inner.opcode)) return a;
  if (instruction.opcode == Opcode::kAbs && inner.opcode == Opcode::kNeg && is_float(a.type))
    return builder_.apply(Opcode::kAbs, reg(inner.operands[0]));
  return std::nullopt;
}

std::optional<Reg> Simplifier::same_operands(Opcode opcode, Reg a) {
  switch (opcode) {
    case Opcode::kMin:
    case Opcode::kMax:
    case Opcode::kAnd:
    case Opcode::kOr:
    case Opcode::kBitAnd:
    case Opcode::kBitOr:
      return a;
    case Opcode::kLess:
      return builder_.constant(RegisterType::kBool, int64_t{0});
    case Opcode::kEqual:
    case Opcode::kLessEqual:  // not of NaN
      if (is_float(a.type)) return std::nullopt;
      return builder_.constant(RegisterType::kBool, int64_t{1});
    case Opcode::kSub:  // not of NaN and infinities
      if (is_float(a.type)) return std::nullopt;
      return builder_.constant(a.type, int64_t{0});
    default:
      return std::nullopt;
  }
}

std::optional<Reg> Simplifier::by_constant(Opcode opcode, Reg a, Reg b) {
  const uint64_t bits = code_[b.index].immediate;
  if (is_neutral(opcode, a.type, bits)) return a;
  switch (opcode) {
    case Opcode::kMin:
    case Opcode::kMax:
      return bound(opcode, a, b);
    case Opcode::kPow:
      if (!is_number(a.type, bits, 0.0)) return std::nullopt;
      return builder_.constant(a.type, int64_t{1});
    case Opcode::kAnd:
    case Opcode::kBitAnd:
      if (bits == 0) return b;
      return std::nullopt;
    case Opcode::kOr:
      return b;
    case Opcode::kXor:
      return builder_.apply(Opcode::kNot, a);
    case Opcode::kMul:
      if (is_integer_register(a.type) && bits == 0) return b;
      if (is_float(a.type) && is_number(a.type, bits, -1.0)) return builder_.apply(Opcode::kNeg, a);
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

std::optional<Reg> Simplifier::binary(const Instruction& instruction) {
  const Opcode opcode = instruction.opcode;
  Reg a = reg(instruction.operands[0]), b = reg(instruction.operands[1]);
  if (is_commutative(opcode) && is_constant(a.index)) std::swap(a, b);
  if (is_constant(b.index)) return by_constant(opcode, a, b);
  return a.index == b.index ? same_operands(opcode, a) : std::nullopt;
}

std::optional<Reg> Simplifier::select(const Instruction& instruction) {
  const Instruction condition = code_[instruction.operands[0]];
  const Reg yes = reg(instruction.operands[1]), no = reg(instruction.operands[2]);
  if (yes.index == no.index) return yes;
  if (condition.opcode == Opcode::kConstant) return condition.immediate != 0 ? yes : no;
  if (condition.opcode == Opcode::kNot) return builder_.select(reg(condition.operands[0]), no, yes);
  if (yes.type != RegisterType::kBool || !is_constant(yes.index) || !is_constant(no.index))
    return std::nullopt;
  const Reg test = reg(instruction.operands[0]);
  return code_[yes.index].immediate != 0 ? test : builder_.apply(Opcode::kNot, test);
}

}  // namespace

std::optional<Reg> simplify(ProgramBuilder& builder, const std::vector<Instruction>& code,
                            const Instruction& instruction) {
  Simplifier simplifier(builder, code);
  switch (operand_count(instruction.opcode)) {
    case 1:
      return simplifier.unary(instruction);
    case 2:
      return simplifier.binary(instruction);
    default:
      return simplifier.select(instruction);
  }
}

}  // namespace anneal
