#include "anneal/kernels/cpu/program/bf16_approximations.h"

#include <bit>

namespace anneal::cpu {
namespace {

// Registers that are used once, and their user.
class OnlyUses {
 public:
  explicit OnlyUses(const Program& program) : uses_(program.code().size(), kNone) {
    const auto code = program.code();
    for (size_t at = 0; at < code.size(); ++at)
      for (int i = 0; i < operand_count(code[at].opcode); ++i)
        add(code[at].operands[i], static_cast<int>(at));
    for (const auto& result : program.results()) add(result.reg, kSeveral);
  }
  // Negative: there is not one only.
  int of(int reg) const { return uses_[static_cast<size_t>(reg)]; }

 private:
  static constexpr int kNone = -1, kSeveral = -2;
  void add(uint16_t reg, int user) { uses_[reg] = uses_[reg] == kNone ? user : kSeveral; }
  std::vector<int> uses_;
};

bool is_constant(const Instruction& instruction) { return instruction.opcode == Opcode::kConstant; }

bool is_one(const Instruction& instruction) {
  return is_constant(instruction) && instruction.type == RegisterType::kF32 &&
         std::bit_cast<float>(static_cast<uint32_t>(instruction.immediate)) == 1.0f;
}

// Whether a register keeps its relative error until it is rounded to bf16: it is multiplied and
// cut.
bool ends_in_bf16(std::span<const Instruction> code, const OnlyUses& uses, int reg) {
  while (true) {
    reg = uses.of(reg);
    if (reg < 0) return false;
    const Instruction& use = code[static_cast<size_t>(reg)];
    switch (use.opcode) {
      case Opcode::kMul:
      case Opcode::kNeg:
      case Opcode::kAbs:
      case Opcode::kMin:
      case Opcode::kMax:
        break;
      case Opcode::kRound:
        return static_cast<DataType>(use.immediate) == DataType::kBF16;
      default:
        return false;
    }
  }
}

}  // namespace

std::vector<ApproximatedInstruction> find_approximations(const Program& program) {
  const auto code = program.code();
  std::vector<ApproximatedInstruction> coarse(code.size());
  const OnlyUses uses(program);
  for (size_t reg = 0; reg < code.size(); ++reg) {
    const Instruction& it = code[reg];
    if (it.type != RegisterType::kF32) continue;
    if (it.opcode == Opcode::kSigmoid && ends_in_bf16(code, uses, static_cast<int>(reg)))
      coarse[reg] = {Bf16Approximation::kSigmoid, it.operands[0]};
    if (it.opcode != Opcode::kErf && it.opcode != Opcode::kTanh) continue;
    const int user = uses.of(static_cast<int>(reg));
    if (user < 0) continue;
    const Instruction& sum = code[static_cast<size_t>(user)];
    if (sum.opcode != Opcode::kAdd) continue;
    if (!is_one(code[sum.operands[0]]) && !is_one(code[sum.operands[1]])) continue;
    if (!ends_in_bf16(code, uses, user)) continue;
    const bool is_erf = it.opcode == Opcode::kErf;
    coarse[static_cast<size_t>(user)] = {
        is_erf ? Bf16Approximation::kOnePlusErf : Bf16Approximation::kOnePlusTanh, it.operands[0]};
  }
  return coarse;
}

}  // namespace anneal::cpu
