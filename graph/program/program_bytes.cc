#include <algorithm>

#include "anneal/core/bytes.h"
#include "anneal/graph/program/program.h"
#include "anneal/graph/program/program_rules.h"

namespace anneal {
namespace {

constexpr size_t kInstructionBytes = 16;

DataType load_dtype(ByteReader& from) {
  const auto value = from.number<uint8_t>();
  const auto dtype = valid_dtype(value);
  if (!dtype) from.refuse("a program with the type " + std::to_string(value));
  return *dtype;
}

size_t load_count(ByteReader& from, size_t element_size, std::string_view what) {
  const size_t count = from.count(element_size);
  if (count > kMaxInstructions)
    from.refuse("a program of " + std::to_string(count) + " " + std::string(what));
  return count;
}

Instruction load_instruction(ByteReader& from, std::span<const Instruction> before,
                             std::span<const DataType> inputs) {
  const auto opcode = from.number<uint8_t>();
  if (opcode >= kOpcodeCount) from.refuse("the opcode " + std::to_string(opcode));
  const auto type = from.number<uint8_t>();
  if (type >= kRegisterTypeCount) from.refuse("the register type " + std::to_string(type));
  Instruction instruction{static_cast<Opcode>(opcode), static_cast<RegisterType>(type), {}, 0};
  for (uint16_t& operand : instruction.operands) operand = from.number<uint16_t>();
  instruction.immediate = from.number<uint64_t>();

  std::array<RegisterType, 3> types{};
  const auto count = static_cast<size_t>(operand_count(instruction.opcode));
  for (size_t i = 0; i < instruction.operands.size(); ++i) {
    if (i >= count) {
      if (instruction.operands[i] != 0) from.refuse("an operand where none is taken");
      continue;
    }
    if (instruction.operands[i] >= before.size()) from.refuse("an operand used before it is made");
    types[i] = before[instruction.operands[i]].type;
  }
  const std::string wrong = fault(instruction, std::span(types).first(count));
  if (!wrong.empty()) from.refuse(wrong);
  if (instruction.opcode == Opcode::kInput &&
      (instruction.immediate >= inputs.size() ||
       register_type(inputs[instruction.immediate]) != instruction.type))
    from.refuse("an input that the program does not have");
  return instruction;
}

}  // namespace

void save(ByteWriter& to, const Program& program) {
  to.number(static_cast<uint32_t>(program.inputs().size()));
  for (const DataType dtype : program.inputs()) to.number(static_cast<uint8_t>(dtype));
  to.number(static_cast<uint32_t>(program.code().size()));
  for (const Instruction& instruction : program.code()) {
    to.number(static_cast<uint8_t>(instruction.opcode));
    to.number(static_cast<uint8_t>(instruction.type));
    for (const uint16_t operand : instruction.operands) to.number(operand);
    to.number(instruction.immediate);
  }
  to.number(static_cast<uint32_t>(program.results().size()));
  for (const Program::Result& result : program.results()) {
    to.number(result.reg);
    to.number(static_cast<uint8_t>(result.dtype));
  }
}

Program load_program(ByteReader& from) {
  ProgramBuilder builder;
  std::vector<DataType> inputs(load_count(from, 1, "inputs"));
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = load_dtype(from);
    builder.declare(i, inputs[i]);
  }
  std::vector<Instruction> code;
  std::vector<Reg> regs;  // of the builder, for each instruction
  const size_t count = load_count(from, kInstructionBytes, "instructions");
  for (size_t at = 0; at < count; ++at) {
    Instruction instruction = load_instruction(from, code, inputs);
    code.push_back(instruction);
    for (int i = 0; i < operand_count(instruction.opcode); ++i)
      instruction.operands[i] = regs[instruction.operands[i]].index;
    regs.push_back(builder.emit(instruction));
  }
  std::vector<std::pair<Reg, DataType>> results(load_count(from, 3, "results"));
  for (auto& [reg, dtype] : results) {
    const auto index = from.number<uint16_t>();
    if (index >= regs.size()) from.refuse("a result that no instruction makes");
    reg = regs[index];
    dtype = load_dtype(from);
    // finish() rounds nothing then, and so adds no instruction.
    if (reg.type != register_type(dtype) || !builder.fits(reg, dtype))
      from.refuse("a result that is not rounded to its type");
  }
  return builder.finish(results);
}

uint64_t hash(const Program& program) {
  ByteWriter bytes;
  save(bytes, program);
  return hash_bytes(bytes.take());
}

}  // namespace anneal
