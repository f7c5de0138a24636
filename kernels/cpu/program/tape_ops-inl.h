// The remaining instructions of a tape. No include guard: included once per target, after
// tape_lanes-inl.h, tape_math-inl.h and tape_convert-inl.h.
#include <hwy/highway.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "anneal/graph/program/integer_division.h"

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Lanes of 4 bytes: whether a shift by `bits` leaves any, and the part of `bits` that it reads.
template <class D, class V>
HWY_INLINE hn::Mask<D> shifts_within(D d, V bits) {
  return hn::Eq(hn::And(bits, hn::Set(d, ~hn::TFromD<D>{31})), hn::Zero(d));
}
template <class D, class V>
HWY_INLINE V low_bits(D d, V bits) {
  return hn::And(bits, hn::Set(d, hn::TFromD<D>{31}));
}

template <class T>
bool run_float_arithmetic(const Work& work) {
  const auto& [step, extent, valid, out, in] = work;
  switch (step.instruction.opcode) {
    case Opcode::kAdd:
      ANNEAL_BINARY(T, hn::Add(a, b));
    case Opcode::kSub:
      ANNEAL_BINARY(T, hn::Sub(a, b));
    case Opcode::kNeg:
      ANNEAL_UNARY(T, hn::Neg(a));
    case Opcode::kMul:
      ANNEAL_BINARY(T, hn::Mul(a, b));
    case Opcode::kDiv:
      ANNEAL_BINARY(T, hn::Div(a, b));
    case Opcode::kMin:
      ANNEAL_BINARY(T, min_nan(d, a, b));
    case Opcode::kMax:
      ANNEAL_BINARY(T, max_nan(d, a, b));
    case Opcode::kAbs:
      ANNEAL_UNARY(T, hn::Abs(a));
    case Opcode::kSqrt:
      ANNEAL_UNARY(T, hn::Sqrt(a));
    case Opcode::kCeil:
      ANNEAL_UNARY(T, hn::Ceil(a));
    case Opcode::kFloor:
      ANNEAL_UNARY(T, hn::Floor(a));
    case Opcode::kTrunc:
      ANNEAL_UNARY(T, hn::Trunc(a));
    case Opcode::kRoundEven:
      ANNEAL_UNARY(T, hn::Round(a));
    case Opcode::kSign:
      ANNEAL_UNARY(T, hn::IfThenElse(hn::IsNaN(a), a,
                                     hn::IfThenElse(hn::Eq(a, hn::Zero(d)), hn::Zero(d),
                                                    hn::CopySign(hn::Set(d, T{1}), a))));
    default:
      return false;
  }
}

// What integers of one size do alike, signed or not. T: signed
template <class T>
bool run_integer_bits(const Work& work) {
  using U = std::make_unsigned_t<T>;
  const auto& [step, extent, valid, out, in] = work;
  switch (step.instruction.opcode) {
    case Opcode::kAdd:
      ANNEAL_BINARY(T, hn::Add(a, b));
    case Opcode::kSub:
      ANNEAL_BINARY(T, hn::Sub(a, b));
    case Opcode::kNeg:
      ANNEAL_UNARY(T, hn::Sub(hn::Zero(d), a));
    case Opcode::kMul:
      if constexpr (sizeof(T) == 4)
        ANNEAL_BINARY(T, hn::Mul(a, b));
      else
        ANNEAL_LIBM2(T, static_cast<T>(static_cast<U>(a) * static_cast<U>(b)));
    case Opcode::kBitAnd:
      ANNEAL_BINARY(T, hn::And(a, b));
    case Opcode::kBitOr:
      ANNEAL_BINARY(T, hn::Or(a, b));
    case Opcode::kBitXor:
      ANNEAL_BINARY(T, hn::Xor(a, b));
    case Opcode::kBitNot:
      ANNEAL_UNARY(T, hn::Not(a));
    case Opcode::kShiftLeft:
      if constexpr (sizeof(T) == 4)
        ANNEAL_BINARY(T, hn::IfThenElseZero(shifts_within(d, b), hn::Shl(a, low_bits(d, b))));
      return false;
    default:
      return false;
  }
}

