#include "anneal/kernels/byte_table.h"
#include "anneal/core/dtype_kinds.h"

#include <algorithm>

namespace anneal {
namespace {

// The program's result, as it is stored.
uint8_t value_of(const Program& program, uint8_t argument) {
  const auto code = program.code();
  std::vector<Scalar> registers;
  for (const Instruction& instruction : code) {
    if (instruction.opcode == Opcode::kConstant) {
      registers.push_back(Scalar{instruction.immediate});
      continue;
    }
    if (instruction.opcode == Opcode::kInput) {
      const auto byte = static_cast<std::byte>(argument);
      registers.push_back(load_scalar(program.inputs()[0], &byte));
      continue;
    }
    std::array<Scalar, 3> operands;
    std::array<RegisterType, 3> types{};
    const auto count = static_cast<size_t>(operand_count(instruction.opcode));
    for (size_t i = 0; i < count; ++i) {
      operands[i] = registers[instruction.operands[i]];
      types[i] = code[instruction.operands[i]].type;
    }
    registers.push_back(
        evaluate(instruction, std::span(operands).first(count), std::span(types).first(count)));
  }
  const Program::Result& result = program.results()[0];
  std::byte stored{};
  store_scalar(result.dtype, registers[result.reg], &stored);
  return static_cast<uint8_t>(stored);
}

}  // namespace

Result<ByteTable> byte_table(const Program& program, const Request& request) {
  if (program.inputs().size() != 1 || program.results().size() != 1 ||
      !is_8bit(program.inputs()[0]) || !is_8bit(program.results()[0].dtype))
    return refuse("not from one tensor of 8 bits to one of 8 bits");
  if (program.uses_index()) return refuse("a program that uses an index");
  if (program.is_identity()) return refuse("a program that computes nothing");
  if (std::ranges::any_of(request.epilogues, [](const Program& each) { return !each.empty(); }))
    return refuse("an epilogue that is not part of the program");
  ByteTable table;
  if (!request.tactic.empty()) {
    if (request.tactic.size() != table.size())
      return refuse("a tactic that is none of this kernel's");
    std::ranges::transform(request.tactic, table.begin(),
                           [](std::byte byte) { return static_cast<uint8_t>(byte); });
    return table;
  }
  for (size_t i = 0; i < table.size(); ++i) table[i] = value_of(program, static_cast<uint8_t>(i));
  return table;
}

std::vector<std::byte> tactic_of(const ByteTable& table) {
  const auto bytes = std::as_bytes(std::span(table));
  return {bytes.begin(), bytes.end()};
}

}  // namespace anneal
