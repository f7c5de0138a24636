#include "anneal/optimizer/precision/number_range.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <span>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/parallel.h"
#include "anneal/optimizer/precision/constant_statistics.h"

namespace anneal {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

NumberRange between(double a, double b, bool is_integer = false) {
  if (std::isnan(a)) a = -kUnbounded;
  if (std::isnan(b)) b = kUnbounded;
  return {std::min(a, b), std::max(a, b), is_integer};
}

NumberRange times(const NumberRange& a, const NumberRange& b) {
  const double ends[] = {product_of_ends(a.least, b.least), product_of_ends(a.least, b.most),
                         product_of_ends(a.most, b.least), product_of_ends(a.most, b.most)};
  const auto [least, most] = std::minmax_element(std::begin(ends), std::end(ends));
  return {*least, *most, a.is_integer && b.is_integer};
}

NumberRange power(const NumberRange& a, const NumberRange& b) {
  if (b.least != b.most || !b.is_integer || b.least < 0 || b.least > 16) {
    if (a.least > 0 && b.magnitude() < kUnbounded && a.most < kUnbounded) {
      const double ends[] = {std::pow(a.least, b.least), std::pow(a.least, b.most),
                             std::pow(a.most, b.least), std::pow(a.most, b.most)};
      return {*std::ranges::min_element(ends), *std::ranges::max_element(ends), false};
    }
    return {a.least >= 0 ? 0 : -kUnbounded, kUnbounded, false};
  }
  const double exponent = b.least;
  if (std::fmod(exponent, 2) == 0)
    return {0, std::max(1.0, std::pow(a.magnitude(), exponent)), a.is_integer};
  return between(std::pow(a.least, exponent), std::pow(a.most, exponent), a.is_integer);
}

NumberRange remainder(const NumberRange& a, const NumberRange& b) {
  const bool is_integer = a.is_integer && b.is_integer;
  const double most = std::min(b.magnitude(), std::max(a.magnitude(), b.magnitude()));
  return {a.least >= 0 && b.least >= 0 ? 0 : -most, most, is_integer};
}

// For monotonically increasing functions.
template <class F>
NumberRange rising(const NumberRange& a, F&& f, bool is_integer = false) {
  return between(f(a.least), f(a.most), is_integer);
}

NumberRange of_function(Opcode opcode, const NumberRange& a) {
  switch (opcode) {
    case Opcode::kSin:
    case Opcode::kCos:
    case Opcode::kTanh:
    case Opcode::kErf:
      return symmetric_range(std::min(1.0, opcode == Opcode::kCos ? 1.0 : 1.13 * a.magnitude()));
    case Opcode::kSigmoid:
      return {0, 1, false};
    case Opcode::kAtan:
    case Opcode::kAsin:
      return symmetric_range(1.6);
    case Opcode::kAcos:
      return {0, 3.2, false};
    case Opcode::kSign:
      return {-1, 1, true};
    case Opcode::kAbs:
      return {a.least <= 0 && a.most >= 0 ? 0 : std::min(std::abs(a.least), std::abs(a.most)),
              a.magnitude(), a.is_integer};
    case Opcode::kNeg:
      return {-a.most, -a.least, a.is_integer};
    case Opcode::kFloor:
    case Opcode::kTrunc:
      return rising(
          a, [](double x) { return std::floor(x); }, true);
    case Opcode::kCeil:
    case Opcode::kRoundEven:
      return {std::floor(a.least), std::ceil(a.most), true};
    case Opcode::kSqrt:
      return rising(a, [](double x) { return std::sqrt(std::max(x, 0.0)); });
    case Opcode::kExp:
      return rising(a, [](double x) { return std::exp(x); });
    case Opcode::kExpm1:
      return rising(a, [](double x) { return std::expm1(x); });
    case Opcode::kLog:
      return rising(a, [](double x) { return x > 0 ? std::log(x) : -kUnbounded; });
    case Opcode::kLog1p:
      return rising(a, [](double x) { return x > -1 ? std::log1p(x) : -kUnbounded; });
    default:
      return {};
  }
}

// Numbers that a thread takes at once.
constexpr int64_t kNumbersAtOnce = 1 << 16;

// The hull of `range` and the numbers.
template <class T>
NumberRange with_elements(NumberRange range, std::span<const T> values) {
  for (const T element : values) range = hull(range, range_of_number(static_cast<double>(element)));
  return range;
}
NumberRange with_elements(const NumberRange& range, std::span<const float> values) {
  const FloatRange floats = range_of_floats(values);
  return hull(range, {floats.least, floats.most, floats.is_integer});
}

template <class T>
NumberRange of_elements(std::span<const T> values, int threads) {
  constexpr NumberRange kNone = {kUnbounded, -kUnbounded, true};
  NumberRange all = kNone;
  std::mutex merging;
  const auto visit = [&](int64_t begin, int64_t end) {
    const NumberRange range = with_elements(
        kNone, values.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
    const std::lock_guard lock(merging);
    all = hull(all, range);
  };
  const int64_t count = std::ssize(values);
  if (count <= kNumbersAtOnce || threads == 1)
    visit(0, count);
  else
    ThreadTeam(threads > 0 ? threads : hardware_threads()).for_ranges(count, kNumbersAtOnce, visit);
  return values.empty() ? kZeroRange : all;
}

}  // namespace

double NumberRange::magnitude() const { return std::max(std::abs(least), std::abs(most)); }

double product_of_ends(double a, double b) { return a == 0 || b == 0 ? 0 : a * b; }

NumberRange symmetric_range(double most, bool is_integer) {
  return between(-most, most, is_integer);
}
NumberRange hull(const NumberRange& a, const NumberRange& b) {
  return {std::min(a.least, b.least), std::max(a.most, b.most), a.is_integer && b.is_integer};
}
NumberRange range_of_number(double value) {
  if (std::isnan(value)) return {0, 0, true};  // rounding keeps it
  return {value, value, std::isinf(value) || value == std::floor(value)};
}

NumberRange range_of_tensor(const Tensor& tensor, int threads) {
  switch (tensor.dtype()) {
    case DataType::kF32:
      return of_elements(tensor.as<float>(), threads);
    case DataType::kF64:
      return of_elements(tensor.as<double>(), threads);
    case DataType::kI32:
      return of_elements(tensor.as<int32_t>(), threads);
    case DataType::kI64:
      return of_elements(tensor.as<int64_t>(), threads);
    case DataType::kU8:
      return of_elements(tensor.as<uint8_t>(), threads);
    case DataType::kI8:
      return of_elements(tensor.as<int8_t>(), threads);
    default:
      return {};
  }
}

NumberRange range_of_type(DataType dtype) {
  switch (dtype) {
    case DataType::kBool:
      return {0, 1, true};
    case DataType::kU8:
      return {0, 255, true};
    case DataType::kI8:
      return {-128, 127, true};
    case DataType::kU16:
      return {0, 65535, true};
    case DataType::kI16:
      return {-32768, 32767, true};
    default:
      return {-kUnbounded, kUnbounded, is_integer(dtype)};
  }
}

bool is_wide_integer(DataType dtype) {
  return dtype == DataType::kI32 || dtype == DataType::kI64 || dtype == DataType::kU32 ||
         dtype == DataType::kU64;
}

NumberRange quotient_range(const NumberRange& a, const NumberRange& b) {
  if (b.least <= 0 && b.most >= 0) return {};
  NumberRange made = times(a, between(1 / b.least, 1 / b.most));
  made.is_integer = false;
  return made;
}

NumberRange range_of(const Instruction& one, DataType result, DataType operand,
                     const NumberRange& a, const NumberRange& b, const NumberRange& c) {
  const bool both = a.is_integer && b.is_integer;
  switch (one.opcode) {
    case Opcode::kCast:
      // A conversion from more than 32 bits to fewer may wrap.
      if (is_integer(result) && is_integer(operand) && a.magnitude() >= 0x1p31)
        return range_of_type(result);
      return is_integer(result) ? NumberRange{std::floor(a.least), std::ceil(a.most), true} : a;
    case Opcode::kRound:
      return a;
    case Opcode::kSaturate: {
      const NumberRange type = range_of_type(static_cast<DataType>(one.immediate));
      return {std::clamp(a.least, type.least, type.most), std::clamp(a.most, type.least, type.most),
              true};
    }
    case Opcode::kAdd:
      return between(a.least + b.least, a.most + b.most, both);
    case Opcode::kSub:
      return between(a.least - b.most, a.most - b.least, both);
    case Opcode::kMul:
      return times(a, b);
    case Opcode::kDiv:
      return quotient_range(a, b);
    case Opcode::kPow:
      return power(a, b);
    case Opcode::kMod:
    case Opcode::kRem:
      return remainder(a, b);
    case Opcode::kMin:
      return {std::min(a.least, b.least), std::min(a.most, b.most), both};
    case Opcode::kMax:
      return {std::max(a.least, b.least), std::max(a.most, b.most), both};
    case Opcode::kSelect:
      return hull(b, c);
    default:
      return of_function(one.opcode, a);
  }
}

NumberRange range_of_literal(const Instruction& one) {
  const Scalar bits{one.immediate};
  switch (one.type) {
    case RegisterType::kF32:
      return range_of_number(bits.as<float>());
    case RegisterType::kF64:
      return range_of_number(bits.as<double>());
    case RegisterType::kI32:
      return range_of_number(bits.as<int32_t>());
    case RegisterType::kU32:
      return range_of_number(bits.as<uint32_t>());
    case RegisterType::kBool:
      return {0, 1, true};
    default:
      return range_of_number(static_cast<double>(bits.as<int64_t>()));
  }
}

}  // namespace anneal