// What depends on the sign.
template <class T>
bool run_integer_order(const Work& work) {
  const auto& [step, extent, valid, out, in] = work;
  if constexpr (std::is_signed_v<T>) {
    switch (step.instruction.opcode) {
      case Opcode::kDiv:
        ANNEAL_LIBM2(T, divide(a, b).first);
      case Opcode::kMod:
        ANNEAL_LIBM2(T, floor_modulo(a, b));
      default:
        break;
    }
  }
  if constexpr (sizeof(T) == 4) {
    switch (step.instruction.opcode) {
      case Opcode::kShiftRight:
        ANNEAL_BINARY(T, hn::IfThenElseZero(shifts_within(d, b), hn::Shr(a, low_bits(d, b))));
      case Opcode::kMin:
        ANNEAL_BINARY(T, hn::Min(a, b));
      case Opcode::kMax:
        ANNEAL_BINARY(T, hn::Max(a, b));
      default:
        return false;
    }
  } else {
    switch (step.instruction.opcode) {
      case Opcode::kMin:
        ANNEAL_LIBM2(T, a < b ? a : b);
      case Opcode::kMax:
        ANNEAL_LIBM2(T, a < b ? b : a);
      default:
        return false;
    }
  }
}

template <class T>
bool run_arithmetic(const Work& work) {
  if constexpr (std::is_floating_point_v<T>)
    return run_float_arithmetic<T>(work);
  else
    return run_integer_bits<std::make_signed_t<T>>(work) || run_integer_order<T>(work);
}

template <class T>
bool run_math(const Work& work) {
  const auto& [step, extent, valid, out, in] = work;
  if constexpr (std::is_same_v<T, float>) {
    switch (step.instruction.opcode) {
      case Opcode::kExp:
        ANNEAL_UNARY(T, exp_f32(d, a));
      case Opcode::kLog:
        ANNEAL_UNARY(T, log_f32(d, a));
      case Opcode::kTanh:
        ANNEAL_UNARY(T, tanh_f32(d, a));
      case Opcode::kSigmoid:
        ANNEAL_UNARY(T, sigmoid_f32(d, a));
      case Opcode::kErf:
        ANNEAL_UNARY(T, erf_f32(d, a));
      case Opcode::kExpm1:
        ANNEAL_UNARY(T, expm1_f32(d, a));
      case Opcode::kSin:
        ANNEAL_UNARY(T, (sine_f32<0>(d, a)));
      case Opcode::kCos:
        ANNEAL_UNARY(T, (sine_f32<1>(d, a)));
      case Opcode::kAtan:
        ANNEAL_UNARY(T, hn::Atan(d, a));
      case Opcode::kPow:
        ANNEAL_BINARY(T, pow_f32(d, a, b));
      default:
        break;
    }
  }
  switch (step.instruction.opcode) {
    case Opcode::kExp:
      ANNEAL_LIBM(T, std::exp(a));
    case Opcode::kLog:
      ANNEAL_LIBM(T, std::log(a));
    case Opcode::kTanh:
      ANNEAL_LIBM(T, std::tanh(a));
    case Opcode::kErf:
      ANNEAL_LIBM(T, std::erf(a));
    case Opcode::kLog1p:
      ANNEAL_LIBM(T, std::log1p(a));
    case Opcode::kExpm1:
      ANNEAL_LIBM(T, std::expm1(a));
    case Opcode::kSin:
      ANNEAL_LIBM(T, std::sin(a));
    case Opcode::kCos:
      ANNEAL_LIBM(T, std::cos(a));
    case Opcode::kTan:
      ANNEAL_LIBM(T, std::tan(a));
    case Opcode::kAsin:
      ANNEAL_LIBM(T, std::asin(a));
    case Opcode::kAcos:
      ANNEAL_LIBM(T, std::acos(a));
    case Opcode::kAtan:
      ANNEAL_LIBM(T, std::atan(a));
    case Opcode::kSinh:
      ANNEAL_LIBM(T, std::sinh(a));
    case Opcode::kCosh:
      ANNEAL_LIBM(T, std::cosh(a));
    case Opcode::kAsinh:
      ANNEAL_LIBM(T, std::asinh(a));
    case Opcode::kAcosh:
      ANNEAL_LIBM(T, std::acosh(a));
    case Opcode::kAtanh:
      ANNEAL_LIBM(T, std::atanh(a));
    case Opcode::kPow:
      ANNEAL_LIBM2(T, std::pow(a, b));
    case Opcode::kRem:
      ANNEAL_LIBM2(T, std::fmod(a, b));
    default:
      return false;
  }
}

