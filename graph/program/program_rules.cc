#include "anneal/graph/program/program_rules.h"

#include <fmt/format.h>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/core/shape.h"

namespace anneal {
namespace {

constexpr uint8_t register_bit(RegisterType type) {
  return static_cast<uint8_t>(1u << static_cast<unsigned>(type));
}
constexpr uint8_t kFloats = register_bit(RegisterType::kF32) | register_bit(RegisterType::kF64);
constexpr uint8_t kIntegers = register_bit(RegisterType::kI32) | register_bit(RegisterType::kI64) |
                              register_bit(RegisterType::kU32) | register_bit(RegisterType::kU64);
constexpr uint8_t kNumbers = kFloats | kIntegers;
constexpr uint8_t kBools = register_bit(RegisterType::kBool);
constexpr uint8_t kAny = kNumbers | kBools;

enum class Gives : uint8_t {
  kSame,   // the type of the operands
  kBool,   // a truth value
  kNamed,  // what the instruction says
};

struct Rule {
  Opcode opcode;
  uint8_t takes;
  Gives gives = Gives::kSame;
  bool commutative = false;
};

// All operands have one type, which is in `takes`; only kSelect's first is bool besides.
constexpr Rule kRules[] = {
    {Opcode::kInput, 0, Gives::kNamed},
    {Opcode::kConstant, 0, Gives::kNamed},
    {Opcode::kIndex, 0, Gives::kNamed},
    {Opcode::kCast, kAny, Gives::kNamed},
    {Opcode::kRound, kNumbers, Gives::kNamed},
    {Opcode::kSaturate, kNumbers, Gives::kNamed},
    {Opcode::kNeg, kNumbers},
    {Opcode::kAbs, kNumbers},
    {Opcode::kSign, kNumbers},
    {Opcode::kCeil, kFloats},
    {Opcode::kFloor, kFloats},
    {Opcode::kRoundEven, kFloats},
    {Opcode::kTrunc, kFloats},
    {Opcode::kSqrt, kFloats},
    {Opcode::kExp, kFloats},
    {Opcode::kLog, kFloats},
    {Opcode::kLog1p, kFloats},
    {Opcode::kExpm1, kFloats},
    {Opcode::kErf, kFloats},
    {Opcode::kSin, kFloats},
    {Opcode::kCos, kFloats},
    {Opcode::kTan, kFloats},
    {Opcode::kAsin, kFloats},
    {Opcode::kAcos, kFloats},
    {Opcode::kAtan, kFloats},
    {Opcode::kSinh, kFloats},
    {Opcode::kCosh, kFloats},
    {Opcode::kTanh, kFloats},
    {Opcode::kAsinh, kFloats},
    {Opcode::kAcosh, kFloats},
    {Opcode::kAtanh, kFloats},
    {Opcode::kSigmoid, kFloats},
    {Opcode::kNot, kBools},
    {Opcode::kBitNot, kIntegers},
    {Opcode::kIsNan, kFloats, Gives::kBool},
    {Opcode::kIsInf, kFloats, Gives::kBool},
    {Opcode::kAdd, kNumbers, Gives::kSame, true},
    {Opcode::kSub, kNumbers},
    {Opcode::kMul, kNumbers, Gives::kSame, true},
    {Opcode::kDiv, kNumbers},
    {Opcode::kMod, kNumbers},
    {Opcode::kRem, kNumbers},
    {Opcode::kPow, kNumbers},
    {Opcode::kMin, kNumbers, Gives::kSame, true},
    {Opcode::kMax, kNumbers, Gives::kSame, true},
    {Opcode::kAnd, kBools, Gives::kSame, true},
    {Opcode::kOr, kBools, Gives::kSame, true},
    {Opcode::kXor, kBools, Gives::kSame, true},
    {Opcode::kBitAnd, kIntegers, Gives::kSame, true},
    {Opcode::kBitOr, kIntegers, Gives::kSame, true},
    {Opcode::kBitXor, kIntegers, Gives::kSame, true},
    {Opcode::kShiftLeft, kIntegers},
    {Opcode::kShiftRight, kIntegers},
    {Opcode::kEqual, kAny, Gives::kBool, true},
    {Opcode::kLess, kNumbers, Gives::kBool},
    {Opcode::kLessEqual, kNumbers, Gives::kBool},
    {Opcode::kSelect, kAny},
};

constexpr bool rules_are_in_order() {
  for (size_t i = 0; i < std::size(kRules); ++i)
    if (static_cast<size_t>(kRules[i].opcode) != i) return false;
  return std::size(kRules) == kOpcodeCount;
}
static_assert(rules_are_in_order(), "rule_of() indexes by value");

const Rule& rule_of(Opcode opcode) {
  check(static_cast<size_t>(opcode) < kOpcodeCount, "an opcode is one of the list");
  return kRules[static_cast<size_t>(opcode)];
}

std::string_view text_of(uint8_t types) {
  switch (types) {
    case kFloats:
      return "f32 or f64";
    case kIntegers:
      return "integers";
    case kNumbers:
      return "numbers";
    case kBools:
      return "bool";
    default:
      return "values";
  }
}

std::string constant_fault(const Instruction& constant) {
  const int bits = width(constant.type);
  if (bits < 64 && constant.immediate >> bits != 0)
    return fmt::format("a constant that is wider than {}", to_string(constant.type));
  return {};
}

// The fault of kRound or kSaturate, whose operand is a number.
std::string narrowing_fault(const Instruction& instruction, RegisterType operand) {
  const bool by_cast =
      instruction.opcode == Opcode::kRound && (instruction.immediate & kByCast) != 0;
  const auto dtype = valid_dtype(instruction.immediate & ~(by_cast ? kByCast : 0));
  if (by_cast && dtype && !is_half(*dtype)) return "a mark of a Cast that it cannot have";
  if (!dtype)
    return fmt::format("{} to the unknown type {}", to_string(instruction.opcode),
                       instruction.immediate);
  bool takes = false;
  if (instruction.opcode == Opcode::kSaturate) {
    takes = is_integer(*dtype);
  } else if (is_half(*dtype)) {
    takes = is_float(operand);
  } else {
    takes = is_integer(*dtype) && size_of(*dtype) < 4 && operand == register_type(*dtype);
  }
  if (!takes)
    return fmt::format("{}_{} of {}", to_string(instruction.opcode), to_string(*dtype),
                       to_string(operand));
  if (instruction.type != register_type(*dtype))
    return fmt::format("{}_{} that gives {}", to_string(instruction.opcode), to_string(*dtype),
                       to_string(instruction.type));
  return {};
}

std::string immediate_fault(const Instruction& instruction, std::span<const RegisterType> types) {
  switch (instruction.opcode) {
    case Opcode::kInput:
      return {};
    case Opcode::kConstant:
      return constant_fault(instruction);
    case Opcode::kIndex:
      if (instruction.immediate >= static_cast<uint64_t>(kMaxRank))
        return fmt::format("an index of axis {}", instruction.immediate);
      return instruction.type == RegisterType::kI64 ? "" : "an index that is not i64";
    case Opcode::kRound:
    case Opcode::kSaturate:
      return narrowing_fault(instruction, types[0]);
    default:
      if (instruction.immediate != 0)
        return fmt::format("{} with an immediate", to_string(instruction.opcode));
      return {};
  }
}

}  // namespace

bool is_storage_rounding(const Instruction& instruction) {
  return instruction.opcode == Opcode::kRound && (instruction.immediate & kByCast) == 0 &&
         is_half(static_cast<DataType>(instruction.immediate));
}

RegisterType register_type(DataType storage) {
  switch (storage) {
    case DataType::kF32:
    case DataType::kF16:
    case DataType::kBF16:
      return RegisterType::kF32;
    case DataType::kF64:
      return RegisterType::kF64;
    case DataType::kI8:
    case DataType::kI16:
    case DataType::kI32:
      return RegisterType::kI32;
    case DataType::kI64:
      return RegisterType::kI64;
    case DataType::kU8:
    case DataType::kU16:
    case DataType::kU32:
      return RegisterType::kU32;
    case DataType::kU64:
      return RegisterType::kU64;
    case DataType::kBool:
      return RegisterType::kBool;
    case DataType::kString:
      break;
  }
  check(false, "a string has no register type");
  return RegisterType::kBool;
}

std::string_view to_string(RegisterType type) {
  static constexpr std::string_view kNames[] = {"f32", "f64", "i32", "i64", "u32", "u64", "bool"};
  static_assert(std::size(kNames) == kRegisterTypeCount);
  return kNames[static_cast<size_t>(type)];
}

std::string_view to_string(Opcode opcode) {
  static constexpr std::string_view kNames[] = {
#define X(enumerator, text, operands) text,
    ANNEAL_FOR_EACH_OPCODE(X)
#undef X
  };
  return kNames[static_cast<size_t>(opcode)];
}

int operand_count(Opcode opcode) {
  static constexpr uint8_t kCounts[] = {
#define X(enumerator, text, operands) operands,
    ANNEAL_FOR_EACH_OPCODE(X)
#undef X
  };
  return kCounts[static_cast<size_t>(opcode)];
}

bool is_commutative(Opcode opcode) { return rule_of(opcode).commutative; }

bool is_float(RegisterType type) { return (register_bit(type) & kFloats) != 0; }

DataType storage_type(RegisterType type) {
  switch (type) {
    case RegisterType::kF32:
      return DataType::kF32;
    case RegisterType::kF64:
      return DataType::kF64;
    case RegisterType::kI32:
      return DataType::kI32;
    case RegisterType::kI64:
      return DataType::kI64;
    case RegisterType::kU32:
      return DataType::kU32;
    case RegisterType::kU64:
      return DataType::kU64;
    case RegisterType::kBool:
      break;
  }
  return DataType::kBool;
}

int width(RegisterType type) {
  switch (type) {
    case RegisterType::kF32:
    case RegisterType::kI32:
    case RegisterType::kU32:
      return 32;
    case RegisterType::kBool:
      return 1;
    default:
      return 64;
  }
}

std::optional<DataType> valid_dtype(uint64_t value) {
  for (const DataType dtype : all_dtypes())
    if (static_cast<uint64_t>(dtype) == value && dtype != DataType::kString) return dtype;
  return std::nullopt;
}

RegisterType result_type(Opcode opcode, std::span<const RegisterType> operands) {
  const Gives gives = rule_of(opcode).gives;
  check(gives != Gives::kNamed, "an opcode whose operands decide its type");
  return gives == Gives::kBool ? RegisterType::kBool : operands.back();
}

std::string fault(const Instruction& instruction, std::span<const RegisterType> operands) {
  const Rule& rule = rule_of(instruction.opcode);
  const std::string_view opcode = to_string(instruction.opcode);
  const auto count = static_cast<size_t>(operand_count(instruction.opcode));
  if (operands.size() != count)
    return fmt::format("{} takes {} operands, not {}", opcode, count, operands.size());

  if (instruction.opcode == Opcode::kSelect) {
    if (operands[0] != RegisterType::kBool)
      return fmt::format("select takes a bool first, not {}", to_string(operands[0]));
    operands = operands.subspan(1);
  }
  for (const RegisterType type : operands)
    if (type != operands[0] || (register_bit(type) & rule.takes) == 0)
      return operands.size() == 1
                 ? fmt::format("{} takes {}, not {}", opcode, text_of(rule.takes), to_string(type))
                 : fmt::format("{} takes {} of one type, not {} and {}", opcode,
                               text_of(rule.takes), to_string(operands[0]), to_string(operands[1]));
  if (rule.gives != Gives::kNamed && instruction.type != result_type(instruction.opcode, operands))
    return fmt::format("{} does not give {}", opcode, to_string(instruction.type));
  return immediate_fault(instruction, operands);
}

}  // namespace anneal
