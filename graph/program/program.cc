// ProgramBuilder: every instruction goes through emit(), which folds, orders and shares; finish()
// drops what is dead and renumbers.
#include "anneal/graph/program/program.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "anneal/core/bytes.h"
#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/graph/program/program_rules.h"
#include "anneal/graph/program/program_simplify.h"

namespace anneal {
namespace {

constexpr uint16_t dtype_bit(DataType dtype) {
  return static_cast<uint16_t>(1u << static_cast<unsigned>(dtype));
}

// Storage types of this register type that hold every value of `dtype`, which has it too.
uint16_t types_that_hold(DataType dtype) {
  switch (dtype) {
    case DataType::kF16:
    case DataType::kBF16:
      return dtype_bit(dtype) | dtype_bit(DataType::kF32);
    case DataType::kI8:
      return dtype_bit(DataType::kI8) | dtype_bit(DataType::kI16) | dtype_bit(DataType::kI32);
    case DataType::kI16:
      return dtype_bit(DataType::kI16) | dtype_bit(DataType::kI32);
    case DataType::kU8:
      return dtype_bit(DataType::kU8) | dtype_bit(DataType::kU16) | dtype_bit(DataType::kU32);
    case DataType::kU16:
      return dtype_bit(DataType::kU16) | dtype_bit(DataType::kU32);
    default:
      return dtype_bit(dtype);
  }
}

uint16_t types_of(RegisterType type) {
  uint16_t types = 0;
  for (const DataType dtype : all_dtypes())
    if (dtype != DataType::kString && register_type(dtype) == type) types |= dtype_bit(dtype);
  return types;
}

// The one storage type of a register type that holds all its values.
DataType widest(RegisterType type) {
  static constexpr DataType kWidest[] = {DataType::kF32, DataType::kF64, DataType::kI32,
                                         DataType::kI64, DataType::kU32, DataType::kU64,
                                         DataType::kBool};
  return kWidest[static_cast<size_t>(type)];
}

bool is_nan(RegisterType type, Scalar value) {
  if (type == RegisterType::kF32) return std::isnan(value.as<float>());
  return type == RegisterType::kF64 && std::isnan(value.as<double>());
}

uint16_t types_that_hold(RegisterType type, Scalar value) {
  uint16_t types = 0;
  for (const DataType dtype : all_dtypes()) {
    if (dtype == DataType::kString || register_type(dtype) != type) continue;
    std::byte stored[8] = {};
    store_scalar(dtype, value, stored);
    if (is_nan(type, value) || load_scalar(dtype, stored) == value) types |= dtype_bit(dtype);
  }
  return types;
}

uint64_t one_nan(RegisterType type, uint64_t bits) {
  if (!is_nan(type, {bits})) return bits;
  return type == RegisterType::kF32 ? Scalar::of(std::numeric_limits<float>::quiet_NaN()).bits
                                    : Scalar::of(std::numeric_limits<double>::quiet_NaN()).bits;
}

Instruction constant_instruction(RegisterType type, Scalar value) {
  return {Opcode::kConstant, type, {}, value.bits};
}

template <class T>
Scalar converted(RegisterType from, T value, RegisterType to) {
  const Scalar scalar = Scalar::of(value);
  if (from == to) return scalar;
  return evaluate({Opcode::kCast, to, {}, 0}, {&scalar, 1}, {&from, 1});
}

}  // namespace

bool Program::is_identity() const {
  return inputs_.size() == 1 && results_.size() == 1 && code_.size() == 1 &&
         code_[0].opcode == Opcode::kInput && results_[0].dtype == inputs_[0];
}

bool Program::uses_index() const {
  return std::any_of(code_.begin(), code_.end(),
                     [](const Instruction& i) { return i.opcode == Opcode::kIndex; });
}

size_t ProgramBuilder::Hash::operator()(const Instruction& instruction) const {
  uint64_t words[2] = {instruction.immediate, 0};
  std::memcpy(&words[1], instruction.operands.data(), sizeof(instruction.operands));
  words[1] |= uint64_t{static_cast<uint8_t>(instruction.opcode)} << 48 |
              uint64_t{static_cast<uint8_t>(instruction.type)} << 56;
  return hash_bytes(std::as_bytes(std::span(words)));
}

void ProgramBuilder::declare(size_t index, DataType dtype) {
  if (index >= kMaxInstructions)
    fail(ErrorCode::kUnsupported, "a program of more than 4096 inputs");
  if (inputs_.size() <= index) inputs_.resize(index + 1);
  check(!inputs_[index] || *inputs_[index] == dtype, "an input has one type");
  inputs_[index] = dtype;
}

Reg ProgramBuilder::input(int index, DataType dtype) {
  check(index >= 0, "inputs are counted from 0");
  declare(static_cast<size_t>(index), dtype);
  return emit({Opcode::kInput, register_type(dtype), {}, static_cast<uint64_t>(index)});
}

Reg ProgramBuilder::constant(float value) {
  return emit(constant_instruction(RegisterType::kF32, Scalar::of(value)));
}

Reg ProgramBuilder::constant(double value) {
  return emit(constant_instruction(RegisterType::kF64, Scalar::of(value)));
}

Reg ProgramBuilder::constant(RegisterType type, double value) {
  return emit(constant_instruction(type, converted(RegisterType::kF64, value, type)));
}

Reg ProgramBuilder::constant(RegisterType type, int64_t value) {
  return emit(constant_instruction(type, converted(RegisterType::kI64, value, type)));
}

Reg ProgramBuilder::index(int axis) {
  return emit({Opcode::kIndex, RegisterType::kI64, {}, static_cast<uint64_t>(axis)});
}

Reg ProgramBuilder::apply(Opcode opcode, Reg a) {
  check(operand_count(opcode) == 1, "an opcode of one operand");
  return emit({opcode, result_type(opcode, {{a.type}}), {a.index}, 0});
}

Reg ProgramBuilder::apply(Opcode opcode, Reg a, Reg b) {
  check(operand_count(opcode) == 2, "an opcode of two operands");
  return emit({opcode, result_type(opcode, {{a.type, b.type}}), {a.index, b.index}, 0});
}

Reg ProgramBuilder::select(Reg condition, Reg if_true, Reg if_false) {
  return emit({Opcode::kSelect, if_true.type, {condition.index, if_true.index, if_false.index}, 0});
}

Reg ProgramBuilder::cast(Reg a, RegisterType type) {
  return emit({Opcode::kCast, type, {a.index}, 0});
}

Reg ProgramBuilder::round(Reg a, DataType dtype) {
  const RegisterType type = register_type(dtype);
  const bool once =
      type == RegisterType::kF32 && a.type == RegisterType::kF64;  // not by way of f32
  if (dtype == widest(type)) return cast(a, type);
  return emit(
      {Opcode::kRound, type, {(once ? a : cast(a, type)).index}, static_cast<uint64_t>(dtype)});
}

Reg ProgramBuilder::round_by_cast(Reg a, DataType dtype) {
  if (!is_half(dtype)) return round(a, dtype);
  const Reg from = a.type == RegisterType::kF64 ? a : cast(a, RegisterType::kF32);
  return emit(
      {Opcode::kRound, RegisterType::kF32, {from.index}, static_cast<uint64_t>(dtype) | kByCast});
}

Reg ProgramBuilder::saturate(Reg a, DataType dtype) {
  return emit({Opcode::kSaturate, register_type(dtype), {a.index}, static_cast<uint64_t>(dtype)});
}

std::vector<Reg> ProgramBuilder::inline_program(const Program& program,
                                                std::span<const Reg> inputs) {
  check(inputs.size() == program.inputs().size(), "one register for each input");
  std::vector<Reg> regs;
  regs.reserve(program.code().size());
  for (const Instruction& instruction : program.code()) {
    if (instruction.opcode == Opcode::kInput) {
      const Reg given = inputs[instruction.immediate];
      check(given.type == instruction.type, "a register of the input's type");
      regs.push_back(round(given, program.inputs()[instruction.immediate]));
      continue;
    }
    Instruction moved = instruction;
    for (int i = 0; i < operand_count(instruction.opcode); ++i)
      moved.operands[i] = regs[instruction.operands[i]].index;
    regs.push_back(emit(moved));
  }
  std::vector<Reg> results;
  results.reserve(program.results().size());
  for (const Program::Result& result : program.results()) results.push_back(regs[result.reg]);
  return results;
}

Program ProgramBuilder::finish(Reg result, DataType dtype) { return finish({{{result, dtype}}}); }

Program ProgramBuilder::finish(std::span<const std::pair<Reg, DataType>> results) {
  Program program;
  for (const auto& dtype : inputs_) {
    check(dtype.has_value(), "each input up to the last has a type");
    program.inputs_.push_back(*dtype);
  }
  std::vector<Program::Result> roots;
  roots.reserve(results.size());
  for (const auto& [reg, dtype] : results) roots.push_back({round(reg, dtype).index, dtype});

  constexpr uint16_t kUnnumbered = 0xffff;
  std::vector<uint16_t> numbers(code_.size(), kUnnumbered);
  std::vector<uint16_t> path;  // of the walk: a register stays until its operands have numbers
  for (const Program::Result& root : roots) {
    path.push_back(root.reg);
    while (!path.empty()) {
      const uint16_t reg = path.back();
      const Instruction& instruction = code_[reg];
      const auto operands =
          std::span(instruction.operands).first(operand_count(instruction.opcode));
      const auto next = std::find_if(operands.begin(), operands.end(),
                                     [&](uint16_t o) { return numbers[o] == kUnnumbered; });
      if (numbers[reg] == kUnnumbered && next != operands.end()) {
        path.push_back(*next);
        continue;
      }
      path.pop_back();
      if (numbers[reg] != kUnnumbered) continue;
      numbers[reg] = static_cast<uint16_t>(program.code_.size());
      Instruction numbered = instruction;
      for (size_t i = 0; i < operands.size(); ++i) numbered.operands[i] = numbers[operands[i]];
      program.code_.push_back(numbered);
    }
    program.results_.push_back({numbers[root.reg], root.dtype});
  }
  return program;
}

Reg ProgramBuilder::emit(Instruction instruction) {
  std::array<RegisterType, 3> types{};
  const auto operands = static_cast<size_t>(operand_count(instruction.opcode));
  for (size_t i = 0; i < operands; ++i) {
    check(instruction.operands[i] < code_.size(), "an operand is made before its use");
    types[i] = code_[instruction.operands[i]].type;
  }
  const std::string wrong = fault(instruction, std::span(types).first(operands));
  check(wrong.empty(), wrong);

  if (instruction.opcode == Opcode::kConstant)
    instruction.immediate = one_nan(instruction.type, instruction.immediate);
  if (const auto simpler = simplify(instruction)) return *simpler;
  if (is_commutative(instruction.opcode) &&
      precedes(instruction.operands[1], instruction.operands[0]))
    std::swap(instruction.operands[0], instruction.operands[1]);

  if (const auto found = interned_.find(instruction); found != interned_.end())
    return {found->second, instruction.type};
  if (code_.size() == kMaxInstructions)
    fail(ErrorCode::kUnsupported, "a program of more than 4096 instructions");
  const auto index = static_cast<uint16_t>(code_.size());
  fits_.push_back(storage_types(instruction));
  code_.push_back(instruction);
  interned_.emplace(instruction, index);
  return {index, instruction.type};
}

// A register that has the value of `instruction` already, or a simpler instruction that has it.
std::optional<Reg> ProgramBuilder::simplify(const Instruction& instruction) {
  const auto count = static_cast<size_t>(operand_count(instruction.opcode));
  if (count == 0) return std::nullopt;
  std::array<Scalar, 3> values;
  std::array<RegisterType, 3> types{};
  size_t constants = 0;
  for (size_t i = 0; i < count; ++i) {
    const Instruction& operand = code_[instruction.operands[i]];
    types[i] = operand.type;
    values[i].bits = operand.immediate;
    constants += operand.opcode == Opcode::kConstant;
  }
  if (constants == count)
    return emit(constant_instruction(
        instruction.type,
        evaluate(instruction, std::span(values).first(count), std::span(types).first(count))));

  if (instruction.opcode == Opcode::kRound || instruction.opcode == Opcode::kSaturate) {
    const Reg first{instruction.operands[0], types[0]};
    if (fits(first, static_cast<DataType>(instruction.immediate))) return first;
    return std::nullopt;
  }
  return anneal::simplify(*this, code_, instruction);
}

// A total order of registers by their expressions, not by the order in which they were made;
// constants come last. Different registers have different expressions, so the first operands that
// differ decide.
bool ProgramBuilder::precedes(uint16_t a, uint16_t b) const {
  while (a != b) {
    const Instruction& x = code_[a];
    const Instruction& y = code_[b];
    const auto key = [](const Instruction& i) {
      return std::tuple(i.opcode == Opcode::kConstant, i.opcode, i.type, i.immediate);
    };
    if (key(x) != key(y)) return key(x) < key(y);
    size_t i = 0;
    while (i < 2 && x.operands[i] == y.operands[i]) ++i;
    a = x.operands[i];
    b = y.operands[i];
  }
  return false;
}

uint16_t ProgramBuilder::storage_types(const Instruction& instruction) const {
  const auto of = [&](int operand) { return fits_[instruction.operands[operand]]; };
  const uint16_t whole = dtype_bit(widest(instruction.type));
  switch (instruction.opcode) {
    case Opcode::kInput:
      return types_that_hold(*inputs_[instruction.immediate]);
    case Opcode::kConstant:
      return types_that_hold(instruction.type, {instruction.immediate});
    case Opcode::kRound:
    case Opcode::kSaturate:
      return types_that_hold(static_cast<DataType>(instruction.immediate));
    case Opcode::kSign:
      return types_of(instruction.type);
    case Opcode::kNeg:
    case Opcode::kAbs:
      return is_float(instruction.type) ? of(0) : whole;
    case Opcode::kCeil:
    case Opcode::kFloor:
    case Opcode::kRoundEven:
    case Opcode::kTrunc:
      return of(0);
    case Opcode::kMin:
    case Opcode::kMax:
    case Opcode::kBitAnd:
    case Opcode::kBitOr:
    case Opcode::kBitXor:
      return of(0) & of(1);
    case Opcode::kSelect:
      return of(1) & of(2);
    default:
      return whole;
  }
}

bool ProgramBuilder::fits(Reg a, DataType dtype) const {
  return (fits_[a.index] & dtype_bit(dtype)) != 0;
}

}  // namespace anneal
