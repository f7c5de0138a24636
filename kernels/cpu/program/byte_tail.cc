#include "anneal/kernels/cpu/program/byte_tail.h"

#include <span>
#include <vector>

#include "anneal/core/dtype_kinds.h"
#include "anneal/kernels/cpu/program/program_part.h"

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
    ByteTail cut{part_of_program(program, reg, dtype)};
    for (size_t i = 0; i < cut.table.size(); ++i) {
      const auto byte = static_cast<std::byte>(i);
      cut.table[i] = value_of(program, tail, reg, load_scalar(dtype, &byte));
    }
    return cut;
  }
  return std::nullopt;
}

}  // namespace anneal::cpu
