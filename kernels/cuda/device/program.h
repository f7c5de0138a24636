// The opcodes of graph/program/program.h that are more than an operator of C++, with the meaning
// that stands there, for every register type that they take.

namespace op {

template <class T>
__device__ constexpr bool is_float() {
  return T(0.5) != T(0);
}
template <>
__device__ constexpr bool is_float<bool>() {
  return false;
}
template <class T>
__device__ constexpr bool is_signed() {
  return T(-1) < T(1);
}

template <class T>
struct Unsigned {
  using Type = T;
};
template <>
struct Unsigned<i32> {
  using Type = u32;
};
template <>
struct Unsigned<i64> {
  using Type = u64;
};
template <class T>
using unsigned_t = typename Unsigned<T>::Type;

// For an integer type.
template <class T>
__device__ constexpr T most() {
  constexpr int bits = 8 * sizeof(T) - (is_signed<T>() ? 1 : 0);
  return T(~u64(0) >> (64 - bits));
}
template <class T>
__device__ constexpr T least() {
  return is_signed<T>() ? T(-most<T>() - 1) : T(0);
}

__device__ inline f32 nan_f32() { return __builtin_bit_cast(f32, 0x7fc00000u); }
__device__ inline f64 nan_f64() { return __builtin_bit_cast(f64, 0x7ff8000000000000ull); }
__device__ inline f32 inf_f32() { return __builtin_bit_cast(f32, 0x7f800000u); }
__device__ inline f64 inf_f64() { return __builtin_bit_cast(f64, 0x7ff0000000000000ull); }

// An element of storage as its register holds it.
__device__ inline f32 widen(h16 x) { return to_f32(x); }
__device__ inline f32 widen(bf16 x) { return to_f32(x); }
__device__ inline i32 widen(i8 x) { return x; }
__device__ inline i32 widen(i16 x) { return x; }
__device__ inline u32 widen(u8 x) { return x; }
__device__ inline u32 widen(u16 x) { return x; }
__device__ inline f32 widen(f32 x) { return x; }
__device__ inline f64 widen(f64 x) { return x; }
__device__ inline i32 widen(i32 x) { return x; }
__device__ inline i64 widen(i64 x) { return x; }
__device__ inline u32 widen(u32 x) { return x; }
__device__ inline u64 widen(u64 x) { return x; }

// A number as another type: from a float, truncated and limited to the type's range, NaN as 0.
template <class To, class From>
__device__ inline To cast(From x) {
  if constexpr (is_float<From>() && !is_float<To>()) {
    constexpr From beyond = From(most<To>() / 2 + 1) * From(2);
    if (x != x) return To(0);
    if (x <= From(least<To>())) return least<To>();
    if (x >= beyond) return most<To>();
    return To(x);
  } else {
    return To(x);
  }
}
template <class From>
__device__ inline bool truth(From x) {
  return x != From(0);
}
template <class To, class From>
__device__ inline To saturate(From x) {
  if constexpr (is_float<From>()) {
    return cast<To>(x);
  } else if constexpr (is_signed<From>()) {
    if (x < From(0))
      return !is_signed<To>() ? To(0) : i64(x) < i64(least<To>()) ? least<To>() : To(x);
    return u64(x) > u64(most<To>()) ? most<To>() : To(x);
  } else {
    return u64(x) > u64(most<To>()) ? most<To>() : To(x);
  }
}

// To f32 so that a second rounding to fewer bits is as if from x: what is lost leaves a 1 in the
// last place.
__device__ inline f32 round_to_odd(f64 x) {
  const f32 nearest = f32(x);
  const u32 bits = __builtin_bit_cast(u32, nearest);
  if (!(fabs(x) <= 3.4028234663852886e38) || f64(nearest) == x || (bits & 1) != 0) return nearest;
  const bool too_far = fabs(f64(nearest)) > fabs(x);
  return __builtin_bit_cast(f32, too_far ? bits - 1 : bits + 1);
}
__device__ inline bf16 to_bf16_once(f64 x) { return to_bf16(round_to_odd(x)); }

// name(x) by the function of C's library for each float type.
#define ANNEAL_FLOAT_FUNCTION(name, of_f32, of_f64)         \
  __device__ inline f32 name(f32 x) { return ::of_f32(x); } \
  __device__ inline f64 name(f64 x) { return ::of_f64(x); }
ANNEAL_FLOAT_FUNCTION(ceil, ceilf, ceil)
ANNEAL_FLOAT_FUNCTION(floor, floorf, floor)
ANNEAL_FLOAT_FUNCTION(rint, rintf, rint)
ANNEAL_FLOAT_FUNCTION(trunc, truncf, trunc)
ANNEAL_FLOAT_FUNCTION(sqrt, sqrtf, sqrt)
ANNEAL_FLOAT_FUNCTION(exp, expf, exp)
ANNEAL_FLOAT_FUNCTION(log, logf, log)
ANNEAL_FLOAT_FUNCTION(log1p, log1pf, log1p)
ANNEAL_FLOAT_FUNCTION(expm1, expm1f, expm1)
ANNEAL_FLOAT_FUNCTION(erf, erff, erf)
ANNEAL_FLOAT_FUNCTION(sin, sinf, sin)
ANNEAL_FLOAT_FUNCTION(cos, cosf, cos)
ANNEAL_FLOAT_FUNCTION(tan, tanf, tan)
ANNEAL_FLOAT_FUNCTION(asin, asinf, asin)
ANNEAL_FLOAT_FUNCTION(acos, acosf, acos)
ANNEAL_FLOAT_FUNCTION(atan, atanf, atan)
ANNEAL_FLOAT_FUNCTION(sinh, sinhf, sinh)
ANNEAL_FLOAT_FUNCTION(cosh, coshf, cosh)
ANNEAL_FLOAT_FUNCTION(tanh, tanhf, tanh)
ANNEAL_FLOAT_FUNCTION(asinh, asinhf, asinh)
ANNEAL_FLOAT_FUNCTION(acosh, acoshf, acosh)
ANNEAL_FLOAT_FUNCTION(atanh, atanhf, atanh)
#undef ANNEAL_FLOAT_FUNCTION
__device__ inline f32 rem(f32 a, f32 b) { return fmodf(a, b); }
__device__ inline f64 rem(f64 a, f64 b) { return fmod(a, b); }
__device__ inline f32 pow(f32 a, f32 b) { return powf(a, b); }
__device__ inline f64 pow(f64 a, f64 b) { return ::pow(a, b); }
__device__ inline f32 sign_bit_of(f32 x, f32 from) { return copysignf(x, from); }
__device__ inline f64 sign_bit_of(f64 x, f64 from) { return copysign(x, from); }

template <class T>
__device__ inline bool isnan(T x) {
  return x != x;
}
template <class T>
__device__ inline bool isinf(T x) {
  return x == x && x - x != x - x;
}
// a / b for b from 1 to 2, where division needs no care of b's exponent. It is rounded as a / b is,
// with two exceptions: results below the smallest normal number, and 1 / b of the largest b below
// 2, which may be the float before (tried with every b, and reciprocals two places off).
__device__ inline f32 divide_by_1_to_2(f32 a, f32 b) {
  const f32 guess = reciprocal(b);
  const f32 inverse = fmaf(fmaf(-b, guess, 1.0f), guess, guess);
  const f32 quotient = a * inverse;
  return fmaf(fmaf(-b, quotient, a), inverse, quotient);
}
__device__ inline f64 divide_by_1_to_2(f64 a, f64 b) { return a / b; }
template <class T>
__device__ inline T sigmoid(T x) {
  const T e = exp(-sign_bit_of(x, T(1)));  // never large, so that small results keep their digits
  return divide_by_1_to_2(x >= T(0) ? T(1) : e, T(1) + e);
}

template <class T>
__device__ inline bool is_negative(T x) {
  if constexpr (is_signed<T>())
    return x < T(0);
  else
    return false;
}
template <class T>
__device__ inline T neg(T x) {
  if constexpr (is_float<T>())
    return -x;
  else
    return T(unsigned_t<T>(0) - unsigned_t<T>(x));
}
template <class T>
__device__ inline T abs(T x) {
  if constexpr (is_float<T>())
    return sign_bit_of(x, T(1));
  else
    return is_negative(x) ? neg(x) : x;
}
template <class T>
__device__ inline T sign(T x) {
  return x > T(0) ? T(1) : is_negative(x) ? T(-1) : x == T(0) ? T(0) : x;
}

// Integers wrap.
template <class T>
__device__ inline T add(T a, T b) {
  if constexpr (is_float<T>())
    return a + b;
  else
    return T(unsigned_t<T>(a) + unsigned_t<T>(b));
}
template <class T>
__device__ inline T sub(T a, T b) {
  if constexpr (is_float<T>())
    return a - b;
  else
    return T(unsigned_t<T>(a) - unsigned_t<T>(b));
}
template <class T>
__device__ inline T mul(T a, T b) {
  if constexpr (is_float<T>())
    return a * b;
  else
    return T(unsigned_t<T>(a) * unsigned_t<T>(b));
}
template <class T>
__device__ inline T div(T a, T b) {
  if constexpr (!is_float<T>()) {
    if (b == T(0)) return T(0);
    if constexpr (is_signed<T>())
      if (b == T(-1)) return neg(a);
  }
  return a / b;
}
template <class T>
__device__ inline T rem(T a, T b) {
  if (b == T(0)) return T(0);
  if constexpr (is_signed<T>())
    if (b == T(-1)) return T(0);
  return a % b;
}
template <class T>
__device__ inline T mod(T a, T b) {  // with the sign of b
  const T rest = rem(a, b);
  if constexpr (is_float<T>())
    if (rest == T(0)) return sign_bit_of(rest, b);
  return rest == T(0) || is_negative(rest) == is_negative(b) ? rest : T(rest + b);
}
template <class T>
__device__ inline T pow(T base, T exponent) {
  if constexpr (is_signed<T>()) {
    if (exponent < T(0)) {
      if (base == T(-1)) return exponent % 2 == 0 ? T(1) : T(-1);
      return base == T(1) ? T(1) : T(0);
    }
  }
  unsigned_t<T> result = 1, square = unsigned_t<T>(base);
  for (unsigned_t<T> left = unsigned_t<T>(exponent); left != 0; left >>= 1) {
    if ((left & 1) != 0) result *= square;
    square *= square;
  }
  return T(result);
}
template <class T>
__device__ inline T min(T a, T b) {  // NaN if either is
  return a != a ? a : b != b ? b : a < b ? a : b;
}
template <class T>
__device__ inline T max(T a, T b) {
  return a != a ? a : b != b ? b : b < a ? a : b;
}
template <class T>
__device__ inline T shl(T a, T by) {
  return unsigned_t<T>(by) >= 8 * sizeof(T) ? T(0) : T(unsigned_t<T>(a) << by);
}
template <class T>
__device__ inline T shr(T a, T by) {
  return unsigned_t<T>(by) >= 8 * sizeof(T) ? T(0) : T(a >> by);
}

}  // namespace op
