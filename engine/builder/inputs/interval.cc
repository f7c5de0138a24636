#include "anneal/engine/builder/inputs/interval.h"
#include "anneal/core/dtype_kinds.h"

#include <algorithm>
#include <cmath>

namespace anneal {
namespace {

constexpr double kMostMarker = 1LL << 40;
constexpr size_t kMostMarkers = 8;

ValueInterval all_of(RegisterType type) {
  switch (type) {
    case RegisterType::kF32:
    case RegisterType::kF64:
      return {};
    case RegisterType::kI32:
      return ValueInterval::of(DataType::kI32);
    case RegisterType::kI64:
      return ValueInterval::of(DataType::kI64);
    case RegisterType::kU32:
      return ValueInterval::of(DataType::kU32);
    case RegisterType::kU64:
      return ValueInterval::of(DataType::kU64);
    case RegisterType::kBool:
      return {0, 1};
  }
  return {};
}

bool is_real(RegisterType type) { return type == RegisterType::kF32 || type == RegisterType::kF64; }

// NaN from inf - inf and the like stands for anything; integers wrap.
ValueInterval settled(ValueInterval range, RegisterType type) {
  if (std::isnan(range.low) || std::isnan(range.high)) return all_of(type);
  const ValueInterval all = all_of(type);
  if (range.low < all.low || range.high > all.high) return all;
  return range;
}

template <class F>
ValueInterval of_corners(const ValueInterval& a, const ValueInterval& b, F&& f) {
  const double corners[] = {f(a.low, b.low), f(a.low, b.high), f(a.high, b.low), f(a.high, b.high)};
  if (std::ranges::any_of(corners, [](double x) { return std::isnan(x); })) return {};
  return {*std::ranges::min_element(corners), *std::ranges::max_element(corners)};
}

double product_of(double a, double b) { return a == 0 || b == 0 ? 0 : a * b; }

ValueInterval quotient(const ValueInterval& a, const ValueInterval& b, RegisterType type) {
  if (is_real(type)) {
    if (b.has(0)) return {};
    return of_corners(a, b, [](double x, double y) { return x / y; });
  }
  // An integer divided by 0 gives 0; the rest truncates.
  ValueInterval result =
      of_corners(a, b, [](double x, double y) { return y == 0 ? 0 : std::trunc(x / y); });
  if (b.has(0))
    result = united(result, {std::min({a.low, -a.high, 0.0}), std::max({a.high, -a.low, 0.0})});
  return result;
}

ValueInterval remainder_of(Opcode opcode, const ValueInterval& a, const ValueInterval& b) {
  if (!b.is_point() || b.low <= 0 || !a.is_finite()) {
    const double most = std::max(std::abs(b.low), std::abs(b.high));
    return {-most, most};
  }
  if (a.low >= 0 && a.high < b.low) return a;
  if (opcode == Opcode::kMod || a.low >= 0) return {0, b.low};
  return {-b.low, b.low};
}

ValueInterval truth(bool may_be_false, bool may_be_true) {
  return {may_be_false ? 0.0 : 1.0, may_be_true ? 1.0 : 0.0};
}

double as_double(Scalar scalar, RegisterType type) {
  switch (type) {
    case RegisterType::kF32:
      return scalar.as<float>();
    case RegisterType::kF64:
      return scalar.as<double>();
    case RegisterType::kI32:
      return scalar.as<int32_t>();
    case RegisterType::kI64:
      return static_cast<double>(scalar.as<int64_t>());
    case RegisterType::kU32:
      return scalar.as<uint32_t>();
    case RegisterType::kU64:
      return static_cast<double>(scalar.as<uint64_t>());
    case RegisterType::kBool:
      return static_cast<double>(scalar.as<uint8_t>());
  }
  return 0;
}

template <class F>
ValueInterval rising(const ValueInterval& a, F&& f) {
  const double low = f(a.low), high = f(a.high);
  return std::isnan(low) || std::isnan(high) ? ValueInterval() : ValueInterval{low, high};
}

// Integers that a program rounds from floats are exact.
ValueInterval converted(const ValueInterval& a, RegisterType from, RegisterType to) {
  if (to == RegisterType::kBool) return truth(a.has(0), a.low != 0 || a.high != 0);
  if (is_real(to)) return a;
  const ValueInterval all = all_of(to);
  if (!is_real(from)) return settled(a, to);
  return {std::clamp(std::trunc(a.low), all.low, all.high),
          std::clamp(std::trunc(a.high), all.low, all.high)};
}

class ProgramWalk {
 public:
  ProgramWalk(const Program& program, std::span<const ValueRange> inputs,
              std::span<const int64_t> dims, PortUses& uses)
      : program_(program), inputs_(inputs), dims_(dims), uses_(uses) {}

