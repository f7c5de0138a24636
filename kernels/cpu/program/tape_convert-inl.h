// Instructions that change the type or the precision of lanes. No include guard: included once per
// target, behind tape_lanes-inl.h and tape_math-inl.h.
#include <hwy/highway.h>

#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Clamps, then cuts the fraction off; NaN gives 0. REQUIRES: bounds that f32 holds exactly.
inline void saturate_f32(const Work& work, float low, float high) {
  map_vectors<float>(
      work.extent,
      [low, high](auto d, auto a) HWY_ATTR {
        const hn::RebindToSigned<decltype(d)> di;
        const auto number = hn::IfThenElseZero(hn::Eq(a, a), a);
        const auto clamped = hn::Min(hn::Max(number, hn::Set(d, low)), hn::Set(d, high));
        return hn::ConvertTo(di, clamped);
      },
      work.out, work.in[0]);
}

inline bool run_saturate(const Work& work) {
  const auto& [step, extent, valid, out, in] = work;
  const auto to = static_cast<DataType>(step.instruction.immediate);
  const bool narrow =
      to == DataType::kI8 || to == DataType::kI16 || to == DataType::kU8 || to == DataType::kU16;
  if (!narrow) return false;
  const bool byte = is_8bit(to);
  const bool with_sign = is_signed_integer(to);
  const int32_t high = with_sign ? (byte ? 127 : 32767) : (byte ? 255 : 65535);
  const int32_t low = with_sign ? -high - 1 : 0;
  switch (step.operand_types[0]) {
    case RegisterType::kF32:
      saturate_f32(work, static_cast<float>(low), static_cast<float>(high));
      return true;
    case RegisterType::kI32:
      map_vectors<int32_t>(
          extent,
          [low, high](auto d, auto a)
              HWY_ATTR { return hn::Min(hn::Max(a, hn::Set(d, low)), hn::Set(d, high)); },
          out, in[0]);
      return true;
    case RegisterType::kU32:
      map_vectors<uint32_t>(
          extent,
          [high](auto d, auto a)
              HWY_ATTR { return hn::Min(a, hn::Set(d, static_cast<uint32_t>(high))); },
          out, in[0]);
      return true;
    default:
      return false;
  }
}

inline bool run_round(const Work& work) {
  const auto& [step, extent, valid, out, in] = work;
  if (step.operand_types[0] == RegisterType::kF64) return false;
  switch (static_cast<DataType>(step.instruction.immediate)) {
    case DataType::kBF16:
      ANNEAL_UNARY(float, round_bf16(d, a));
    case DataType::kI8:
      ANNEAL_UNARY(int32_t, hn::ShiftRight<24>(hn::ShiftLeft<24>(a)));
    case DataType::kI16:
      ANNEAL_UNARY(int32_t, hn::ShiftRight<16>(hn::ShiftLeft<16>(a)));
    case DataType::kU8:
      ANNEAL_UNARY(uint32_t, hn::And(a, hn::Set(d, 0xffu)));
    case DataType::kU16:
      ANNEAL_UNARY(uint32_t, hn::And(a, hn::Set(d, 0xffffu)));
#if ANNEAL_EMULATES_F16
    case DataType::kF16:
      ANNEAL_LIBM(float, to_f32(to_f16(a)));
#else
    case DataType::kF16:
      map_vectors<float>(
          extent,
          [](auto d, auto a) HWY_ATTR {
            const hn::Rebind<hwy::float16_t, decltype(d)> dn;
            return hn::PromoteTo(d, hn::DemoteTo(dn, a));
          },
          out, in[0]);
      return true;
#endif
    default:
      return false;
  }
}

template <class To, class From>
To cast_lane(From value) {
  if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    using Limits = std::numeric_limits<To>;
    if (std::isnan(value)) return 0;
    if (value <= static_cast<From>(Limits::min())) return Limits::min();
    if (value >= std::ldexp(From{1}, Limits::digits)) return Limits::max();
  }
  return static_cast<To>(value);
}

template <class From>
bool cast_from(const Work& work) {
  const auto& [step, extent, valid, out, in] = work;
  const auto cast = [&](auto zero) {
    using To = decltype(zero);
    map_lanes<To, From>(
        work.valid, [](From a) { return cast_lane<To>(a); }, work.out, work.in[0]);
    return true;
  };
  switch (step.instruction.type) {
    case RegisterType::kF32:
      return cast(float{});
    case RegisterType::kF64:
      return cast(double{});
    case RegisterType::kI32:
      return cast(int32_t{});
    case RegisterType::kI64:
      return cast(int64_t{});
    case RegisterType::kU32:
      return cast(uint32_t{});
    case RegisterType::kU64:
      return cast(uint64_t{});
    case RegisterType::kBool:
      map_lanes<int32_t, From>(
          valid, [](From a) { return a != From{0} ? -1 : 0; }, out, in[0]);
      return true;
  }
  return false;
}