#if HWY_TARGET != HWY_SCALAR
// out = f(d, a, b), a mask of lanes of 8 bytes, as lanes of 4 bytes.
template <class T, class F>
HWY_INLINE void compare_wide(const Work& work, F f) {
  const hn::ScalableTag<T> d;
  const hn::RebindToUnsigned<decltype(d)> d_wide;
  const hn::Rebind<uint32_t, decltype(d)> d_narrow;
  constexpr int64_t kStep = HWY_LANES(T);
  const Extent extent = joined<3>(work.extent, {work.out, work.in[0], work.in[1]});
  for (int64_t row = 0; row < extent.rows; ++row) {
    const T *const a = work.in[0].row<T>(row), *const b = work.in[1].row<T>(row);
    auto* const to = work.out.row<uint32_t>(row);
    for (int64_t i = 0; i < extent.width; i += kStep) {
      const auto mask = f(d, hn::LoadU(d, a + i * work.in[0].column_step),
                          hn::LoadU(d, b + i * work.in[1].column_step));
      const auto lanes = hn::BitCast(d_wide, hn::VecFromMask(d, mask));
      hn::StoreU(hn::TruncateTo(d_narrow, lanes), d_narrow, to + i);
    }
  }
}
#endif

template <class T>
bool run_compare(const Work& work) {
  const auto& [step, extent, valid, out, in] = work;
  const Opcode opcode = step.instruction.opcode;
  if constexpr (sizeof(T) == 4) {
    switch (opcode) {
      case Opcode::kEqual:
        ANNEAL_BINARY(T, hn::VecFromMask(d, hn::Eq(a, b)));
      case Opcode::kLess:
        ANNEAL_BINARY(T, hn::VecFromMask(d, hn::Lt(a, b)));
      default:
        break;
    }
    if constexpr (std::is_same_v<T, float>) {
      switch (opcode) {
        case Opcode::kLessEqual:
          ANNEAL_BINARY(T, hn::VecFromMask(d, hn::Le(a, b)));
        case Opcode::kIsNan:
          ANNEAL_UNARY(T, hn::VecFromMask(d, hn::IsNaN(a)));
        case Opcode::kIsInf:
          ANNEAL_UNARY(
              T, hn::VecFromMask(
                     d, hn::Eq(hn::Abs(a), hn::Set(d, std::numeric_limits<float>::infinity()))));
        default:
          return false;
      }
    } else {
      if (opcode != Opcode::kLessEqual) return false;
      ANNEAL_BINARY(T, hn::Not(hn::VecFromMask(d, hn::Lt(b, a))));
    }
  } else {
#if HWY_TARGET != HWY_SCALAR
    const auto compare_vectors = [&](auto f) HWY_ATTR {
      compare_wide<T>(work, f);
      return true;
    };
    switch (opcode) {
      case Opcode::kEqual:
        return compare_vectors([](auto, auto a, auto b) HWY_ATTR { return hn::Eq(a, b); });
      case Opcode::kLess:
        return compare_vectors([](auto, auto a, auto b) HWY_ATTR { return hn::Lt(a, b); });
      case Opcode::kLessEqual:
        if constexpr (std::is_floating_point_v<T>)
          return compare_vectors([](auto, auto a, auto b) HWY_ATTR { return hn::Le(a, b); });
        else
          return compare_vectors([](auto, auto a, auto b)
                                     HWY_ATTR { return hn::Not(hn::Lt(b, a)); });
      default:
        return false;
    }
#else
    const auto compare = [&](auto f) {
      map_lanes<int32_t, T, T>(
          work.valid, [f](T a, T b) { return f(a, b) ? -1 : 0; }, work.out, work.in[0], work.in[1]);
      return true;
    };
    switch (opcode) {
      case Opcode::kEqual:
        return compare([](T a, T b) { return a == b; });
      case Opcode::kLess:
        return compare([](T a, T b) { return a < b; });
      case Opcode::kLessEqual:
        return compare([](T a, T b) { return a <= b; });
      default:
        return false;
    }
#endif
  }
}

inline bool run_bool(const Work& work) {
  const auto& [step, extent, valid, out, in] = work;
  switch (step.instruction.opcode) {
    case Opcode::kNot:
      ANNEAL_UNARY(int32_t, hn::Not(a));
    case Opcode::kAnd:
      ANNEAL_BINARY(int32_t, hn::And(a, b));
    case Opcode::kOr:
      ANNEAL_BINARY(int32_t, hn::Or(a, b));
    case Opcode::kXor:
      ANNEAL_BINARY(int32_t, hn::Xor(a, b));
    case Opcode::kEqual:
      ANNEAL_BINARY(int32_t, hn::Not(hn::Xor(a, b)));
    default:
      return false;
  }
}

