#include "anneal/kernels/cpu/program/program_part.h"

#include <algorithm>
#include <span>
#include <vector>

namespace anneal::cpu {
namespace {

Reg constant(ProgramBuilder& builder, const Instruction& instruction) {
  const Scalar value{instruction.immediate};
  switch (instruction.type) {
    case RegisterType::kF32:
      return builder.constant(value.as<float>());
    case RegisterType::kF64:
      return builder.constant(value.as<double>());
    case RegisterType::kI32:
      return builder.constant(instruction.type, int64_t{value.as<int32_t>()});
    case RegisterType::kU32:
      return builder.constant(instruction.type, int64_t{value.as<uint32_t>()});
    case RegisterType::kBool:
      return builder.constant(instruction.type, int64_t{value.as<uint8_t>()});
    default:
      return builder.constant(instruction.type, value.as<int64_t>());
  }
}

// How often instructions and results read a register.
int64_t readers(const Program& program, uint16_t reg) {
  int64_t count = 0;
  for (const Instruction& one : program.code()) {
    const auto operands =
        std::span(one.operands).first(static_cast<size_t>(operand_count(one.opcode)));
    count += std::ranges::count(operands, reg);
  }
  return count + std::ranges::count(program.results(), reg, &Program::Result::reg);
}

}  // namespace

Program part_of_program(const Program& program, uint16_t last, DataType dtype,
                        std::optional<ReplacedRegister> replaced) {
  ProgramBuilder builder;
  for (size_t i = 0; i < program.inputs().size(); ++i)
    builder.input(static_cast<int>(i), program.inputs()[i]);
  std::vector<Reg> made(program.code().size());
  for (size_t at = 0; at <= last; ++at) {
    if (replaced && at == replaced->reg) {
      made[at] = made[replaced->by];
      continue;
    }
    const Instruction& one = program.code()[at];
    const Reg a = made[one.operands[0]], b = made[one.operands[1]], c = made[one.operands[2]];
    const auto immediate = static_cast<int>(one.immediate);
    switch (one.opcode) {
      case Opcode::kInput:
        made[at] = builder.input(immediate, program.inputs()[one.immediate]);
        break;
      case Opcode::kConstant:
        made[at] = constant(builder, one);
        break;
      case Opcode::kIndex:
        made[at] = builder.index(immediate);
        break;
      case Opcode::kCast:
        made[at] = builder.cast(a, one.type);
        break;
      case Opcode::kRound:
        made[at] = builder.round(a, static_cast<DataType>(immediate));
        break;
      case Opcode::kSaturate:
        made[at] = builder.saturate(a, static_cast<DataType>(immediate));
        break;
      case Opcode::kSelect:
        made[at] = builder.select(a, b, c);
        break;
      default:
        made[at] = operand_count(one.opcode) == 1 ? builder.apply(one.opcode, a)
                                                  : builder.apply(one.opcode, a, b);
    }
  }
  return builder.finish(made[last], dtype);
}

std::optional<SumOffset> cut_sum_offset(const Program& program) {
  if (program.results().size() != 1) return std::nullopt;
  const auto code = program.code();
  const auto is_input = [&](uint16_t reg) {
    return code[reg].opcode == Opcode::kInput &&
           program.inputs()[code[reg].immediate] == DataType::kI32;
  };
  for (uint16_t reg = 0; reg < code.size(); ++reg) {
    const Instruction& sum = code[reg];
    if (sum.opcode != Opcode::kAdd || !is_input(sum.operands[0]) || !is_input(sum.operands[1]))
      continue;
    const bool is_first = code[sum.operands[0]].immediate == 0;
    const uint16_t sums = sum.operands[is_first ? 0 : 1], other = sum.operands[is_first ? 1 : 0];
    if (code[sums].immediate != 0 || readers(program, sums) != 1 || readers(program, other) != 1)
      continue;
    const Program::Result& result = program.results()[0];
    return SumOffset{
        part_of_program(program, result.reg, result.dtype, ReplacedRegister{reg, sums}),
        code[other].immediate};
  }
  return std::nullopt;
}

}  // namespace anneal::cpu