  std::vector<ValueRange> run() {
    for (const Instruction& instruction : program_.code()) {
      ValueRange value = result_of(instruction);
      value.range = settled(value.range, instruction.type);
      registers_.push_back(value);
    }
    std::vector<ValueRange> results;
    for (const Program::Result& result : program_.results())
      results.push_back(registers_[result.reg]);
    return results;
  }

 private:
  const ValueRange& operand(const Instruction& instruction, int i) const {
    return registers_[instruction.operands[i]];
  }
  RegisterType type_of(const Instruction& instruction, int i) const {
    return program_.code()[instruction.operands[i]].type;
  }

  ValueRange result_of(const Instruction& instruction) {
    const int operands = operand_count(instruction.opcode);
    if (operands == 0) return leaf(instruction);
    if (operands == 1) return unary(instruction);
    if (operands == 2) return {binary(instruction), -1};
    const ValueInterval& condition = operand(instruction, 0).range;
    if (condition.low > 0) return operand(instruction, 1);
    if (condition.high <= 0) return operand(instruction, 2);
    return united(operand(instruction, 1), operand(instruction, 2));
  }

  ValueRange leaf(const Instruction& instruction) const {
    const auto which = static_cast<size_t>(instruction.immediate);
    if (instruction.opcode == Opcode::kInput)
      return which < inputs_.size() ? inputs_[which] : ValueRange{};
    if (instruction.opcode == Opcode::kIndex) {
      const bool is_known = which < dims_.size() && dims_[which] >= 0;
      return {{0, is_known ? std::max(0.0, static_cast<double>(dims_[which]) - 1) : kInfinity}, -1};
    }
    const double value = as_double(Scalar{instruction.immediate}, instruction.type);
    return {{value, value}, -1};
  }

  ValueRange unary(const Instruction& instruction) {
    const ValueRange& value = operand(instruction, 0);
    const ValueInterval& a = value.range;
    switch (instruction.opcode) {
      case Opcode::kCast:
        if (instruction.type == RegisterType::kBool) tested(value);
        return {converted(a, type_of(instruction, 0), instruction.type),
                instruction.type == RegisterType::kBool ? -1 : value.port};
      case Opcode::kRound:
      case Opcode::kSaturate: {
        const auto dtype = static_cast<DataType>(instruction.immediate);
        if (is_float(dtype)) return value;
        const ValueInterval all = ValueInterval::of(dtype);
        if (a.low >= all.low && a.high <= all.high) return value;
        if (instruction.opcode == Opcode::kRound) return {all, -1};
        return {{std::clamp(a.low, all.low, all.high), std::clamp(a.high, all.low, all.high)}, -1};
      }
      case Opcode::kFloor:
      case Opcode::kCeil:
      case Opcode::kRoundEven:
      case Opcode::kTrunc:
        return {rising(a, rounding(instruction.opcode)), value.port};
      default:
        return {unary_range(instruction.opcode, a), -1};
    }
  }

  static double (*rounding(Opcode opcode))(double) {
    switch (opcode) {
      case Opcode::kFloor:
        return [](double x) { return std::floor(x); };
      case Opcode::kCeil:
        return [](double x) { return std::ceil(x); };
      case Opcode::kTrunc:
        return [](double x) { return std::trunc(x); };
      default:
        return [](double x) { return std::nearbyint(x); };
    }
  }

