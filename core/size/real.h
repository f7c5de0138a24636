// Reals of a size table: f32 and f64 arithmetic that exporters write around sizes, as in
// floor(f32(H) * 0.75).
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "anneal/core/size/size.h"

namespace anneal {

// Each rounds its result to its type once. kMin and kMax give NaN where an operand is NaN.
enum class RealOp : uint8_t {
  kConstant,  // not for real()
  kConvert,   // an integer, or an f64, to the type
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMin,
  kMax,
  kNeg,
  kAbs,
  kSqrt,
  kFloor,
  kCeil,
  kRoundEven,
  kTrunc
};
enum class RealType : uint8_t { kF32, kF64 };

std::string_view to_string(RealOp op);  // "add"
std::string_view to_string(RealType type);
std::optional<std::pair<RealOp, RealType>> real_verb(std::string_view text);  // of "f32.add"
int operand_count(RealOp op);
// The op on numbers. b is not read where op has one operand.
double real_result(RealOp op, RealType type, double a, double b);
int64_t saturated(double value);  // as a cast to i64: towards 0; NaN gives 0

// The operations of a table on reals. An integer represents the float of its value. A result that
// is surely a whole number, fits the type and is not -0, becomes that integer.
class RealSizes {
 public:
  explicit RealSizes(SizeTable& sizes) : sizes_(sizes) {}

  Size constant(double value, RealType type);  // REQUIRES: value is one of the type
  // b: of an op of two operands. REQUIRES, but for kConvert: integer operands fit the type exactly.
  Size operation(RealOp op, RealType type, Size a, Size b = 0);
  Size truncate(Size a);  // to i64, as saturated() does

  static bool is_real(const SizeTable& sizes, Size size);

 private:
  friend class SizeRewriter;
  friend class SizeTable;
  using Atom = SizeTable::Atom;
  using Kind = SizeTable::AtomKind;
  using Values = SizeTable::Values;

  static uint32_t code(RealOp op, RealType type);
  static bool is_code(uint32_t code);
  static RealOp op(const Atom& real);
  static RealType type(const Atom& real);
  static const Atom* find(const SizeTable& sizes, Size size);  // null: not a real
  // The value of a real or of an integer.
  static double value(const SizeTable& sizes, Size size, Values values);
  static std::optional<std::pair<double, double>> range(const SizeTable& sizes, Size size);

  bool is_number(Size size) const;
  Size converted(RealType type, Size a);
  std::optional<Size> exact_integer(RealOp op, RealType type, Size a);

  SizeTable& sizes_;
};

}  // namespace anneal
