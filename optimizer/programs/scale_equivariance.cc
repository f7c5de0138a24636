#include "anneal/optimizer/programs/scale_equivariance.h"

#include <algorithm>

#include "anneal/optimizer/programs/rewrite_program.h"

namespace anneal {
namespace {

class EquivarianceAnalysis {
 public:
  EquivarianceAnalysis(const Program& program, std::span<const InputDegree> degrees)
      : program_(program), inputs_(degrees) {}

  std::optional<HomogeneousProgram> run() {
    const auto dtypes = program_.inputs();
    for (size_t i = 0; i < dtypes.size(); ++i) builder_.input(static_cast<int>(i), dtypes[i]);
    for (const Instruction& one : program_.code()) {
      const auto degree = visit(one);
      if (!degree) return std::nullopt;
      degrees_.push_back(*degree);
    }
    std::vector<std::pair<Reg, DataType>> results;
    for (const Program::Result& result : program_.results()) {
      if (degrees_[result.reg] != InputDegree::kOne || result.dtype != DataType::kF32)
        return std::nullopt;
      results.emplace_back(regs_[result.reg], result.dtype);
    }
    return HomogeneousProgram{builder_.finish(results), std::move(multiplied_)};
  }

 private:
  // Adds the instruction to the new program; what becomes of its value, nullopt if nothing good.
  std::optional<InputDegree> visit(const Instruction& one) {
    const auto operands =
        std::span(one.operands).first(static_cast<size_t>(operand_count(one.opcode)));
    const bool depends = std::ranges::any_of(operands, [&](uint16_t reg) { return is_one(reg); });
    if (!depends) return leaf(one);
    const auto of_two = [&](InputDegree degree) { return lifted(one, 0, degree); };
    switch (one.opcode) {
      case Opcode::kNeg:
      case Opcode::kAbs:
        return lifted(one, 0, InputDegree::kOne);
      case Opcode::kSign:
      case Opcode::kIsNan:
      case Opcode::kIsInf:
        return lifted(one, 0, InputDegree::kZero);
      case Opcode::kAdd:
      case Opcode::kSub:
      case Opcode::kMin:
      case Opcode::kMax:
        return of_two(InputDegree::kOne);
      case Opcode::kLess:
      case Opcode::kLessEqual:
      case Opcode::kEqual:
        return of_two(InputDegree::kZero);
      case Opcode::kMul:
        if (is_one(operands[0]) && is_one(operands[1])) return std::nullopt;
        return copied(one, InputDegree::kOne);
      case Opcode::kDiv:
        if (is_one(operands[1])) return std::nullopt;
        return copied(one, InputDegree::kOne);
      case Opcode::kSelect:
        if (is_one(operands[0])) return std::nullopt;
        return lifted(one, 1, InputDegree::kOne);
      default:
        return std::nullopt;
    }
  }

  bool is_one(uint16_t reg) const { return degrees_[reg] == InputDegree::kOne; }

  InputDegree leaf(const Instruction& one) {
    InputDegree degree = InputDegree::kZero;
    if (one.opcode == Opcode::kInput) degree = inputs_[one.immediate];
    if (one.opcode == Opcode::kConstant) degree = InputDegree::kConstant;
    if (one.type != RegisterType::kF32 && degree == InputDegree::kConstant)
      degree = InputDegree::kZero;
    return *copied(one, degree);
  }

  std::optional<InputDegree> copied(const Instruction& one, InputDegree degree) {
    const bool reads = one.opcode == Opcode::kInput;
    regs_.push_back(copy_instruction(builder_, one, regs_,
                                     reads ? program_.inputs()[one.immediate] : DataType::kF32));
    return degree;
  }

  // With operands that are multiplied, from the `first` on.
  std::optional<InputDegree> lifted(const Instruction& one, size_t first, InputDegree degree) {
    std::vector<Reg> regs = regs_;
    for (size_t i = first; i < static_cast<size_t>(operand_count(one.opcode)); ++i) {
      const uint16_t reg = one.operands[i];
      if (degrees_[reg] == InputDegree::kZero) return std::nullopt;
      if (degrees_[reg] == InputDegree::kConstant && !is_zero(reg)) regs[reg] = multiple(reg);
    }
    regs_.push_back(copy_instruction(builder_, one, regs));
    return degree;
  }

  bool is_zero(uint16_t reg) const {
    const Instruction& one = program_.code()[reg];
    return one.opcode == Opcode::kConstant && Scalar{one.immediate}.as<float>() == 0;
  }

  Reg multiple(uint16_t reg) {
    const auto known = std::ranges::find(multiplied_, reg);
    const auto at = static_cast<size_t>(known - multiplied_.begin());
    if (known == multiplied_.end()) multiplied_.push_back(reg);
    return builder_.input(static_cast<int>(program_.inputs().size() + at), DataType::kF32);
  }

  const Program& program_;
  std::span<const InputDegree> inputs_;
  ProgramBuilder builder_;
  std::vector<Reg> regs_;
  std::vector<InputDegree> degrees_;  // by register
  std::vector<uint16_t> multiplied_;
};

}  // namespace

std::optional<HomogeneousProgram> homogeneous(const Program& program,
                                              std::span<const InputDegree> degrees) {
  return EquivarianceAnalysis(program, degrees).run();
}

}  // namespace anneal