  static ValueInterval unary_range(Opcode opcode, const ValueInterval& a) {
    switch (opcode) {
      case Opcode::kNeg:
        return {-a.high, -a.low};
      case Opcode::kAbs:
        return {a.has(0) ? 0 : std::min(std::abs(a.low), std::abs(a.high)),
                std::max(std::abs(a.low), std::abs(a.high))};
      case Opcode::kSign:
        return rising(a, [](double x) { return x < 0 ? -1.0 : x > 0 ? 1.0 : 0.0; });
      case Opcode::kSqrt:
        return a.low < 0 ? ValueInterval() : rising(a, [](double x) { return std::sqrt(x); });
      case Opcode::kExp:
        return rising(a, [](double x) { return std::exp(x); });
      case Opcode::kExpm1:
        return rising(a, [](double x) { return std::expm1(x); });
      case Opcode::kLog:
        return a.low < 0 ? ValueInterval() : rising(a, [](double x) { return std::log(x); });
      case Opcode::kLog1p:
        return a.low < -1 ? ValueInterval() : rising(a, [](double x) { return std::log1p(x); });
      case Opcode::kTanh:
        return rising(a, [](double x) { return std::tanh(x); });
      case Opcode::kErf:
        return rising(a, [](double x) { return std::erf(x); });
      case Opcode::kSigmoid:
        return rising(a, [](double x) { return 1 / (1 + std::exp(-x)); });
      case Opcode::kSin:
      case Opcode::kCos:
        return {-1, 1};
      case Opcode::kNot:
        return {1 - std::min(1.0, a.high), 1 - std::max(0.0, a.low)};
      case Opcode::kIsNan:
      case Opcode::kIsInf:
        return {0, 1};
      default:
        return {};
    }
  }

  ValueInterval binary(const Instruction& instruction) {
    const ValueRange &left = operand(instruction, 0), &right = operand(instruction, 1);
    const ValueInterval &a = left.range, &b = right.range;
    const RegisterType type = instruction.type;
    switch (instruction.opcode) {
      case Opcode::kAdd:
        return {a.low + b.low, a.high + b.high};
      case Opcode::kSub:
        if (a == ValueInterval{1, 1}) tested(right);
        return {a.low - b.high, a.high - b.low};
      case Opcode::kMul:
        multiplied(left, right);
        return of_corners(a, b, product_of);
      case Opcode::kDiv:
        return quotient(a, b, type);
      case Opcode::kMod:
      case Opcode::kRem:
        return remainder_of(instruction.opcode, a, b);
      case Opcode::kMin:
        return {std::min(a.low, b.low), std::min(a.high, b.high)};
      case Opcode::kMax:
        return {std::max(a.low, b.low), std::max(a.high, b.high)};
      case Opcode::kAnd:
        return {std::min(a.low, b.low), std::min(a.high, b.high)};
      case Opcode::kOr:
        return {std::max(a.low, b.low), std::max(a.high, b.high)};
      case Opcode::kXor:
        return {0, 1};
      case Opcode::kBitAnd:
        if (a.low >= 0 && b.low >= 0) return {0, std::min(a.high, b.high)};
        return all_of(type);
      case Opcode::kBitOr:
      case Opcode::kBitXor:
        if (a.low >= 0 && b.low >= 0) return {0, a.high + b.high};
        return all_of(type);
      case Opcode::kShiftRight:
        if (a.low >= 0 && b.is_point() && b.has(std::clamp(b.low, 0.0, 62.0)))
          return rising(
              a, [&](double x) { return std::floor(std::ldexp(x, -static_cast<int>(b.low))); });
        return all_of(type);
      case Opcode::kEqual:
        return equal(left, right);
      case Opcode::kLess:
        compared(left, right);
        return truth(a.high >= b.low, a.low < b.high);
      case Opcode::kLessEqual:
        compared(left, right);
        return truth(a.high > b.low, a.low <= b.high);
      default:
        return all_of(type);
    }
  }

