// Arithmetic of f32 and f64. Rounding is that of the instruction's name; subnormal numbers are kept
// unless it says ftz. A NaN result is 0x7fffffff, which cards give and the manual leaves open.
#include <xmmintrin.h>

#include <cmath>

#include "anneal/tests/virtual_card/ptx/entries.h"
#include "anneal/tests/virtual_card/ptx/lanes.h"

namespace anneal::ptx {
namespace {

template <class T>
using FloatBits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
template <class T>
T canonical(T value) {
  constexpr auto kNan = static_cast<FloatBits<T>>(~FloatBits<T>(0) >> 1);
  return std::isnan(value) ? std::bit_cast<T>(kNan) : value;
}
float flushed(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0F, value) : value;
}

template <class T>
struct Add {
  T operator()(T a, T b) const { return canonical(a + b); }
};
template <class T>
struct Sub {
  T operator()(T a, T b) const { return canonical(a - b); }
};
template <class T>
struct Mul {
  T operator()(T a, T b) const { return canonical(a * b); }
};
template <class T>
struct Div {
  T operator()(T a, T b) const { return canonical(a / b); }
};
template <class T>
struct Reciprocal {
  T operator()(T a) const { return canonical(1 / a); }
};
template <class T>
struct Fma {
  T operator()(T a, T b, T c) const { return canonical(std::fma(a, b, c)); }
};
template <class T>
struct Sqrt {
  T operator()(T a) const { return canonical(std::sqrt(a)); }
};
template <class T>
struct Neg {
  T operator()(T a) const { return -a; }
};
template <class T>
struct Abs {
  T operator()(T a) const { return std::fabs(a); }
};
// The magnitude of b with the sign of a.
template <class T>
struct CopySign {
  T operator()(T a, T b) const { return std::copysign(b, a); }
};
// Of a number and a NaN the number; -0 is less than 0.
template <class T>
struct Min {
  T operator()(T a, T b) const {
    if (std::isnan(a)) return canonical(b);
    if (std::isnan(b) || a < b) return a;
    return b < a || std::signbit(b) ? b : a;
  }
};
template <class T>
struct Max {
  T operator()(T a, T b) const {
    if (std::isnan(a)) return canonical(b);
    if (std::isnan(b) || a > b) return a;
    return b > a || std::signbit(a) ? b : a;
  }
};

// a b + c by the processor's own fused operation.
inline float fused(float a, float b, float c) {
  __m128 sum = _mm_set_ss(c);
  const __m128 x = _mm_set_ss(a), y = _mm_set_ss(b);
  asm volatile("vfmadd231ss %2, %1, %0" : "+x"(sum) : "x"(x), "x"(y));
  return _mm_cvtss_f32(sum);
}
inline double fused(double a, double b, double c) {
  __m128d sum = _mm_set_sd(c);
  const __m128d x = _mm_set_sd(a), y = _mm_set_sd(b);
  asm volatile("vfmadd231sd %2, %1, %0" : "+x"(sum) : "x"(x), "x"(y));
  return _mm_cvtsd_f64(sum);
}

// The names that end in rm, rp and rz. What is added to a product is the zero that keeps the sign
// of a product of 0.
enum class Directed : uint8_t { kAdd, kSub, kMul, kFma };
template <class T, Directed operation, unsigned mode>
void directed(Warp& warp, const Instruction& instruction) {
  constexpr T kZero = mode == _MM_ROUND_DOWN ? T(0) : -T(0);
  const auto* const a = warp.read<T>(instruction.at[1]);
  const auto* const b = warp.read<T>(instruction.at[2]);
  const T* const c = operation == Directed::kFma ? warp.read<T>(instruction.at[3]) : nullptr;
  T result[kLanes];
  const unsigned before = _MM_GET_ROUNDING_MODE();
  _MM_SET_ROUNDING_MODE(mode);
  for (int i = 0; i < kLanes; ++i)
    result[i] = operation == Directed::kFma ? fused(a[i], b[i], c[i])
                : operation == Directed::kMul
                    ? fused(a[i], b[i], kZero)
                    : fused(a[i], T(1), operation == Directed::kAdd ? b[i] : -b[i]);
  _MM_SET_ROUNDING_MODE(before);
  for (T& each : result) each = canonical(each);
  warp.write(instruction.at[0], result);
}

// The nearest float, moved by as many units as the launch asks for, at most kMost.
template <int kMost>
float moved(const Warp& warp, float value) {
  const int ulps = warp.block().arithmetic.approximate_ulps;
  if (std::isfinite(value) && value != 0)
    for (int k = 0; k < std::abs(ulps) && k < kMost; ++k)
      value = std::nextafter(value, ulps > 0 ? INFINITY : -INFINITY);
  return value;
}

template <class F, bool flushes = true>
void approximate(Warp& warp, const Instruction& instruction) {
  const auto* const a = warp.read<float>(instruction.at[1]);
  float result[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    const float from = flushes ? flushed(a[i]) : a[i];
    const float value = moved<F::kMostUlps>(warp, static_cast<float>(F()(double{from})));
    result[i] = canonical(flushes ? flushed(value) : value);
  }
  warp.write(instruction.at[0], result);
}
// div.approx: within 2 units, and no quotient by more than 2^126.
template <bool flushes>
void divide_approximately(Warp& warp, const Instruction& instruction) {
  const auto* const a = warp.read<float>(instruction.at[1]);
  const auto* const b = warp.read<float>(instruction.at[2]);
  float result[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    const float x = flushes ? flushed(a[i]) : a[i], y = flushes ? flushed(b[i]) : b[i];
    const bool is_large = std::isfinite(y) && std::fabs(y) > 0x1p126F;
    const float quotient = is_large ? x * std::copysign(0.0F, y) : moved<2>(warp, x / y);
    result[i] = canonical(flushes ? flushed(quotient) : quotient);
  }
  warp.write(instruction.at[0], result);
}
// The manual's largest errors: ex2 2 units, rcp and rsqrt 1 or 2, lg2 absolute 2^-22.
struct Ex2 {
  static constexpr int kMostUlps = 2;
  double operator()(double a) const { return std::exp2(a); }
};
struct Rcp {
  static constexpr int kMostUlps = 1;
  double operator()(double a) const { return 1 / a; }
};
struct Rsqrt {
  static constexpr int kMostUlps = 2;
  double operator()(double a) const { return 1 / std::sqrt(a); }
};

// rcp and rsqrt of f64: from the upper half of the number, and the lower half of the result is 0.
template <class F>
void approximate_coarsely(Warp& warp, const Instruction& instruction) {
  const auto* const a = warp.read<double>(instruction.at[1]);
  const auto upper_half = [](double value) {
    if (std::fpclassify(value) == FP_SUBNORMAL) return std::copysign(0.0, value);
    return std::bit_cast<double>(std::bit_cast<uint64_t>(value) >> 32 << 32);
  };
  double result[kLanes];
  for (int i = 0; i < kLanes; ++i)
    result[i] = std::isnan(a[i]) ? canonical(a[i]) : canonical(upper_half(F()(upper_half(a[i]))));
  warp.write(instruction.at[0], result);
}

#define ARITHMETIC(name, T, r)                                                                  \
  {"add.rn." name, binary<T, T, T, Add<T>>, r "=" r r},                                         \
      {"sub.rn." name, binary<T, T, T, Sub<T>>, r "=" r r},                                     \
      {"mul.rn." name, binary<T, T, T, Mul<T>>, r "=" r r},                                     \
      {"div.rn." name, binary<T, T, T, Div<T>>, r "=" r r},                                     \
      {"fma.rn." name, ternary<T, T, T, T, Fma<T>>, r "=" r r r},                               \
      {"sqrt.rn." name, unary<T, T, Sqrt<T>>, r "=" r},                                         \
      {"rcp.rn." name, unary<T, T, Reciprocal<T>>, r "=" r},                                    \
      {"neg." name, unary<T, T, Neg<T>>, r "=" r}, {"abs." name, unary<T, T, Abs<T>>, r "=" r}, \
      {"copysign." name, binary<T, T, T, CopySign<T>>, r "=" r r},                              \
      {"min." name, binary<T, T, T, Min<T>>, r "=" r r}, {                                      \
    "max." name, binary<T, T, T, Max<T>>, r "=" r r                                             \
  }

#define DIRECTED_OF(rounding, mode, name, T, r)                                   \
  {"add." rounding "." name, directed<T, Directed::kAdd, mode>, r "=" r r},       \
      {"sub." rounding "." name, directed<T, Directed::kSub, mode>, r "=" r r},   \
      {"mul." rounding "." name, directed<T, Directed::kMul, mode>, r "=" r r}, { \
    "fma." rounding "." name, directed<T, Directed::kFma, mode>, r "=" r r r      \
  }
#define DIRECTED(rounding, mode) \
  DIRECTED_OF(rounding, mode, "f32", float, "w"), DIRECTED_OF(rounding, mode, "f64", double, "d")

constexpr Entry kEntries[] = {
    ARITHMETIC("f32", float, "w"),
    ARITHMETIC("f64", double, "d"),
    DIRECTED("rm", _MM_ROUND_DOWN),
    DIRECTED("rp", _MM_ROUND_UP),
    DIRECTED("rz", _MM_ROUND_TOWARD_ZERO),
    {"ex2.approx.ftz.f32", approximate<Ex2>, "w=w"},
    {"ex2.approx.f32", approximate<Ex2, false>, "w=w"},
    {"div.approx.f32", divide_approximately<false>, "w=ww"},
    {"div.approx.ftz.f32", divide_approximately<true>, "w=ww"},
    {"rcp.approx.ftz.f32", approximate<Rcp>, "w=w"},
    {"rcp.approx.ftz.f64", approximate_coarsely<Rcp>, "d=d"},
    {"rsqrt.approx.ftz.f64", approximate_coarsely<Rsqrt>, "d=d"},
    {"rsqrt.approx.ftz.f32", approximate<Rsqrt>, "w=w"},
};

}  // namespace

std::span<const Entry> float_entries() { return kEntries; }

}  // namespace anneal::ptx
