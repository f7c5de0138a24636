#include "anneal/kernels/cpu/program/byte_tail.h"
#include "anneal/core/dtype_kinds.h"

#include <span>
#include <vector>

namespace anneal::cpu {
namespace {

bool is_slow(Opcode opcode) {
  return (opcode >= Opcode::kExp && opcode <= Opcode::kSigmoid) || opcode == Opcode::kPow;
}

// The registers that `from` needs, those that only `stop` needs left out; has_leaf, has_slow: other
// than `stop`.
struct ReachableRegisters {
  std::vector<bool> registers;
  bool has_leaf = false, has_slow = false;
};
ReachableRegisters reach(const Program& program, uint16_t from, std::optional<uint16_t> stop) {
  const auto code = program.code();
  ReachableRegisters reached{std::vector<bool>(code.size(), false)};
  reached.registers[from] = true;
  for (size_t at = from + size_t{1}; at-- > 0;) {
    if (!reached.registers[at] || at == stop) continue;
    const Opcode opcode = code[at].opcode;
    reached.has_leaf = reached.has_leaf || opcode == Opcode::kInput || opcode == Opcode::kIndex;
    reached.has_slow = reached.has_slow || is_slow(opcode);
    for (int i = 0; i < operand_count(opcode); ++i)
      reached.registers[code[at].operands[static_cast<size_t>(i)]] = true;
  }
  return reached;
}

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

// The program whose only result is this register.
Program up_to(const Program& program, uint16_t last, DataType dtype) {
  const ReachableRegisters reached = reach(program, last, std::nullopt);
  ProgramBuilder builder;
  for (size_t i = 0; i < program.inputs().size(); ++i)
    builder.input(static_cast<int>(i), program.inputs()[i]);
  std::vector<Reg> made(program.code().size());
  for (size_t at = 0; at <= last; ++at) {
    if (!reached.registers[at]) continue;
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

// The result, as it is stored, where `argument` is in a register.
uint8_t value_of(const Program& program, const ReachableRegisters& tail, uint16_t reg,
                 Scalar argument) {
  const auto code = program.code();
  std::vector<Scalar> values(code.size());
  for (size_t at = 0; at < code.size(); ++at) {
    if (!tail.registers[at]) continue;
    const Instruction& one = code[at];
    if (at == reg || one.opcode == Opcode::kConstant) {
      values[at] = at == reg ? argument : Scalar{one.immediate};
      continue;
    }
    std::array<Scalar, 3> operands;
    std::array<RegisterType, 3> types{};
    const auto count = static_cast<size_t>(operand_count(one.opcode));
    for (size_t i = 0; i < count; ++i) {
      operands[i] = values[one.operands[i]];
      types[i] = code[one.operands[i]].type;
    }
    values[at] = evaluate(one, std::span(operands).first(count), std::span(types).first(count));
  }
  const Program::Result& result = program.results()[0];
  std::byte stored{};
  store_scalar(result.dtype, values[result.reg], &stored);
  return static_cast<uint8_t>(stored);
}

}  // namespace

std::optional<ByteTail> cut_byte_tail(const Program& program) {
  if (program.results().size() != 1 || !is_8bit(program.results()[0].dtype)) return std::nullopt;
  const uint16_t result = program.results()[0].reg;
  // The first register that will do, for the longest tail.
  for (uint16_t reg = 0; reg < result; ++reg) {
    const Instruction& one = program.code()[reg];
    if (one.opcode != Opcode::kSaturate) continue;
    const auto dtype = static_cast<DataType>(one.immediate);
    if (!is_8bit(dtype) || register_type(dtype) != one.type) continue;
    const ReachableRegisters tail = reach(program, result, reg);
    if (!tail.registers[reg] || tail.has_leaf || !tail.has_slow) continue;
    ByteTail cut{up_to(program, reg, dtype)};
    for (size_t i = 0; i < cut.table.size(); ++i) {
      const auto byte = static_cast<std::byte>(i);
      cut.table[i] = value_of(program, tail, reg, load_scalar(dtype, &byte));
    }
    return cut;
  }
  return std::nullopt;
}

}  // namespace anneal::cpu
