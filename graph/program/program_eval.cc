// evaluate(): what every opcode means, one element at a time. Written to be read: kernels are
// compared with this.
#include <bit>
#include <cmath>
#include <concepts>
#include <limits>
#include <type_traits>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/core/float16.h"
#include "anneal/graph/program/integer_division.h"
#include "anneal/graph/program/program.h"

namespace anneal {
namespace {

bool truth(Scalar value) { return (value.bits & 0xff) != 0; }

// Calls f with a value of the C++ type of a register.
template <class F>
Scalar with_value(RegisterType type, Scalar value, F&& f) {
  switch (type) {
    case RegisterType::kF32:
      return f(value.as<float>());
    case RegisterType::kF64:
      return f(value.as<double>());
    case RegisterType::kI32:
      return f(value.as<int32_t>());
    case RegisterType::kI64:
      return f(value.as<int64_t>());
    case RegisterType::kU32:
      return f(value.as<uint32_t>());
    case RegisterType::kU64:
      return f(value.as<uint64_t>());
    case RegisterType::kBool:
      return f(truth(value));
  }
  check(false, "a register type is one of the list");
  return {};
}

template <class To, class From>
To convert(From value) {
  if constexpr (std::is_same_v<To, bool>) {
    return value != From{0};
  } else if constexpr (std::floating_point<From> && std::integral<To>) {
    using Limits = std::numeric_limits<To>;
    if (std::isnan(value)) return 0;
    if (value <= static_cast<From>(Limits::min())) return Limits::min();
    if (value >= std::ldexp(From{1}, Limits::digits)) return Limits::max();
    return static_cast<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

template <class To, class From>
To clamp_to(From value) {
  if constexpr (std::floating_point<From>) {
    return convert<To>(value);
  } else {
    using Limits = std::numeric_limits<To>;
    if (std::cmp_less(value, Limits::min())) return Limits::min();
    if (std::cmp_greater(value, Limits::max())) return Limits::max();
    return static_cast<To>(value);
  }
}

template <class From>
Scalar cast(From value, RegisterType type) {
  return with_value(type, {},
                    [&](auto zero) { return Scalar::of(convert<decltype(zero)>(value)); });
}

// To f32 so that a second rounding to fewer bits is as if from `value`: what is lost leaves a 1 in
// the last place.
float round_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (!(std::abs(value) <= std::numeric_limits<float>::max())) return nearest;
  const auto bits = std::bit_cast<uint32_t>(nearest);
  if (static_cast<double>(nearest) == value || (bits & 1) != 0) return nearest;
  const bool too_far = std::abs(static_cast<double>(nearest)) > std::abs(value);
  return std::bit_cast<float>(too_far ? bits - 1 : bits + 1);
}

Scalar round(DataType dtype, RegisterType type, Scalar value) {
  const bool wide = type == RegisterType::kF64;
  switch (dtype) {
    case DataType::kF16:
      return Scalar::of(to_f32(wide ? to_f16(value.as<double>()) : to_f16(value.as<float>())));
    case DataType::kBF16:
      return Scalar::of(
          to_f32(to_bf16(wide ? round_to_odd(value.as<double>()) : value.as<float>())));
    default: {
      std::byte narrow[8];
      store_scalar(dtype, value, narrow);
      return load_scalar(dtype, narrow);
    }
  }
}

template <class From>
Scalar saturate(DataType dtype, From value) {
  switch (dtype) {
    case DataType::kI8:
      return Scalar::of(int32_t{clamp_to<int8_t>(value)});
    case DataType::kI16:
      return Scalar::of(int32_t{clamp_to<int16_t>(value)});
    case DataType::kI32:
      return Scalar::of(clamp_to<int32_t>(value));
    case DataType::kI64:
      return Scalar::of(clamp_to<int64_t>(value));
    case DataType::kU8:
      return Scalar::of(uint32_t{clamp_to<uint8_t>(value)});
    case DataType::kU16:
      return Scalar::of(uint32_t{clamp_to<uint16_t>(value)});
    case DataType::kU32:
      return Scalar::of(clamp_to<uint32_t>(value));
    case DataType::kU64:
      return Scalar::of(clamp_to<uint64_t>(value));
    default:
      check(false, "values saturate to an integer type");
      return {};
  }
}

template <std::floating_point T>
T sigmoid(T x) {
  if (x >= 0) return T{1} / (T{1} + std::exp(-x));
  const T e = std::exp(x);  // so that small results keep their digits
  return e / (T{1} + e);
}

template <std::floating_point T>
Scalar unary(Opcode opcode, T x) {
  switch (opcode) {
    case Opcode::kNeg:
      return Scalar::of(-x);
    case Opcode::kAbs:
      return Scalar::of(std::abs(x));
    case Opcode::kSign:
      return Scalar::of(x > 0 ? T{1} : x < 0 ? T{-1} : x == 0 ? T{0} : x);
    case Opcode::kCeil:
      return Scalar::of(std::ceil(x));
    case Opcode::kFloor:
      return Scalar::of(std::floor(x));
    case Opcode::kRoundEven:
      return Scalar::of(std::nearbyint(x));
    case Opcode::kTrunc:
      return Scalar::of(std::trunc(x));
    case Opcode::kSqrt:
      return Scalar::of(std::sqrt(x));
    case Opcode::kExp:
      return Scalar::of(std::exp(x));
    case Opcode::kLog:
      return Scalar::of(std::log(x));
    case Opcode::kLog1p:
      return Scalar::of(std::log1p(x));
    case Opcode::kExpm1:
      return Scalar::of(std::expm1(x));
    case Opcode::kErf:
      return Scalar::of(std::erf(x));
    case Opcode::kSin:
      return Scalar::of(std::sin(x));
    case Opcode::kCos:
      return Scalar::of(std::cos(x));
    case Opcode::kTan:
      return Scalar::of(std::tan(x));
    case Opcode::kAsin:
      return Scalar::of(std::asin(x));
    case Opcode::kAcos:
      return Scalar::of(std::acos(x));
    case Opcode::kAtan:
      return Scalar::of(std::atan(x));
    case Opcode::kSinh:
      return Scalar::of(std::sinh(x));
    case Opcode::kCosh:
      return Scalar::of(std::cosh(x));
    case Opcode::kTanh:
      return Scalar::of(std::tanh(x));
    case Opcode::kAsinh:
      return Scalar::of(std::asinh(x));
    case Opcode::kAcosh:
      return Scalar::of(std::acosh(x));
    case Opcode::kAtanh:
      return Scalar::of(std::atanh(x));
    case Opcode::kSigmoid:
      return Scalar::of(sigmoid(x));
    case Opcode::kIsNan:
      return Scalar::of(std::isnan(x));
    case Opcode::kIsInf:
      return Scalar::of(std::isinf(x));
    default:
      check(false, "an opcode of one float");
      return {};
  }
}

template <std::integral T>
Scalar unary(Opcode opcode, T x) {
  if constexpr (std::is_same_v<T, bool>) {
    check(opcode == Opcode::kNot, "an opcode of one bool");
    return Scalar::of(!x);
  } else {
    using U = std::make_unsigned_t<T>;
    const T negated = static_cast<T>(U{0} - static_cast<U>(x));
    switch (opcode) {
      case Opcode::kNeg:
        return Scalar::of(negated);
      case Opcode::kAbs:
        return Scalar::of(x < T{0} ? negated : x);
      case Opcode::kSign:
        return Scalar::of(static_cast<T>((x > T{0}) - (x < T{0})));
      case Opcode::kBitNot:
        return Scalar::of(static_cast<T>(~x));
      default:
        check(false, "an opcode of one integer");
        return {};
    }
  }
}

template <std::floating_point T>
T modulo(T a, T b) {  // with the sign of b
  const T rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(rest, b);
  return (rest < 0) == (b < 0) ? rest : rest + b;
}

template <std::floating_point T>
T minimum(T a, T b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

template <std::floating_point T>
Scalar binary(Opcode opcode, T a, T b) {
  switch (opcode) {
    case Opcode::kAdd:
      return Scalar::of(a + b);
    case Opcode::kSub:
      return Scalar::of(a - b);
    case Opcode::kMul:
      return Scalar::of(a * b);
    case Opcode::kDiv:
      return Scalar::of(a / b);
    case Opcode::kMod:
      return Scalar::of(modulo(a, b));
    case Opcode::kRem:
      return Scalar::of(std::fmod(a, b));
    case Opcode::kPow:
      return Scalar::of(std::pow(a, b));
    case Opcode::kMin:
      return Scalar::of(minimum(a, b));
    case Opcode::kMax:
      return Scalar::of(-minimum(-a, -b));
    case Opcode::kEqual:
      return Scalar::of(a == b);
    case Opcode::kLess:
      return Scalar::of(a < b);
    case Opcode::kLessEqual:
      return Scalar::of(a <= b);
    default:
      check(false, "an opcode of two floats");
      return {};
  }
}

template <std::integral T>
T power(T base, T exponent) {
  using U = std::make_unsigned_t<T>;
  if constexpr (std::is_signed_v<T>) {
    if (exponent < 0) {
      if (base == -1) return exponent % 2 == 0 ? 1 : -1;
      return base == 1 ? 1 : 0;
    }
  }
  U result = 1;
  U square = static_cast<U>(base);
  for (U left = static_cast<U>(exponent); left != 0; left >>= 1) {
    if ((left & 1) != 0) result *= square;
    square *= square;
  }
  return static_cast<T>(result);
}

template <std::integral T>
Scalar binary(Opcode opcode, T a, T b) {
  using U = std::make_unsigned_t<T>;
  const U x = static_cast<U>(a);
  const U y = static_cast<U>(b);
  const bool shifts_out = y >= static_cast<U>(8 * sizeof(T));
  switch (opcode) {
    case Opcode::kAdd:
      return Scalar::of(static_cast<T>(x + y));
    case Opcode::kSub:
      return Scalar::of(static_cast<T>(x - y));
    case Opcode::kMul:
      return Scalar::of(static_cast<T>(x * y));
    case Opcode::kDiv:
      return Scalar::of(divide(a, b).first);
    case Opcode::kMod:
      return Scalar::of(floor_modulo(a, b));
    case Opcode::kRem:
      return Scalar::of(divide(a, b).second);
    case Opcode::kPow:
      return Scalar::of(power(a, b));
    case Opcode::kMin:
      return Scalar::of(a < b ? a : b);
    case Opcode::kMax:
      return Scalar::of(a < b ? b : a);
    case Opcode::kBitAnd:
      return Scalar::of(static_cast<T>(x & y));
    case Opcode::kBitOr:
      return Scalar::of(static_cast<T>(x | y));
    case Opcode::kBitXor:
      return Scalar::of(static_cast<T>(x ^ y));
    case Opcode::kShiftLeft:
      return Scalar::of(shifts_out ? T{0} : static_cast<T>(x << y));
    case Opcode::kShiftRight:
      return Scalar::of(shifts_out ? T{0} : static_cast<T>(a >> y));
    case Opcode::kEqual:
      return Scalar::of(a == b);
    case Opcode::kLess:
      return Scalar::of(a < b);
    case Opcode::kLessEqual:
      return Scalar::of(a <= b);
    default:
      check(false, "an opcode of two integers");
      return {};
  }
}

Scalar binary(Opcode opcode, bool a, bool b) {
  switch (opcode) {
    case Opcode::kAnd:
      return Scalar::of(a && b);
    case Opcode::kOr:
      return Scalar::of(a || b);
    case Opcode::kXor:
      return Scalar::of(a != b);
    case Opcode::kEqual:
      return Scalar::of(a == b);
    default:
      check(false, "an opcode of two bools");
      return {};
  }
}

template <class T>
T read(const std::byte* from) {
  T value;
  __builtin_memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
void write(T value, std::byte* to) {
  __builtin_memcpy(to, &value, sizeof(T));
}

}  // namespace

Scalar evaluate(const Instruction& instruction, std::span<const Scalar> operands,
                std::span<const RegisterType> operand_types) {
  const Opcode opcode = instruction.opcode;
  const Scalar first = operands[0];
  const RegisterType type = operand_types[0];
  const auto dtype = static_cast<DataType>(instruction.immediate);
  switch (opcode) {
    case Opcode::kCast:
      return with_value(type, first, [&](auto x) { return cast(x, instruction.type); });
    case Opcode::kRound:
      return round(dtype, type, first);
    case Opcode::kSaturate:
      return with_value(type, first, [&](auto x) {
        if constexpr (std::is_same_v<decltype(x), bool>) {
          check(false, "a bool does not saturate");
          return Scalar{};
        } else {
          return saturate(dtype, x);
        }
      });
    case Opcode::kSelect:
      return operands[truth(first) ? 1 : 2];
    default:
      break;
  }
  if (operands.size() == 1)
    return with_value(type, first, [&](auto x) { return unary(opcode, x); });
  return with_value(type, first, [&](auto x) {
    if constexpr (std::is_same_v<decltype(x), bool>) {
      return binary(opcode, x, truth(operands[1]));
    } else {
      return binary(opcode, x, operands[1].as<decltype(x)>());
    }
  });
}

Scalar load_scalar(DataType dtype, const std::byte* from) {
  switch (dtype) {
    case DataType::kF32:
      return Scalar::of(read<float>(from));
    case DataType::kF64:
      return Scalar::of(read<double>(from));
    case DataType::kF16:
      return Scalar::of(to_f32(Float16{read<uint16_t>(from)}));
    case DataType::kBF16:
      return Scalar::of(to_f32(BFloat16{read<uint16_t>(from)}));
    case DataType::kI8:
      return Scalar::of(int32_t{read<int8_t>(from)});
    case DataType::kI16:
      return Scalar::of(int32_t{read<int16_t>(from)});
    case DataType::kI32:
      return Scalar::of(read<int32_t>(from));
    case DataType::kI64:
      return Scalar::of(read<int64_t>(from));
    case DataType::kU8:
      return Scalar::of(uint32_t{read<uint8_t>(from)});
    case DataType::kU16:
      return Scalar::of(uint32_t{read<uint16_t>(from)});
    case DataType::kU32:
      return Scalar::of(read<uint32_t>(from));
    case DataType::kU64:
      return Scalar::of(read<uint64_t>(from));
    case DataType::kBool:
      return Scalar::of(*from != std::byte{0});
    case DataType::kString:
      break;
  }
  check(false, "a string is not loaded as a number");
  return {};
}

void store_scalar(DataType dtype, Scalar value, std::byte* to) {
  switch (dtype) {
    case DataType::kF16:
      return write(to_f16(value.as<float>()).bits, to);
    case DataType::kBF16:
      return write(to_bf16(value.as<float>()).bits, to);
    case DataType::kBool:
      return write(static_cast<uint8_t>(truth(value)), to);
    default:  // the low bytes of the register
      __builtin_memcpy(to, &value.bits, size_of(dtype));
  }
}

}  // namespace anneal
