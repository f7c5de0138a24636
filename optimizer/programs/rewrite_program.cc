#include "anneal/optimizer/programs/rewrite_program.h"

#include "anneal/core/fail.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {

Reg copy_instruction(ProgramBuilder& builder, const Instruction& instruction,
                     std::span<const Reg> regs, DataType storage) {
  const auto operand = [&](size_t i) { return regs[instruction.operands[i]]; };
  const auto dtype = static_cast<DataType>(instruction.immediate);
  switch (instruction.opcode) {
    case Opcode::kInput:
      return builder.input(static_cast<int>(instruction.immediate), storage);
    case Opcode::kConstant:
      if (instruction.type == RegisterType::kF32)
        return builder.constant(Scalar{instruction.immediate}.as<float>());
      if (instruction.type == RegisterType::kF64)
        return builder.constant(Scalar{instruction.immediate}.as<double>());
      return builder.constant(instruction.type,
                              instruction.type == RegisterType::kI32
                                  ? int64_t{Scalar{instruction.immediate}.as<int32_t>()}
                                  : Scalar{instruction.immediate}.as<int64_t>());
    case Opcode::kIndex:
      return builder.index(static_cast<int>(instruction.immediate));
    case Opcode::kCast:
      return builder.cast(operand(0), instruction.type);
    case Opcode::kRound:
      return (instruction.immediate & kByCast) != 0 ? builder.round_by_cast(operand(0), dtype)
                                                    : builder.round(operand(0), dtype);
    case Opcode::kSaturate:
      return builder.saturate(operand(0), dtype);
    case Opcode::kSelect:
      return builder.select(operand(0), operand(1), operand(2));
    default:
      return operand_count(instruction.opcode) == 1
                 ? builder.apply(instruction.opcode, operand(0))
                 : builder.apply(instruction.opcode, operand(0), operand(1));
  }
}

Program rewrite_program(const Program& program, FunctionRef<DataType(DataType)> storage,
                        Replacement replacement) {
  ProgramBuilder builder;
  const auto inputs = program.inputs();
  for (size_t i = 0; i < inputs.size(); ++i) builder.input(static_cast<int>(i), storage(inputs[i]));
  std::vector<Reg> regs;
  for (const Instruction& one : program.code()) {
    const auto replaced = replacement(builder, regs.size(), regs);
    const DataType dtype =
        one.opcode == Opcode::kInput ? storage(inputs[one.immediate]) : DataType::kF32;
    regs.push_back(replaced ? *replaced : copy_instruction(builder, one, regs, dtype));
  }
  std::vector<std::pair<Reg, DataType>> results;
  for (const Program::Result& result : program.results())
    results.emplace_back(regs[result.reg], storage(result.dtype));
  return builder.finish(results);
}

Program rewrite_program(const Program& program, Replacement replacement) {
  return rewrite_program(
      program, [](DataType dtype) { return dtype; }, replacement);
}

Program without_half_rounding(const Program& program) {
  return without_half_rounding(program, [](size_t) { return true; });
}

Program without_half_rounding(const Program& program, FunctionRef<bool(size_t reg)> may_drop) {
  const auto code = program.code();
  return rewrite_program(
      program, [&](ProgramBuilder&, size_t reg, std::span<const Reg> regs) -> std::optional<Reg> {
        const auto dtype = static_cast<DataType>(code[reg].immediate);
        if (code[reg].opcode != Opcode::kRound ||
            (dtype != DataType::kF16 && dtype != DataType::kBF16) || !may_drop(reg))
          return std::nullopt;
        const Reg from = regs[code[reg].operands[0]];
        // A cast of f64 that rounds at once keeps being one.
        return from.type == code[reg].type ? std::optional(from) : std::nullopt;
      });
}

bool rewrite_programs(Graph& graph, LayerId id, FunctionRef<Program(const Program&)> rewrite) {
  NewLayer added = copy_of(graph, id);
  bool changed = false;
  const auto apply = [&](Program& program) {
    if (program.empty()) return;
    Program other = rewrite(program);
    changed = changed || !(other == program);
    program = std::move(other);
  };
  if (auto* pointwise = std::get_if<Pointwise>(&added.op)) apply(pointwise->program);
  if (auto* attention = std::get_if<Attention>(&added.op)) apply(attention->score);
  for (Program& epilogue : added.epilogues) apply(epilogue);
  if (!changed) return false;
  graph.replace_layer(id, graph.add(std::move(added)));
  return true;
}

Program drop_unused_inputs(const Program& program, std::vector<ValueId>& inputs, size_t fixed) {
  check(inputs.size() == program.inputs().size(), "a value for each input");
  std::vector<bool> used(inputs.size());
  for (size_t i = 0; i < fixed; ++i) used[i] = true;
  for (const Instruction& one : program.code())
    if (one.opcode == Opcode::kInput) used[one.immediate] = true;
  ProgramBuilder builder;
  std::vector<Reg> stand_in(inputs.size());
  std::vector<ValueId> kept;
  for (size_t i = 0; i < inputs.size(); ++i) {
    // An input without a reader takes any register of its type.
    const DataType dtype = program.inputs()[i];
    stand_in[i] = used[i] ? builder.input(static_cast<int>(kept.size()), dtype)
                          : builder.constant(register_type(dtype), int64_t{0});
    if (used[i]) kept.push_back(inputs[i]);
  }
  const std::vector<Reg> regs = builder.inline_program(program, stand_in);
  std::vector<std::pair<Reg, DataType>> results;
  for (size_t i = 0; i < regs.size(); ++i)
    results.emplace_back(regs[i], program.results()[i].dtype);
  inputs = std::move(kept);
  return builder.finish(results);
}

}  // namespace anneal
