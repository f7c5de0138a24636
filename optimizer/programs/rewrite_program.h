// Construction of a changed copy of a program.
#pragma once
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "anneal/core/parallel.h"
#include "anneal/graph/graph.h"
#include "anneal/graph/program/program.h"

namespace anneal {

// The same instruction in another program, where regs[i] stands for register i of its own. Inputs
// keep their numbers. REQUIRES: for an input, its storage type.
Reg copy_instruction(ProgramBuilder& builder, const Instruction& instruction,
                     std::span<const Reg> regs, DataType storage = DataType::kF32);

// The replacement of register `reg`, where regs are the registers made so far; nullopt: a copy.
using Replacement =
    FunctionRef<std::optional<Reg>(ProgramBuilder& builder, size_t reg, std::span<const Reg> regs)>;
// storage: the types of inputs and results in place of the program's. Inputs stay, used or not.
Program rewrite_program(const Program& program, Replacement replacement);
Program rewrite_program(const Program& program, FunctionRef<DataType(DataType)> storage,
                        Replacement replacement);

// Without the roundings to f16 and bf16, but for those of the results.
Program without_half_rounding(const Program& program);
// Where `may_drop` says so of the register.
Program without_half_rounding(const Program& program, FunctionRef<bool(size_t reg)> may_drop);

// Puts a layer with other programs, Pointwise, score or epilogues, in the place of the layer if
// `rewrite` changes any. REQUIRES: it keeps the types of inputs and results.
bool rewrite_programs(Graph& graph, LayerId id, FunctionRef<Program(const Program&)> rewrite);

// Without the inputs that no instruction reads, in the program and the list of values beside it;
// the first `fixed` of them stay. REQUIRES: inputs.size() == program.inputs().size()
Program drop_unused_inputs(const Program& program, std::vector<ValueId>& inputs, size_t fixed);

}  // namespace anneal
