#include "anneal/optimizer/programs/overflow_analysis.h"

#include <cmath>

namespace anneal {
namespace {

Growth of_constant(const Instruction& one, float most) {
  const Scalar bits{one.immediate};
  double value = 0;
  if (one.type == RegisterType::kF32) value = bits.as<float>();
  if (one.type == RegisterType::kF64) value = bits.as<double>();
  if (!std::isfinite(value)) return {};  // 16 bits hold it
  return {value > double{most}, value < -double{most}};
}

// An exponent between -2 and 2: no worse than a product.
bool is_mild_exponent(const Instruction& one) {
  return one.opcode == Opcode::kConstant && one.type == RegisterType::kF32 &&
         std::abs(Scalar{one.immediate}.as<float>()) <= 2;
}

Growth both(bool any) { return {any, any}; }

}  // namespace

std::vector<Growth> growth_of(const Program& program, std::span<const Growth> inputs, float most) {
  const bool functions_grow = most < 0x1p127F;  // others leave f32 as well
  const auto code = program.code();
  std::vector<Growth> of(code.size());
  for (size_t reg = 0; reg < code.size(); ++reg) {
    const Instruction& one = code[reg];
    const auto operand = [&](size_t i) { return of[one.operands[i]]; };
    const Growth a = operand_count(one.opcode) > 0 ? operand(0) : Growth{};
    const Growth b = operand_count(one.opcode) > 1 ? operand(1) : Growth{};
    switch (one.opcode) {
      case Opcode::kInput:
        of[reg] = inputs[one.immediate];
        break;
      case Opcode::kConstant:
        of[reg] = of_constant(one, most);
        break;
      case Opcode::kCast:
      case Opcode::kRound:
      case Opcode::kSaturate:
      case Opcode::kCeil:
      case Opcode::kFloor:
      case Opcode::kRoundEven:
      case Opcode::kTrunc:
        of[reg] = a;
        break;
      case Opcode::kNeg:
        of[reg] = {a.down, a.up};
        break;
      case Opcode::kAbs:
        of[reg] = {a.any(), false};
        break;
      case Opcode::kExp:
      case Opcode::kExpm1:
        of[reg] = {functions_grow, false};
        break;
      case Opcode::kSinh:
      case Opcode::kCosh:
        of[reg] = both(functions_grow);
        break;
      case Opcode::kPow:
        of[reg] = both(a.any() || (functions_grow && !is_mild_exponent(code[one.operands[1]])));
        break;
      case Opcode::kAdd:
        of[reg] = {a.up || b.up, a.down || b.down};
        break;
      case Opcode::kSub:
        of[reg] = {a.up || b.down, a.down || b.up};
        break;
      case Opcode::kMul:
        of[reg] = both(a.any() || b.any());
        break;
      case Opcode::kDiv:
        of[reg] = both(a.any());
        break;
      case Opcode::kMod:
      case Opcode::kRem:
        of[reg] = both(b.any());
        break;
      case Opcode::kMin:
        of[reg] = {a.up && b.up, a.down || b.down};
        break;
      case Opcode::kMax:
        of[reg] = {a.up || b.up, a.down && b.down};
        break;
      case Opcode::kSelect:
        of[reg] = {b.up || operand(2).up, b.down || operand(2).down};
        break;
      default:
        break;
    }
  }
  std::vector<Growth> results;
  for (const Program::Result& result : program.results()) results.push_back(of[result.reg]);
  return results;
}

}  // namespace anneal
