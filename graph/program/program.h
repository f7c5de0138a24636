// Program: a small typed expression over the elements of tensors. A Pointwise op holds one, and
// every layer may have one as an epilogue.
//
// An instruction computes one register; the register's number is the instruction's position. Loads
// widen storage to a register type (f16, bf16, f32 -> f32; i8, i16, i32 -> i32; u8, u16, u32 ->
// u32); stores never round: rounding to a storage type is the instruction kRound or kSaturate, so
// that joining two programs keeps every rounding step of both.
//
// Meaning, for every device:
//  - f32 and f64 follow IEEE 754, each operation rounded by itself (never contracted to an FMA).
//    exp, log, tanh and the like are within 4 ulp of the true value.
//  - kMin and kMax return NaN if either operand is NaN; of -0 and +0 either may be returned.
//  - Integer arithmetic wraps. Integer kDiv truncates; kMod has the sign of the divisor, kRem that
//    of the dividend, for floats too. An integer divided by zero gives 0, also as remainder, and
//    the smallest value divided by -1 itself.
//  - kPow of integers wraps; with a negative exponent 1 gives 1, -1 gives 1 or -1, all others 0.
//  - kCast from float to integer truncates towards zero and saturates; NaN gives 0. To bool: != 0.
//  - kRound rounds f32 or f64 (once) to f16 or bf16 values in f32, ties to even; an integer to
//  fewer
//    bits wraps. One that a Cast of the model asks for is marked (kByCast), and no pass drops it.
//  - kSaturate clamps any number to the range of an integer type; a fraction is cut off, NaN gives
//  0.
//  - kShiftLeft/kShiftRight are logical on unsigned types, kShiftRight arithmetic on signed ones; a
//    shift by the width or more, or by a negative count, gives 0.
//  - kRoundEven rounds to the nearest integer, ties to even. kSign of a zero is 0, of NaN NaN.
//  - kIndex is the element's index along an axis of the output (i64).
#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "anneal/core/dtype.h"

namespace anneal {

class ByteReader;
class ByteWriter;

enum class RegisterType : uint8_t { kF32, kF64, kI32, kI64, kU32, kU64, kBool };
RegisterType register_type(DataType storage);   // REQUIRES: not kString
std::string_view to_string(RegisterType type);  // "f32"

// One line per opcode: X(enumerator, name in text, operands). The order is written into engine
// files.
#define ANNEAL_FOR_EACH_OPCODE(X) \
  X(Input, "input", 0)            \
  X(Constant, "constant", 0)      \
  X(Index, "index", 0)            \
  X(Cast, "cast", 1)              \
  X(Round, "round", 1)            \
  X(Saturate, "saturate", 1)      \
  X(Neg, "neg", 1)                \
  X(Abs, "abs", 1)                \
  X(Sign, "sign", 1)              \
  X(Ceil, "ceil", 1)              \
  X(Floor, "floor", 1)            \
  X(RoundEven, "rint", 1)         \
  X(Trunc, "trunc", 1)            \
  X(Sqrt, "sqrt", 1)              \
  X(Exp, "exp", 1)                \
  X(Log, "log", 1)                \
  X(Log1p, "log1p", 1)            \
  X(Expm1, "expm1", 1)            \
  X(Erf, "erf", 1)                \
  X(Sin, "sin", 1)                \
  X(Cos, "cos", 1)                \
  X(Tan, "tan", 1)                \
  X(Asin, "asin", 1)              \
  X(Acos, "acos", 1)              \
  X(Atan, "atan", 1)              \
  X(Sinh, "sinh", 1)              \
  X(Cosh, "cosh", 1)              \
  X(Tanh, "tanh", 1)              \
  X(Asinh, "asinh", 1)            \
  X(Acosh, "acosh", 1)            \
  X(Atanh, "atanh", 1)            \
  X(Sigmoid, "sigmoid", 1)        \
  X(Not, "not", 1)                \
  X(BitNot, "bitnot", 1)          \
  X(IsNan, "isnan", 1)            \
  X(IsInf, "isinf", 1)            \
  X(Add, "add", 2)                \
  X(Sub, "sub", 2)                \
  X(Mul, "mul", 2)                \
  X(Div, "div", 2)                \
  X(Mod, "mod", 2)                \
  X(Rem, "rem", 2)                \
  X(Pow, "pow", 2)                \
  X(Min, "min", 2)                \
  X(Max, "max", 2)                \
  X(And, "and", 2)                \
  X(Or, "or", 2)                  \
  X(Xor, "xor", 2)                \
  X(BitAnd, "bitand", 2)          \
  X(BitOr, "bitor", 2)            \
  X(BitXor, "bitxor", 2)          \
  X(ShiftLeft, "shl", 2)          \
  X(ShiftRight, "shr", 2)         \
  X(Equal, "eq", 2)               \
  X(Less, "lt", 2)                \
  X(LessEqual, "le", 2)           \
  X(Select, "select", 3)

enum class Opcode : uint8_t {
#define X(enumerator, text, operands) k##enumerator,
  ANNEAL_FOR_EACH_OPCODE(X)
#undef X
};
std::string_view to_string(Opcode opcode);
int operand_count(Opcode opcode);

struct Instruction {
  Opcode opcode = Opcode::kConstant;
  RegisterType type = RegisterType::kF32;  // of the result
  std::array<uint16_t, 3> operands{};      // registers, each before this one; unused ones are 0
  uint64_t immediate = 0;  // kInput: which; kConstant: bits (f32 and 32-bit types in the low half);
                           // kIndex: axis; kRound, kSaturate: DataType; kRound: or kByCast
  bool operator==(const Instruction&) const = default;
};

// In the immediate of a kRound to f16 or bf16. Others round because a value of that type is stored
// or computed, and may go where joined layers keep it in f32.
inline constexpr uint64_t kByCast = 0x100;
// Whether it rounds to f16 or bf16 for the storage alone.
bool is_storage_rounding(const Instruction& instruction);

// Immutable, in normal form: no dead or repeated instruction, no rounding of a rounded value,
// operands of commutative opcodes in ascending order, constants folded (there is one NaN),
// registers numbered by depth-first walk from the results. Equal programs are therefore equal by
// ==. Made by ProgramBuilder, parse_program or load_program.
class Program {
 public:
  struct Result {
    uint16_t reg = 0;
    DataType dtype = DataType::kF32;  // register_type(dtype) is the register's; its value fits
    bool operator==(const Result&) const = default;
  };
  // Storage type of each input. An epilogue's input 0 is the op's accumulator.
  std::span<const DataType> inputs() const { return inputs_; }
  std::span<const Instruction> code() const { return code_; }
  std::span<const Result> results() const { return results_; }
  bool empty() const { return results_.empty(); }  // an empty epilogue passes the op's output on
  bool is_identity() const;  // one input, one result, the same type, nothing in between
  bool uses_index() const;
  bool operator==(const Program&) const = default;

