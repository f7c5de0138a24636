#include "anneal/kernels/cuda/text/program_text.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"

namespace anneal::cuda {
namespace {

std::string_view name_of(DataType storage) {
  if (storage == DataType::kBool) return "u8";
  if (storage == DataType::kF16) return "h16";
  return to_string(storage);
}

template <class T>
std::string float_literal(T value, const char* type, const char* suffix) {
  if (std::isnan(value)) return fmt::format("op::nan_{}()", type);
  if (std::isinf(value)) return fmt::format("{}op::inf_{}()", value < 0 ? "-" : "", type);
  if (value == std::trunc(value) && std::abs(value) < T{1e6} && !std::signbit(value))
    return fmt::format("{:.1f}{}", value, suffix);
  return fmt::format("({:a}{})", value, suffix);
}

// The text of an opcode with one or two operands.
std::string call(Opcode opcode, std::span<const std::string> args) {
  switch (opcode) {
    case Opcode::kNot:
      return fmt::format("!{}", args[0]);
    case Opcode::kBitNot:
      return fmt::format("~{}", args[0]);
    case Opcode::kAnd:
      return fmt::format("{} && {}", args[0], args[1]);
    case Opcode::kOr:
      return fmt::format("{} || {}", args[0], args[1]);
    case Opcode::kXor:
      return fmt::format("{} != {}", args[0], args[1]);
    case Opcode::kBitAnd:
      return fmt::format("{} & {}", args[0], args[1]);
    case Opcode::kBitOr:
      return fmt::format("{} | {}", args[0], args[1]);
    case Opcode::kBitXor:
      return fmt::format("{} ^ {}", args[0], args[1]);
    case Opcode::kEqual:
      return fmt::format("{} == {}", args[0], args[1]);
    case Opcode::kLess:
      return fmt::format("{} < {}", args[0], args[1]);
    case Opcode::kLessEqual:
      return fmt::format("{} <= {}", args[0], args[1]);
    default:
      return args.size() == 1 ? fmt::format("op::{}({})", to_string(opcode), args[0])
                              : fmt::format("op::{}({}, {})", to_string(opcode), args[0], args[1]);
  }
}

// A register rounded to f16 or bf16, as storage.
std::string half(DataType dtype, RegisterType from, const std::string& value) {
  if (dtype == DataType::kBF16 && from == RegisterType::kF64)
    return fmt::format("op::to_bf16_once({})", value);
  return fmt::format("to_{}({})", name_of(dtype), value);
}

std::string narrowed(DataType dtype, RegisterType from, const std::string& value) {
  if (is_half(dtype)) return fmt::format("op::widen({})", half(dtype, from, value));
  return fmt::format("{}({}({}))", type_text(register_type(dtype)), to_string(dtype), value);
}

// What a result is stored from: a value that was rounded for this store is not converted to f32 and
// back.
uint16_t stored_register(const Program& program, const Program::Result& result) {
  const Instruction& last = program.code()[result.reg];
  const bool just_rounded = last.opcode == Opcode::kRound && is_half(result.dtype) &&
                            static_cast<DataType>(last.immediate) == result.dtype;
  return just_rounded ? last.operands[0] : result.reg;
}

// The registers that are needed, given that those of `needed` are.
std::vector<bool> needed_registers(const Program& program, std::vector<bool> needed) {
  const auto code = program.code();
  for (size_t i = code.size(); i-- > 0;)
    for (int k = 0; needed[i] && k < operand_count(code[i].opcode); ++k)
      needed[code[i].operands[static_cast<size_t>(k)]] = true;
  return needed;
}

}  // namespace

std::string type_text(DataType storage) { return std::string(name_of(storage)); }

std::string type_text(RegisterType type) { return std::string(to_string(type)); }

std::string literal(RegisterType type, uint64_t bits) {
  const Scalar value{bits};
  switch (type) {
    case RegisterType::kF32:
      return float_literal(value.as<float>(), "f32", "f");
    case RegisterType::kF64:
      return float_literal(value.as<double>(), "f64", "");
    case RegisterType::kI32:
      if (value.as<int32_t>() == std::numeric_limits<int32_t>::min()) return "op::least<i32>()";
      return fmt::format("i32({})", value.as<int32_t>());
    case RegisterType::kI64:
      if (value.as<int64_t>() == std::numeric_limits<int64_t>::min()) return "op::least<i64>()";
      return fmt::format("i64({})", value.as<int64_t>());
    case RegisterType::kU32:
      return fmt::format("{}u", value.as<uint32_t>());
    case RegisterType::kU64:
      return fmt::format("u64({}u)", value.as<uint64_t>());
    case RegisterType::kBool:
      return (bits & 0xff) != 0 ? "true" : "false";
  }
  check(false, "a register type is one of the list");
  return {};
}

std::string loaded(DataType storage, const std::string& element) {
  return storage == DataType::kBool ? fmt::format("op::truth({})", element)
                                    : fmt::format("op::widen({})", element);
}

std::string stored(DataType storage, const std::string& value) {
  return is_half(storage) ? fmt::format("to_{}({})", name_of(storage), value)
                          : fmt::format("{}({})", name_of(storage), value);
}

namespace {

ProgramText text_of(const Program& program, const std::function<std::string(int)>& input,
                    const std::function<std::string(int)>& index, const std::string& prefix,
                    const std::vector<bool>& needed) {
  const auto code = program.code();
  ProgramText text;
  std::vector<std::string> registers;  // an expression each
  for (const Instruction& instruction : code) {
    std::string args[3];
    const auto count = static_cast<size_t>(operand_count(instruction.opcode));
    for (size_t k = 0; k < count; ++k) args[k] = registers[instruction.operands[k]];
    const RegisterType from = count > 0 ? code[instruction.operands[0]].type : RegisterType::kF32;
    const auto dtype = static_cast<DataType>(instruction.immediate);
    const std::string type = type_text(instruction.type);
    std::string value;
    switch (instruction.opcode) {
      case Opcode::kConstant:
        registers.push_back(literal(instruction.type, instruction.immediate));
        continue;
      case Opcode::kInput:
        value = input(static_cast<int>(instruction.immediate));
        break;
      case Opcode::kIndex:
        value = index(static_cast<int>(instruction.immediate));
        break;
      case Opcode::kCast:
        value = instruction.type == RegisterType::kBool
                    ? fmt::format("op::truth({})", args[0])
                    : fmt::format("op::cast<{}>({})", type, args[0]);
        break;
      case Opcode::kRound:
        value = narrowed(dtype, from, args[0]);
        break;
      case Opcode::kSaturate:
        value = fmt::format("op::saturate<{}>({})", to_string(dtype), args[0]);
        break;
      case Opcode::kSelect:
        value = fmt::format("{} ? {} : {}", args[0], args[1], args[2]);
        break;
      default:
        value = call(instruction.opcode, std::span(args).first(count));
    }
    registers.push_back(fmt::format("{}{}", prefix, registers.size()));
    if (needed[registers.size() - 1])
      text.statements += fmt::format("const {} {} = {};\n", type, registers.back(), value);
  }
  for (const Program::Result& result : program.results()) {
    const uint16_t from = stored_register(program, result);
    text.registers.push_back(registers[result.reg]);
    text.results.push_back(from == result.reg
                               ? stored(result.dtype, registers[from])
                               : half(result.dtype, code[from].type, registers[from]));
  }
  return text;
}

}  // namespace

ProgramText text_of(const Program& program, const std::function<std::string(int)>& input,
                    const std::function<std::string(int)>& index, const std::string& prefix) {
  return text_of(program, input, index, prefix, std::vector<bool>(program.code().size(), true));
}

ProgramText stores_of(const Program& program, const std::function<std::string(int)>& input,
                      const std::function<std::string(int)>& index) {
  std::vector<bool> needed(program.code().size());
  for (const Program::Result& result : program.results())
    needed[stored_register(program, result)] = true;
  ProgramText text = text_of(program, input, index, "r", needed_registers(program, needed));
  text.registers.clear();
  return text;
}

}  // namespace anneal::cuda