  ValueInterval equal(const ValueRange& a, const ValueRange& b) {
    for (const auto& [value, other] : {std::pair(a, b), std::pair(b, a)})
      if (value.port >= 0 &&
          (other.range == ValueInterval{0, 0} || other.range == ValueInterval{1, 1}))
        uses_[value.port].is_compared = true;
    for (const auto& [value, other] : {std::pair(a, b), std::pair(b, a)})
      if (value.port >= 0 && other.port < 0 && other.range.is_point() &&
          std::abs(other.range.low) <= kMostMarker)
        if (auto& all = uses_[value.port].looked_for; all.size() < kMostMarkers)
          all.insert(static_cast<int64_t>(other.range.low));
    compared(a, b);
    const bool overlap = a.range.low <= b.range.high && b.range.low <= a.range.high;
    return truth(!(a.range.is_point() && a.range == b.range), overlap);
  }

  // A length is compared to the indices of an axis; one past the last takes them all.
  void compared(const ValueRange& a, const ValueRange& b) {
    for (const auto& [value, other] : {std::pair(a, b), std::pair(b, a)}) {
      if (value.port < 0 || other.port >= 0 || other.range.is_point() || other.range.low < 0 ||
          other.range.high > ValueInterval::of(DataType::kI32).high / 2)
        continue;
      std::optional<ValueInterval>& within = uses_[value.port].within;
      within = within ? united(*within, other.range) : other.range;
    }
  }

  // An integer input that multiplies computed numbers or another input is taken for a mask. One
  // that multiplies a constant table is a position.
  void multiplied(const ValueRange& a, const ValueRange& b) {
    for (const auto& [value, other] : {std::pair(a, b), std::pair(b, a)})
      if (value.port >= 0 && value.port != other.port &&
          (other.port >= 0 || other.range == ValueInterval{}))
        uses_[value.port].is_factor = true;
  }

  void tested(const ValueRange& value) {
    if (value.port >= 0) uses_[value.port].is_tested = true;
  }

  const Program& program_;
  std::span<const ValueRange> inputs_;
  std::span<const int64_t> dims_;
  PortUses& uses_;
  std::vector<ValueRange> registers_;
};

}  // namespace

ValueInterval ValueInterval::of(DataType dtype) {
  const auto bits = static_cast<int>(8 * (dtype == DataType::kString ? 1 : size_of(dtype)));
  if (dtype == DataType::kBool) return {0, 1};
  if (is_unsigned_integer(dtype)) return {0, std::ldexp(1, bits) - 1};
  if (is_signed_integer(dtype)) return {-std::ldexp(1, bits - 1), std::ldexp(1, bits - 1) - 1};
  return {};
}

ValueInterval interval_of(const Tensor& weight) {
  if (weight.count() > kMostWeightElements) return ValueInterval::of(weight.dtype());
  ValueInterval all{kInfinity, -kInfinity};
  const size_t size = size_of(weight.dtype());
  for (size_t at = 0; at + size <= weight.bytes().size(); at += size) {
    const Scalar scalar = load_scalar(weight.dtype(), weight.bytes().data() + at);
    const double value = as_double(scalar, register_type(weight.dtype()));
    if (std::isnan(value)) return {};
    all = united(all, {value, value});
  }
  return all.low > all.high ? ValueInterval{0, 0} : all;
}

bool ValueInterval::is_finite() const { return std::isfinite(low) && std::isfinite(high); }

ValueInterval united(const ValueInterval& a, const ValueInterval& b) {
  return {std::min(a.low, b.low), std::max(a.high, b.high)};
}

ValueRange united(const ValueRange& a, const ValueRange& b) {
  int port = a.port == b.port ? a.port : -1;
  // Padding of an input leaves it an input.
  if (a.port < 0 && a.range.is_point()) port = b.port;
  if (b.port < 0 && b.range.is_point()) port = a.port;
  return {united(a.range, b.range), port};
}

std::vector<ValueRange> program_ranges(const Program& program, std::span<const ValueRange> inputs,
                                       std::span<const int64_t> dims, PortUses& uses) {
  return ProgramWalk(program, inputs, dims, uses).run();
}

}  // namespace anneal