 private:
  friend class ProgramBuilder;
  std::vector<DataType> inputs_;
  std::vector<Instruction> code_;
  std::vector<Result> results_;
};

// A register of a program being built.
struct Reg {
  uint16_t index = 0;
  RegisterType type = RegisterType::kF32;
};

// Builds a Program. Type errors (adding f32 to i64, an input used with two types) are our bugs and
// fail as such; importers cast first. More than 4096 instructions fail with kUnsupported.
class ProgramBuilder {
 public:
  Reg input(int index, DataType dtype);
  Reg constant(float value);
  Reg constant(double value);
  Reg constant(RegisterType type, double value);  // value converted to type
  Reg constant(RegisterType type, int64_t value);
  Reg index(int axis);
  Reg apply(Opcode opcode, Reg a);
  Reg apply(Opcode opcode, Reg a, Reg b);
  Reg select(Reg condition, Reg if_true, Reg if_false);
  Reg cast(Reg a, RegisterType type);        // a itself if it has that type
  Reg round(Reg a, DataType dtype);          // to the values of dtype: casts, then rounds or wraps
  Reg round_by_cast(Reg a, DataType dtype);  // the same, asked for by the model
  Reg saturate(Reg a, DataType dtype);  // to an integer dtype: clamps to its range, no rounding
  // Inlines a program: inputs[i], of its register type, stands for its input i, rounded to that
  // input's storage type unless it is so already. Returns the results, rounded as the program does.
  std::vector<Reg> inline_program(const Program& program, std::span<const Reg> inputs);
  // Rounds each result to its dtype unless it is so already. Inputs that no result needs are kept
  // in the list, so that positions do not move.
  Program finish(std::span<const std::pair<Reg, DataType>> results);
  Program finish(Reg result, DataType dtype);

 private:
  friend Program load_program(ByteReader& from);
  struct Hash {
    size_t operator()(const Instruction& instruction) const;
  };
  void declare(size_t index, DataType dtype);
  Reg emit(Instruction instruction);
  std::optional<Reg> simplify(const Instruction& instruction);
  bool precedes(uint16_t a, uint16_t b) const;
  uint16_t storage_types(const Instruction& instruction) const;
  bool fits(Reg a, DataType dtype) const;

  std::vector<std::optional<DataType>> inputs_;
  std::vector<Instruction> code_;
  std::vector<uint16_t> fits_;  // per instruction: bit d is set if each value is one of DataType d
  std::unordered_map<Instruction, uint16_t, Hash> interned_;
};

// "(f32,f32)->(f32) max(add($0,$1),0f32)"; a register used more than once is named:
// "(f32)->(f32) %0=exp($0); div(%0,add(%0,1f32))". Several results are separated by ", ". Literals
// are exact and end in their register type (-0f32, inff64, 3i32, 1bool); kRound and kSaturate are
// round_f16(x) (cast_f16(x) with kByCast) and saturate_i8(x), kCast is f32(x), kIndex is index(0).
std::string to_string(const Program& program);
Program parse_program(std::string_view text);  // fails with kInvalidArgument
void save(ByteWriter& to, const Program& program);
Program load_program(ByteReader& from);  // checks everything: operands, types, immediates
uint64_t hash(const Program& program);

// The value of a register: the reference meaning of every opcode, one element at a time.
struct Scalar {
  uint64_t bits = 0;  // of the register's type, in the low bytes
  template <class T>
  T as() const {
    T value;
    __builtin_memcpy(&value, &bits, sizeof(T));
    return value;
  }
  template <class T>
  static Scalar of(T value) {
    Scalar scalar;
    __builtin_memcpy(&scalar.bits, &value, sizeof(T));
    return scalar;
  }
  bool operator==(const Scalar&) const = default;
};
// One instruction (not a leaf) on values of its operands' types; operand_types[i] is operand i's.
Scalar evaluate(const Instruction& instruction, std::span<const Scalar> operands,
                std::span<const RegisterType> operand_types);
Scalar load_scalar(DataType dtype, const std::byte* from);       // storage -> register
void store_scalar(DataType dtype, Scalar value, std::byte* to);  // exact; value fits

}  // namespace anneal
