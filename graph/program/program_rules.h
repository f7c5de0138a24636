// The type rule of every opcode in one table: the register types that it takes, and the type of its
// result. The builder, the parser and the loader of programs use it.
#pragma once
#include <optional>
#include <span>
#include <string>

#include "anneal/core/dtype_kinds.h"
#include "anneal/graph/program/program.h"

namespace anneal {

inline constexpr size_t kOpcodeCount = static_cast<size_t>(Opcode::kSelect) + 1;
inline constexpr size_t kRegisterTypeCount = static_cast<size_t>(RegisterType::kBool) + 1;
inline constexpr size_t kMaxInstructions = 4096;

bool is_commutative(Opcode opcode);
bool is_float(RegisterType type);
DataType storage_type(RegisterType type);             // that holds its values
int width(RegisterType type);                         // bits of a value; 1 for bool
std::optional<DataType> valid_dtype(uint64_t value);  // nullopt: no DataType, or kString

// The type that an opcode gives. REQUIRES: one or more operands, and not kCast, kRound or
// kSaturate, which name theirs.
RegisterType result_type(Opcode opcode, std::span<const RegisterType> operands);

// The fault in the types or the immediate of an instruction; empty if there is none. The caller
// checks that its inputs exist.
std::string fault(const Instruction& instruction, std::span<const RegisterType> operands);

}  // namespace anneal