inline bool run_select(const Work& work) {
  const auto& [step, extent, valid, out, in] = work;
  const RegisterType type = step.instruction.type;
  if (type == RegisterType::kF64 || type == RegisterType::kI64 || type == RegisterType::kU64) {
    map_lanes<uint64_t, int32_t, uint64_t, uint64_t>(
        valid, [](int32_t which, uint64_t a, uint64_t b) { return which != 0 ? a : b; }, out, in[0],
        in[1], in[2]);
  } else {
    map_vectors<int32_t>(
        extent,
        [](auto, auto which, auto a, auto b)
            HWY_ATTR { return hn::IfThenElse(hn::MaskFromVec(which), a, b); },
        out, in[0], in[1], in[2]);
  }
  return true;
}

template <class T>
bool run_typed(const Work& work) {
  if (run_arithmetic<T>(work) || run_compare<T>(work)) return true;
  if constexpr (std::is_floating_point_v<T>) return run_math<T>(work);
  return false;
}

// The reference meaning, for opcodes without a loop of their own.
inline void run_evaluated(const Work& work) {
  const auto& [step, extent, valid, out, in] = work;
  const int count = step.operand_count;
  const auto size_of_lane = [](RegisterType type) {
    const bool wide =
        type == RegisterType::kF64 || type == RegisterType::kI64 || type == RegisterType::kU64;
    return wide ? int64_t{8} : int64_t{4};
  };
  const int64_t out_size = size_of_lane(step.instruction.type);
  std::array<Scalar, 3> operands;
  for (int64_t row = 0; row < valid.rows; ++row) {
    for (int64_t i = 0; i < valid.width; ++i) {
      for (int k = 0; k < count; ++k) {
        const int64_t size = size_of_lane(step.operand_types[k]);
        operands[k].bits = 0;
        std::memcpy(&operands[k].bits,
                    in[k].data + (row * in[k].row_step + i * in[k].column_step) * size,
                    static_cast<size_t>(size));
        if (step.operand_types[k] == RegisterType::kBool) operands[k].bits &= 1;
      }
      Scalar result = evaluate(step.instruction, {operands.data(), static_cast<size_t>(count)},
                               {step.operand_types.data(), static_cast<size_t>(count)});
      if (step.instruction.type == RegisterType::kBool)
        result.bits = (result.bits & 0xff) != 0 ? ~uint64_t{0} : 0;
      std::memcpy(out.data + (row * out.row_step + i * out.column_step) * out_size, &result.bits,
                  static_cast<size_t>(out_size));
    }
  }
}

inline bool run_approximations(const Work& work) {
  const auto& [step, extent, valid, out, in] = work;
  switch (step.coarse) {
    case Bf16Approximation::kSigmoid:
      ANNEAL_UNARY(float, approximate_sigmoid(d, a));
    case Bf16Approximation::kOnePlusErf:
      ANNEAL_UNARY(float, approximate_one_plus_erf(d, a));
    case Bf16Approximation::kOnePlusTanh:
      ANNEAL_UNARY(float, approximate_one_plus_tanh(d, a));
    case Bf16Approximation::kNone:
      break;
  }
  return false;
}

inline void run_step(const Work& work) {
  if (work.step.is_pair) return run_pair(work);
  if (run_approximations(work)) return;
  const auto done = [&] {
    switch (work.step.instruction.opcode) {
      case Opcode::kCast:
        return run_cast(work);
      case Opcode::kRound:
        return run_round(work);
      case Opcode::kSaturate:
        return run_saturate(work);
      case Opcode::kSelect:
        return run_select(work);
      default:
        break;
    }
    switch (work.step.operand_types[0]) {
      case RegisterType::kF32:
        return run_typed<float>(work);
      case RegisterType::kF64:
        return run_typed<double>(work);
      case RegisterType::kI32:
        return run_typed<int32_t>(work);
      case RegisterType::kI64:
        return run_typed<int64_t>(work);
      case RegisterType::kU32:
        return run_typed<uint32_t>(work);
      case RegisterType::kU64:
        return run_typed<uint64_t>(work);
      case RegisterType::kBool:
        return run_bool(work);
    }
    return false;
  };
  if (!done()) run_evaluated(work);
}

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
