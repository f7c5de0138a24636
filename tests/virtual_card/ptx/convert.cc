// Conversions between types.
#include <algorithm>
#include <cmath>
#include <limits>

#include "anneal/core/float16.h"
#include "anneal/tests/virtual_card/ptx/entries.h"
#include "anneal/tests/virtual_card/ptx/float8.h"
#include "anneal/tests/virtual_card/ptx/lanes.h"

namespace anneal::ptx {
namespace {

// Between integers: the low bits, or more bits of the source's sign.
template <class To, class From>
struct Cut {
  To operator()(From a) const { return static_cast<To>(a); }
};

// Of an 8-bit integer, in a register of any width. parameters[0]: its bytes.
template <class To, class From>
void from_byte(Warp& warp, const Instruction& instruction) {
  const size_t width = instruction.parameters[0];
  const auto* const bytes = warp.read<std::byte>(instruction.at[1]);
  To result[kLanes];
  for (size_t i = 0; i < kLanes; ++i)
    result[i] = static_cast<To>(static_cast<From>(bytes[i * width]));
  warp.write(instruction.at[0], result);
}

// Of the low half of a register that is wider than the type.
template <class To, class From, class Register>
struct FromLow {
  To operator()(Register a) const { return static_cast<To>(static_cast<From>(a)); }
};
// A result wider than its type has the type's sign in the other bits.
template <class To, class Byte, class From>
struct ToByte {
  To operator()(From a) const { return static_cast<To>(static_cast<Byte>(a)); }
};

enum class Round : uint8_t { kNearest, kZero, kDown, kUp };
template <Round round, class T>
T rounded(T value) {
  switch (round) {
    case Round::kNearest:
      return std::nearbyint(value);
    case Round::kZero:
      return std::trunc(value);
    case Round::kDown:
      return std::floor(value);
    case Round::kUp:
      return std::ceil(value);
  }
  return value;
}

// To integers: values beyond the range become its ends, NaN becomes 0.
template <class To, class From, Round round>
struct ToInteger {
  To operator()(From a) const {
    if (std::isnan(a)) return 0;
    const From value = rounded<round>(a);
    if (value <= static_cast<From>(std::numeric_limits<To>::min()))
      return std::numeric_limits<To>::min();
    if (value >= -static_cast<From>(std::numeric_limits<std::make_signed_t<To>>::min()) *
                     (std::is_signed_v<To> ? 1 : 2))
      return std::numeric_limits<To>::max();
    return static_cast<To>(value);
  }
};
template <class T, Round round>
struct ToWhole {
  T operator()(T a) const { return rounded<round>(a); }
};
template <class To, class From>
struct ToFloat {
  To operator()(From a) const { return static_cast<To>(a); }
};
// To [0, 1]; NaN becomes 0.
struct Saturate {
  float operator()(float a) const { return !(a > 0) ? 0.0F : a > 1 ? 1.0F : a; }
};
struct ToF16 {
  uint16_t operator()(float a) const { return to_f16(a).bits; }
};
struct F64ToF16 {
  uint16_t operator()(double a) const { return to_f16(a).bits; }
};
struct ToBf16 {
  uint16_t operator()(float a) const { return to_bf16(a).bits; }
};
// To tf32: to nearest, away from zero or to even if two are as near; or by cutting off.
enum class Tie : uint8_t { kAway, kEven, kCut };
template <Tie tie>
struct ToTf32 {
  uint32_t operator()(uint32_t bits) const {
    constexpr uint32_t kLow = 0x1fff;
    if ((bits & 0x7f800000) == 0x7f800000) return (bits & 0x7fffff) != 0 ? 0x7fffe000 : bits;
    const uint32_t half = tie == Tie::kCut    ? 0
                          : tie == Tie::kAway ? 0x1000
                                              : 0xfff + (bits >> 13 & 1);
    return (bits + half) & ~kLow;
  }
};
// Two 8-bit floats of two f32, the first in the upper half.
template <Float8 type>
struct ToFloat8s {
  uint16_t operator()(float a, float b) const {
    return static_cast<uint16_t>(to_float8(type, a) << 8 | to_float8(type, b));
  }
};
template <Float8 type>
struct FromFloat8s {
  uint32_t operator()(uint16_t both) const {
    const auto half = [](int bits) {
      return uint32_t{to_f16(to_f32(type, static_cast<uint8_t>(bits))).bits};
    };
    return half(both >> 8) << 16 | half(both & 0xff);
  }
};
struct FromF16 {
  float operator()(uint16_t a) const { return to_f32(Float16{a}); }
};
struct FromBf16 {
  float operator()(uint16_t a) const { return to_f32(BFloat16{a}); }
};

#define CUT(to_name, To, t, from_name, From, f)                                            \
  {                                                                                        \
    "cvt." to_name "." from_name,                                                          \
        unary_of_low<To, From, Cut<To, From>, std::min(sizeof(To), sizeof(From))>, t "=" f \
  }
#define CUTS(to_name, To, t)                                                               \
  CUT(to_name, To, t, "u16", uint16_t, "h"), CUT(to_name, To, t, "s16", int16_t, "h"),     \
      CUT(to_name, To, t, "u32", uint32_t, "w"), CUT(to_name, To, t, "s32", int32_t, "w"), \
      CUT(to_name, To, t, "u64", uint64_t, "d"), CUT(to_name, To, t, "s64", int64_t, "d"), \
      {"cvt." to_name ".u8", from_byte<To, uint8_t>, t "=x"}, {                            \
    "cvt." to_name ".s8", from_byte<To, int8_t>, t "=x"                                    \
  }
#define LOW(to_name, To, t, from_name, From, Register, f)                              \
  {                                                                                    \
    "cvt." to_name "." from_name,                                                      \
        unary_of_low<To, Register, FromLow<To, From, Register>, sizeof(From)>, t "=" f \
  }
#define FROM_LOW(to_name, To, t)                           \
  LOW(to_name, To, t, "u16", uint16_t, uint32_t, "w"),     \
      LOW(to_name, To, t, "s16", int16_t, uint32_t, "w"),  \
      LOW(to_name, To, t, "u16", uint16_t, uint64_t, "d"), \
      LOW(to_name, To, t, "s16", int16_t, uint64_t, "d"),  \
      LOW(to_name, To, t, "u32", uint32_t, uint64_t, "d"), \
      LOW(to_name, To, t, "s32", int32_t, uint64_t, "d")
// Into a register of 16 or of 32 bits.
#define TO_BYTE(from_name, From, f)                                                            \
  {"cvt.s8." from_name, unary<int16_t, From, ToByte<int16_t, int8_t, From>>, "h=" f},          \
      {"cvt.s8." from_name, unary<int32_t, From, ToByte<int32_t, int8_t, From>>, "w=" f},      \
      {"cvt.u8." from_name, unary<uint16_t, From, ToByte<uint16_t, uint8_t, From>>, "h=" f}, { \
    "cvt.u8." from_name, unary<uint32_t, From, ToByte<uint32_t, uint8_t, From>>, "w=" f        \
  }
#define TO_INTEGER(name, To, t, from_name, From, f)                                                \
  {"cvt.rni." name "." from_name, unary<To, From, ToInteger<To, From, Round::kNearest>>, t "=" f}, \
      {"cvt.rzi." name "." from_name, unary<To, From, ToInteger<To, From, Round::kZero>>,          \
       t "=" f},                                                                                   \
      {"cvt.rmi." name "." from_name, unary<To, From, ToInteger<To, From, Round::kDown>>,          \
       t "=" f},                                                                                   \
  {                                                                                                \
    "cvt.rpi." name "." from_name, unary<To, From, ToInteger<To, From, Round::kUp>>, t "=" f       \
  }
#define INTEGER(name, T, r)                                                              \
  TO_INTEGER(name, T, r, "f32", float, "w"), TO_INTEGER(name, T, r, "f64", double, "d"), \
      {"cvt.rn.f32." name, unary<float, T, ToFloat<float, T>>, "w=" r}, {                \
    "cvt.rn.f64." name, unary<double, T, ToFloat<double, T>>, "d=" r                     \
  }

constexpr Entry kEntries[] = {
    CUTS("u16", uint16_t, "h"),
    CUTS("s16", int16_t, "h"),
    CUTS("u32", uint32_t, "w"),
    CUTS("s32", int32_t, "w"),
    CUTS("u64", uint64_t, "d"),
    CUTS("s64", int64_t, "d"),
    FROM_LOW("u32", uint32_t, "w"),
    FROM_LOW("s32", int32_t, "w"),
    FROM_LOW("u64", uint64_t, "d"),
    FROM_LOW("s64", int64_t, "d"),
    TO_BYTE("s16", int16_t, "h"),
    TO_BYTE("u16", uint16_t, "h"),
    TO_BYTE("s32", int32_t, "w"),
    TO_BYTE("u32", uint32_t, "w"),
    TO_BYTE("s64", int64_t, "d"),
    TO_BYTE("u64", uint64_t, "d"),
    INTEGER("s32", int32_t, "w"),
    INTEGER("u32", uint32_t, "w"),
    INTEGER("s64", int64_t, "d"),
    INTEGER("u64", uint64_t, "d"),
    INTEGER("s16", int16_t, "h"),
    INTEGER("u16", uint16_t, "h"),
    {"cvt.rni.f32.f32", unary<float, float, ToWhole<float, Round::kNearest>>, "w=w"},
    {"cvt.rzi.f32.f32", unary<float, float, ToWhole<float, Round::kZero>>, "w=w"},
    {"cvt.rmi.f32.f32", unary<float, float, ToWhole<float, Round::kDown>>, "w=w"},
    {"cvt.rpi.f32.f32", unary<float, float, ToWhole<float, Round::kUp>>, "w=w"},
    {"cvt.rni.f64.f64", unary<double, double, ToWhole<double, Round::kNearest>>, "d=d"},
    {"cvt.rzi.f64.f64", unary<double, double, ToWhole<double, Round::kZero>>, "d=d"},
    {"cvt.rmi.f64.f64", unary<double, double, ToWhole<double, Round::kDown>>, "d=d"},
    {"cvt.rpi.f64.f64", unary<double, double, ToWhole<double, Round::kUp>>, "d=d"},
    {"cvt.f64.f32", unary<double, float, ToFloat<double, float>>, "d=w"},
    {"cvt.rn.f32.f64", unary<float, double, ToFloat<float, double>>, "w=d"},
    {"cvt.sat.f32.f32", unary<float, float, Saturate>, "w=w"},
    {"cvt.rn.f16.f32", unary<uint16_t, float, ToF16>, "h=w"},
    {"cvt.rn.f16.f64", unary<uint16_t, double, F64ToF16>, "h=d"},
    {"cvt.rn.bf16.f32", unary<uint16_t, float, ToBf16>, "h=w"},
    {"cvt.rna.tf32.f32", unary<uint32_t, uint32_t, ToTf32<Tie::kAway>>, "w=w"},
    {"cvt.rn.tf32.f32", unary<uint32_t, uint32_t, ToTf32<Tie::kEven>>, "w=w"},
    {"cvt.rz.tf32.f32", unary<uint32_t, uint32_t, ToTf32<Tie::kCut>>, "w=w"},
    {"cvt.rn.satfinite.e4m3x2.f32", binary<uint16_t, float, float, ToFloat8s<Float8::kE4m3>>,
     "h=ww"},
    {"cvt.rn.satfinite.e5m2x2.f32", binary<uint16_t, float, float, ToFloat8s<Float8::kE5m2>>,
     "h=ww"},
    {"cvt.rn.f16x2.e4m3x2", unary<uint32_t, uint16_t, FromFloat8s<Float8::kE4m3>>, "w=h"},
    {"cvt.rn.f16x2.e5m2x2", unary<uint32_t, uint16_t, FromFloat8s<Float8::kE5m2>>, "w=h"},
    {"cvt.f32.f16", unary<float, uint16_t, FromF16>, "w=h"},
    {"cvt.f32.bf16", unary<float, uint16_t, FromBf16>, "w=h"},
};

}  // namespace

std::span<const Entry> convert_entries() { return kEntries; }

}  // namespace anneal::ptx