// As cast_lane().
inline void cast_f32_to_u32(const Work& work) {
  map_vectors<float>(
      work.extent,
      [](auto d, auto a) HWY_ATTR {
        const hn::RebindToSigned<decltype(d)> di;
        const auto middle = hn::Set(d, 0x1p31F);
        const auto number = hn::IfThenElseZero(hn::Gt(a, hn::Zero(d)), a);
        const auto is_large = hn::Ge(number, middle);
        // Beyond the largest i32 it becomes that.
        const auto low = hn::ConvertTo(di, hn::Sub(number, hn::IfThenElseZero(is_large, middle)));
        return hn::Xor(low, hn::ShiftLeft<31>(hn::And(hn::BitCast(di, hn::VecFromMask(d, is_large)),
                                                      hn::Set(di, 1))));
      },
      work.out, work.in[0]);
}

#if HWY_TARGET == HWY_AVX3
inline void cast_f32_to_i64(const Work& work) {
  const hn::ScalableTag<int64_t> d;
  const hn::ScalableTag<double> d_wide;
  const hn::Rebind<float, decltype(d)> d_narrow;
  for (int64_t row = 0; row < work.extent.rows; ++row) {
    const float* const from = work.in[0].row<float>(row);
    int64_t* const to = work.out.row<int64_t>(row);
    for (int64_t i = 0; i < work.extent.width; i += HWY_LANES(int64_t)) {
      const auto a = hn::PromoteTo(d_wide, hn::LoadU(d_narrow, from + i * work.in[0].column_step));
      hn::StoreU(hn::ConvertTo(d, hn::IfThenElseZero(hn::Eq(a, a), a)), d, to + i);
    }
  }
}
#endif

inline bool run_cast(const Work& work) {
  const auto& [step, extent, valid, out, in] = work;
  const RegisterType to = step.instruction.type;
  switch (step.operand_types[0]) {
    case RegisterType::kF32:
      if (to == RegisterType::kBool)
        ANNEAL_UNARY(float, hn::Not(hn::VecFromMask(d, hn::Eq(a, hn::Zero(d)))));
      if (to == RegisterType::kI32) {
        map_vectors<float>(
            extent,
            [](auto d, auto a) HWY_ATTR {
              const hn::RebindToSigned<decltype(d)> di;
              return hn::ConvertTo(di, hn::IfThenElseZero(hn::Eq(a, a), a));
            },
            out, in[0]);
        return true;
      }
      if (to == RegisterType::kU32) {
        cast_f32_to_u32(work);
        return true;
      }
#if HWY_TARGET == HWY_AVX3
      if (to == RegisterType::kI64) {
        cast_f32_to_i64(work);
        return true;
      }
#endif
      return cast_from<float>(work);
    case RegisterType::kI32:
      if (to == RegisterType::kF32) {
        map_vectors<int32_t>(
            extent,
            [](auto d, auto a) HWY_ATTR {
              const hn::RebindToFloat<decltype(d)> df;
              return hn::ConvertTo(df, a);
            },
            out, in[0]);
        return true;
      }
      if (to == RegisterType::kU32) ANNEAL_UNARY(int32_t, a);
      if (to == RegisterType::kBool)
        ANNEAL_UNARY(int32_t, hn::Not(hn::VecFromMask(d, hn::Eq(a, hn::Zero(d)))));
      return cast_from<int32_t>(work);
    case RegisterType::kU32:
      if (to == RegisterType::kI32) ANNEAL_UNARY(int32_t, a);
      if (to == RegisterType::kF32) {
        // The halves are exact, their sum is rounded once.
        map_vectors<uint32_t>(
            extent,
            [](auto d, auto a) HWY_ATTR {
              const hn::RebindToFloat<decltype(d)> df;
              const hn::RebindToSigned<decltype(d)> di;
              const auto high = hn::ConvertTo(df, hn::BitCast(di, hn::ShiftRight<16>(a)));
              const auto low = hn::ConvertTo(df, hn::BitCast(di, hn::And(a, hn::Set(d, 0xffffu))));
              return hn::MulAdd(high, hn::Set(df, 65536.0f), low);
            },
            out, in[0]);
        return true;
      }
      return cast_from<uint32_t>(work);
    case RegisterType::kF64:
      return cast_from<double>(work);
    case RegisterType::kI64:
      return cast_from<int64_t>(work);
    case RegisterType::kU64:
      return cast_from<uint64_t>(work);
    case RegisterType::kBool:
      break;
  }
  const auto one_if = [&](auto one) {
    using To = decltype(one);
    map_lanes<To, int32_t>(
        work.valid, [](int32_t a) { return a != 0 ? To{1} : To{0}; }, work.out, work.in[0]);
    return true;
  };
  switch (to) {
    case RegisterType::kF32:
      ANNEAL_UNARY(int32_t, hn::And(a, hn::Set(d, 0x3f800000)));
    case RegisterType::kI32:
    case RegisterType::kU32:
      ANNEAL_UNARY(int32_t, hn::And(a, hn::Set(d, 1)));
    case RegisterType::kF64:
      return one_if(1.0);
    case RegisterType::kI64:
    case RegisterType::kU64:
      return one_if(int64_t{1});
    default:
      return false;
  }
}

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
