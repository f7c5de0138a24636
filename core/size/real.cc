#include "anneal/core/size/real.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "anneal/core/fail.h"

namespace anneal {
namespace {

double rounded(RealType type, double value) {
  return type == RealType::kF32 ? static_cast<double>(static_cast<float>(value)) : value;
}

// Integers up to this one are floats of the type, each.
double exact_limit(RealType type) { return type == RealType::kF32 ? 0x1p24 : 0x1p53; }

double propagate_nan(double a, double b, double result) {
  return std::isnan(a) || std::isnan(b) ? a + b : result;
}

constexpr std::string_view kNames[] = {"constant", "convert", "add",  "sub",   "mul",
                                       "div",      "min",     "max",  "neg",   "abs",
                                       "sqrt",     "floor",   "ceil", "round", "trunc"};

}  // namespace

std::string_view to_string(RealOp op) { return kNames[static_cast<size_t>(op)]; }

std::string_view to_string(RealType type) { return type == RealType::kF32 ? "f32" : "f64"; }

std::optional<std::pair<RealOp, RealType>> real_verb(std::string_view text) {
  const size_t dot = text.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const auto found = std::ranges::find(kNames, text.substr(dot + 1));
  const std::string_view type = text.substr(0, dot);
  if (found == std::end(kNames) || (type != "f32" && type != "f64")) return std::nullopt;
  return std::pair{static_cast<RealOp>(found - kNames),
                   type == "f32" ? RealType::kF32 : RealType::kF64};
}

int operand_count(RealOp op) {
  switch (op) {
    case RealOp::kAdd:
    case RealOp::kSub:
    case RealOp::kMul:
    case RealOp::kDiv:
    case RealOp::kMin:
    case RealOp::kMax:
      return 2;
    case RealOp::kConstant:
      return 0;
    default:
      return 1;
  }
}

// A result of +, -, *, / or sqrt in f64 that is rounded to f32 equals the result in f32: f64 has
// more than twice the digits (Figueroa, "When is double rounding innocuous?", 1995).
double real_result(RealOp op, RealType type, double a, double b) {
  switch (op) {
    case RealOp::kConstant:
    case RealOp::kConvert:
      return rounded(type, a);
    case RealOp::kAdd:
      return rounded(type, a + b);
    case RealOp::kSub:
      return rounded(type, a - b);
    case RealOp::kMul:
      return rounded(type, a * b);
    case RealOp::kDiv:
      return rounded(type, a / b);
    case RealOp::kMin:
      return propagate_nan(a, b, std::min(a, b));
    case RealOp::kMax:
      return propagate_nan(a, b, std::max(a, b));
    case RealOp::kNeg:
      return -a;
    case RealOp::kAbs:
      return std::abs(a);
    case RealOp::kSqrt:
      return rounded(type, std::sqrt(a));
    case RealOp::kFloor:
      return std::floor(a);
    case RealOp::kCeil:
      return std::ceil(a);
    case RealOp::kRoundEven:
      return std::nearbyint(a);
    case RealOp::kTrunc:
      return std::trunc(a);
  }
  return a;
}

int64_t saturated(double value) {
  if (std::isnan(value)) return 0;
  if (value >= 0x1p63) return INT64_MAX;
  return value < -0x1p63 ? INT64_MIN : static_cast<int64_t>(value);
}

uint32_t RealSizes::code(RealOp op, RealType type) {
  return static_cast<uint32_t>(op) * 2 + static_cast<uint32_t>(type);
}
bool RealSizes::is_code(uint32_t code) { return code / 2 < std::size(kNames); }
RealOp RealSizes::op(const Atom& real) { return static_cast<RealOp>(real.symbol / 2); }
RealType RealSizes::type(const Atom& real) { return static_cast<RealType>(real.symbol % 2); }

const RealSizes::Atom* RealSizes::find(const SizeTable& sizes, Size size) {
  const Atom* atom = sizes.lone_atom(size);
  return atom != nullptr && atom->kind == Kind::kReal ? atom : nullptr;
}

bool RealSizes::is_real(const SizeTable& sizes, Size size) { return find(sizes, size) != nullptr; }

bool RealSizes::is_number(Size size) const {
  const Atom* atom = find(sizes_, size);
  return size.known() || (atom != nullptr && op(*atom) == RealOp::kConstant);
}

Size RealSizes::constant(double value, RealType type) {
  const bool whole = value == std::trunc(value) && std::abs(value) <= exact_limit(type);
  if (whole && !(value == 0 && std::signbit(value))) return static_cast<int64_t>(value);
  return sizes_.intern(Atom{Kind::kReal,
                            code(RealOp::kConstant, type),
                            static_cast<int64_t>(std::bit_cast<uint64_t>(value)),
                            0,
                            {}});
}

Size RealSizes::operation(RealOp op, RealType type, Size a, Size b) {
  check(op != RealOp::kConstant, "an operation");
  if (operand_count(op) < 2) b = 0;
  if (a.is_unknown() || b.is_unknown()) return Size::unknown();
  if (op == RealOp::kConvert) return converted(type, a);
  if (is_number(a) && is_number(b))
    return constant(real_result(op, type, value(sizes_, a, {}), value(sizes_, b, {})), type);
  const bool commutes =
      op == RealOp::kAdd || op == RealOp::kMul || op == RealOp::kMin || op == RealOp::kMax;
  if (commutes && is_number(a)) std::swap(a, b);
  if ((op == RealOp::kMul || op == RealOp::kDiv) && b == Size(1)) return a;
  // A division by a power of 2 is the multiplication, and the one form that exact_integer() reads.
  if (op == RealOp::kMul && find(sizes_, b) != nullptr && is_number(b)) {
    const double divisor = 1 / value(sizes_, b, {});
    int exponent = 0;
    if (std::frexp(divisor, &exponent) == 0.5 && exponent < 24)
      return operation(RealOp::kDiv, type, a, static_cast<int64_t>(divisor));
  }
  if (op == RealOp::kFloor || op == RealOp::kCeil || op == RealOp::kRoundEven ||
      op == RealOp::kTrunc) {
    if (sizes_.is_integer(a)) return a;
    if (const auto integer = exact_integer(op, type, a)) return *integer;
  }
  return sizes_.intern(Atom{Kind::kReal, code(op, type), a, b, {}});
}

Size RealSizes::converted(RealType type, Size a) {
  if (const Atom* real = find(sizes_, a)) {
    if (type == RealType::kF64 || RealSizes::type(*real) == type) return a;
    if (is_number(a))
      return constant(real_result(RealOp::kConvert, type, value(sizes_, a, {}), 0), type);
  } else if (a.known()) {
    return constant(type == RealType::kF32 ? static_cast<double>(static_cast<float>(a.value()))
                                           : static_cast<double>(a.value()),
                    type);
  } else {
    const Bounds bounds = sizes_.range(a);
    const auto limit = static_cast<int64_t>(exact_limit(type));
    if (bounds.min >= -limit && bounds.max <= limit) return a;
  }
  return sizes_.intern(Atom{Kind::kReal, code(RealOp::kConvert, type), a, 0, {}});
}

// floor or ceil of a, where it is provably the integer that exact arithmetic gives: fl(p / q) of
// integers 0 <= p < limit and q >= 1 has the floor and ceil of p / q. Where q does not divide p,
// the next integer is at least 1/q away, and the rounding moves by less than p / (q * limit). The
// sum with an integer c is rounded again, for which a quarter of the limit is left.
std::optional<Size> RealSizes::exact_integer(RealOp op, RealType type, Size a) {
  if (op != RealOp::kFloor && op != RealOp::kCeil) return std::nullopt;
  const Atom* quotient = find(sizes_, a);
  Size added = 0;
  if (quotient != nullptr && quotient->b.known() &&
      (RealSizes::op(*quotient) == RealOp::kAdd || RealSizes::op(*quotient) == RealOp::kSub)) {
    added = RealSizes::op(*quotient) == RealOp::kAdd ? quotient->b : sizes_.sub(0, quotient->b);
    quotient = find(sizes_, quotient->a);
  }
  if (quotient == nullptr || RealSizes::op(*quotient) != RealOp::kDiv ||
      RealSizes::type(*quotient) != type || !sizes_.is_integer(quotient->a) ||
      !sizes_.is_integer(quotient->b))
    return std::nullopt;
  const Size p = quotient->a, q = quotient->b;
  const Bounds of_p = sizes_.range(p), of_q = sizes_.range(q);
  const double moved = std::abs(static_cast<double>(added.value())) * static_cast<double>(of_q.max);
  const double limit = added == Size(0) ? exact_limit(type) : exact_limit(type) / 4;
  if (of_p.min < 0 || of_q.min < 1 || !(static_cast<double>(of_p.max) + moved < limit))
    return std::nullopt;
  if (op == RealOp::kFloor) return sizes_.add(sizes_.floor_div(p, q), added);
  // ceil of a number between -1 and 0 is -0, no integer.
  if (added.value() < 0) return std::nullopt;
  return sizes_.add(sizes_.ceil_div(p, q), added);
}

Size RealSizes::truncate(Size a) {
  const Atom* const found = find(sizes_, a);
  if (found == nullptr) return a;
  const Atom real = *found;
  if (op(real) == RealOp::kConstant) return saturated(value(sizes_, a, {}));
  const auto bounds = range(sizes_, a);
  if (bounds && bounds->first >= 0) {
    if (op(real) == RealOp::kFloor || op(real) == RealOp::kTrunc) return truncate(real.a);
    if (const auto integer = exact_integer(RealOp::kFloor, type(real), a)) return *integer;
  }
  return sizes_.intern(Atom{Kind::kTruncate, 0, a, 0, {}});
}

double RealSizes::value(const SizeTable& sizes, Size size, Values values) {
  const Atom* real = find(sizes, size);
  if (real == nullptr) return static_cast<double>(sizes.value_of(size, values));
  const RealOp operation = op(*real);
  if (operation == RealOp::kConstant) return std::bit_cast<double>(real->a.value());
  // An integer is rounded once.
  if (operation == RealOp::kConvert && type(*real) == RealType::kF32 && sizes.is_integer(real->a))
    return static_cast<double>(static_cast<float>(sizes.value_of(real->a, values)));
  return real_result(operation, type(*real), value(sizes, real->a, values),
                     operand_count(operation) == 2 ? value(sizes, real->b, values) : 0);
}

// Operations are monotone in each operand, and so is rounding: extremes are at the corners. A
// quotient is not where the divisor may be 0. nullopt: it may be NaN.
std::optional<std::pair<double, double>> RealSizes::range(const SizeTable& sizes, Size size) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Atom* real = find(sizes, size);
  if (real == nullptr) {
    const Bounds bounds = sizes.range(size);
    return std::pair{bounds.min == INT64_MIN ? -kInfinity : static_cast<double>(bounds.min),
                     bounds.max == INT64_MAX ? kInfinity : static_cast<double>(bounds.max)};
  }
  const RealOp operation = op(*real);
  if (operation == RealOp::kConstant) {
    const double number = value(sizes, size, {});
    return std::isnan(number) ? std::nullopt : std::optional(std::pair{number, number});
  }
  const auto a = range(sizes, real->a);
  const auto b = operand_count(operation) == 2 ? range(sizes, real->b) : std::pair{0.0, 0.0};
  if (!a || !b) return std::nullopt;
  if (operation == RealOp::kDiv && b->first <= 0 && b->second >= 0) return std::nullopt;
  std::pair<double, double> result{kInfinity, -kInfinity};
  for (const double x : {a->first, a->second})
    for (const double y : {b->first, b->second}) {
      const double corner = real_result(operation, type(*real), x, y);
      if (std::isnan(corner)) return std::nullopt;
      result = {std::min(result.first, corner), std::max(result.second, corner)};
    }
  if (operation == RealOp::kAbs && a->first < 0 && a->second > 0) result.first = 0;
  return result;
}

}  // namespace anneal
