// Elementary functions of f32 vectors, within 4 ulp everywhere, special values and subnormal
// results included. Polynomials are minimax fits; their coefficients are written low to high. The
// arc tangent is Highway's, whose other functions have limits on their range.
// No include guard: included once per target.
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// c[0] + c[1] x + ...
template <class D, class V, class T, size_t N>
HWY_INLINE V polynomial(D d, V x, const T (&c)[N]) {
  V sum = hn::Set(d, c[N - 1]);
  for (size_t i = N - 1; i-- > 0;) sum = hn::MulAdd(sum, x, hn::Set(d, c[i]));
  return sum;
}

// v * 2^n for n in [-252, 254], in two steps, so that subnormal results are rounded once.
template <class D, class V, class VI>
HWY_INLINE V scale_by_power(D d, V v, VI n) {
  const hn::RebindToSigned<D> di;
  const auto half = hn::ShiftRight<1>(n);
  const auto bias = hn::Set(di, 127);
  const auto first = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const auto second = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(n, half), bias)));
  return hn::Mul(hn::Mul(v, first), second);
}

// exp of a number between these is neither infinity nor 0.
constexpr float kLeastExponent = -104, kMostExponent = 89;

// e^x = 2^n * (tail + 1), where n is the nearest integer to x / ln(2), also as a float.
template <class V, class VI>
struct ExpParts {
  V tail, rounded;
  VI n;
};
template <class D, class V>
HWY_INLINE auto exp_parts(D d, V x) {
  static constexpr float kCoefficients[] = {0.5f, 0.1666657692f, 0.04166655453f, 0.008363190326f,
                                            0.001392619767f};
  const hn::RebindToSigned<D> di;
  // Adding 1.5 * 2^23 rounds to an integer, found in the low bits.
  const V magic = hn::Set(d, 12582912.0f);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const V rounded = hn::Sub(shifted, magic);
  V r = hn::NegMulAdd(rounded, hn::Set(d, 0.693145752f), x);
  r = hn::NegMulAdd(rounded, hn::Set(d, 1.42860677e-6f), r);
  const V tail = hn::MulAdd(hn::Mul(r, r), polynomial(d, r, kCoefficients), r);
  const auto n = hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, magic));
  return ExpParts<V, decltype(hn::Zero(di))>{tail, rounded, n};
}

// clamped: an exponent in that range. NaN if `x` is, whatever it was clamped to.
template <class D, class V>
HWY_INLINE V exp_in_range(D d, V clamped, [[maybe_unused]] V x) {
  const auto parts = exp_parts(d, clamped);
  const V near_one = hn::Add(parts.tail, hn::Set(d, 1.0f));
#if HWY_TARGET == HWY_AVX3
  // NaN went through clamping: x86 gives the second operand then.
  return V{_mm512_scalef_ps(near_one.raw, parts.rounded.raw)};
#else
  return hn::IfThenElse(hn::IsNaN(x), x, scale_by_power(d, near_one, parts.n));
#endif
}

template <class D, class V>
HWY_INLINE V exp_f32(D d, V x) {
  const V not_small = hn::Max(hn::Set(d, kLeastExponent), x);
  return exp_in_range(d, hn::Min(hn::Set(d, kMostExponent), not_small), x);
}
// REQUIRES: no x > 0
template <class D, class V>
HWY_INLINE V exp_up_to_one(D d, V x) {
  return exp_in_range(d, hn::Max(hn::Set(d, kLeastExponent), x), x);
}

// exp(x) - 1.
template <class D, class V>
HWY_INLINE V expm1_f32(D d, V x) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(d, std::expm1(hn::GetLane(x)));
#else
  const hn::RebindToSigned<D> di;
  const V one = hn::Set(d, 1.0f);
  // 2^n tail + (2^n - 1) keeps the digits of small results.
  const auto parts = exp_parts(d, x);
  const V power = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(parts.n, hn::Set(di, 127))));
  const V near_zero = hn::MulAdd(power, parts.tail, hn::Sub(power, one));
  const V far = hn::Sub(exp_f32(d, x), one);
  return hn::CopySign(hn::IfThenElse(hn::Lt(hn::Abs(x), hn::Set(d, 15.0f)), near_zero, far), x);
#endif
}

// sin(x + quarters * pi / 2).
template <int quarters, class D, class V>
HWY_INLINE V sine_f32(D d, V x) {
  const auto by_library = [](float number) {
    return quarters == 0 ? std::sin(number) : std::cos(number);
  };
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(d, by_library(hn::GetLane(x)));
#else
  // (sin(r) - r) / r^3 and (cos(r) - 1 + r^2 / 2) / r^4 as polynomials of r^2, for |r| <= pi / 4.
  static constexpr float kSine[] = {-0.1666665375f, 0.008332150988f, -0.0001951397862f};
  static constexpr float kCosine[] = {0.04166664556f, -0.001388730365f, 2.443166704e-05f};
  // With larger numbers r would lose digits.
  constexpr float kMost = 65536;
  const hn::RebindToSigned<D> di;
  const V magic = hn::Set(d, 12582912.0f);
  const V shifted = hn::MulAdd(x, hn::Set(d, 0.636619772f), magic);
  const V rounded = hn::Sub(shifted, magic);
  V r = hn::NegMulAdd(rounded, hn::Set(d, 1.570796371f), x);
  r = hn::NegMulAdd(rounded, hn::Set(d, -4.371138829e-08f), r);
  r = hn::NegMulAdd(rounded, hn::Set(d, -1.71512451e-15f), r);
  const V square = hn::Mul(r, r), one = hn::Set(d, 1.0f);
  const V sine = hn::MulAdd(hn::Mul(r, square), polynomial(d, square, kSine), r);
  const V cosine = hn::MulAdd(hn::Mul(square, square), polynomial(d, square, kCosine),
                              hn::NegMulAdd(hn::Set(d, 0.5f), square, one));
  const auto quarter = hn::Add(hn::BitCast(di, shifted), hn::Set(di, quarters));
  const auto is_odd = hn::Ne(hn::And(quarter, hn::Set(di, 1)), hn::Zero(di));
  const V sign = hn::BitCast(d, hn::ShiftLeft<30>(hn::And(quarter, hn::Set(di, 2))));
  V result = hn::Xor(hn::IfThenElse(hn::RebindMask(d, is_odd), cosine, sine), sign);
  if constexpr (quarters == 0) result = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, result);
  const auto is_near = hn::Le(hn::Abs(x), hn::Set(d, kMost));
  if (hn::AllTrue(d, is_near)) return result;
  HWY_ALIGN float lanes[HWY_LANES(float)];
  hn::Store(x, d, lanes);
  for (float& lane : lanes) lane = by_library(lane);
  return hn::IfThenElse(is_near, result, hn::Load(d, lanes));
#endif
}

template <class D, class V>
HWY_INLINE V log_f32(D d, V x) {
  static constexpr float kCoefficients[] = {0.3333333118f,  -0.2499999696f, 0.2000071575f,
                                            -0.1666780232f, 0.1424905765f,  -0.1242568733f,
                                            0.1168541992f,  -0.1147973385f, 0.06971611471f};
  const hn::RebindToSigned<D> di;
  const V smallest_normal = hn::Set(d, 1.17549435e-38f);
  const auto subnormal = hn::Lt(x, smallest_normal);
  const V normal = hn::IfThenElse(subnormal, hn::Mul(x, hn::Set(d, 8388608.0f)), x);
  // normal = m * 2^e with m in [sqrt(1/2), sqrt(2))
  const auto from_root = hn::Sub(hn::BitCast(di, normal), hn::Set(di, 0x3f3504f3));
  const auto exponent = hn::ShiftRight<23>(from_root);
  const auto mantissa =
      hn::Add(hn::And(from_root, hn::Set(di, 0x007fffff)), hn::Set(di, 0x3f3504f3));
  V e = hn::ConvertTo(d, exponent);
  e = hn::IfThenElse(subnormal, hn::Sub(e, hn::Set(d, 23.0f)), e);
  const V f = hn::Sub(hn::BitCast(d, mantissa), hn::Set(d, 1.0f));
  const V f2 = hn::Mul(f, f);
  V small = hn::Mul(hn::Mul(f2, f), polynomial(d, f, kCoefficients));
  small = hn::MulAdd(e, hn::Set(d, -2.12194440e-4f), small);
  small = hn::NegMulAdd(hn::Set(d, 0.5f), f2, small);
  V result = hn::MulAdd(e, hn::Set(d, 0.693359375f), hn::Add(f, small));
  const V infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  result = hn::IfThenElse(hn::Eq(x, infinity), infinity, result);
  result = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity), result);
  result = hn::IfThenElse(hn::Lt(x, hn::Zero(d)),
                          hn::Set(d, std::numeric_limits<float>::quiet_NaN()), result);
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

// |x|^y by logarithm and exponential in f64, for a finite x and y.
template <class D, class V>
HWY_INLINE V power_f64(D d, V magnitude, V y) {
  // log2(m) = s * polynomial(s^2) with s = (m - 1) / (m + 1), and 2^f: both series of Taylor.
  static constexpr double kLog2[] = {2.8853900817779268,  0.96179669392597555, 0.57707801635558531,
                                     0.41219858311113239, 0.3205988979753252,  0.26230818925253879,
                                     0.22195308321368667};
  static constexpr double kExp2[] = {1.0,
                                     0.69314718055994529,
                                     0.24022650695910069,
                                     0.055504108664821576,
                                     0.0096181291076284769,
                                     0.0013333558146428441,
                                     0.00015403530393381606,
                                     1.5252733804059838e-05,
                                     1.3215486790144305e-06};
  const hn::RebindToUnsigned<D> du;
  const V one = hn::Set(d, 1.0), two_52 = hn::Set(d, 4503599627370496.0);
  const auto bits = hn::BitCast(du, magnitude);
  // The exponent as a number, by way of the low bits of 2^52.
  V e = hn::BitCast(d, hn::Or(hn::ShiftRight<52>(bits), hn::BitCast(du, two_52)));
  e = hn::Sub(e, hn::Add(two_52, hn::Set(d, 1023.0)));
  const auto fraction = hn::And(bits, hn::Set(du, uint64_t{0x000fffffffffffff}));
  V m = hn::BitCast(d, hn::Or(fraction, hn::BitCast(du, one)));
  const auto large = hn::Gt(m, hn::Set(d, 1.4142135623730951));
  m = hn::IfThenElse(large, hn::Mul(m, hn::Set(d, 0.5)), m);
  e = hn::IfThenElse(large, hn::Add(e, one), e);
  const V s = hn::Div(hn::Sub(m, one), hn::Add(m, one));
  const V logarithm = hn::MulAdd(s, polynomial(d, hn::Mul(s, s), kLog2), e);
  // Beyond these the result is infinity or 0 in f32.
  const V t = hn::Min(hn::Max(hn::Mul(y, logarithm), hn::Set(d, -160.0)), hn::Set(d, 160.0));
  const V magic = hn::Set(d, 6755399441055744.0);  // 1.5 * 2^52: rounds to an integer
  const V shifted = hn::Add(t, magic);
  const auto n = hn::Sub(hn::BitCast(du, shifted), hn::BitCast(du, magic));
  const V scale = hn::BitCast(d, hn::ShiftLeft<52>(hn::Add(n, hn::Set(du, uint64_t{1023}))));
  return hn::Mul(polynomial(d, hn::Sub(t, hn::Sub(shifted, magic)), kExp2), scale);
}

// As std::pow, special values included.
template <class D, class V>
HWY_INLINE V pow_f32(D d, V x, V y) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(d, std::pow(hn::GetLane(x), hn::GetLane(y)));
#else
  const hn::Repartition<double, D> dd;
  const hn::Half<D> dh;
  const V infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  const V magnitude = hn::Abs(x), zero = hn::Zero(d), half = hn::Set(d, 0.5f);
  const auto finite = hn::And(hn::Lt(magnitude, infinity), hn::Lt(hn::Abs(y), infinity));
  if (!hn::AllTrue(d, finite)) {
    HWY_ALIGN float a[HWY_LANES(float)], b[HWY_LANES(float)];
    hn::Store(x, d, a);
    hn::Store(y, d, b);
    for (size_t i = 0; i < hn::Lanes(d); ++i) a[i] = std::pow(a[i], b[i]);
    return hn::Load(d, a);
  }
  const auto low = power_f64(dd, hn::PromoteTo(dd, hn::LowerHalf(dh, magnitude)),
                             hn::PromoteTo(dd, hn::LowerHalf(dh, y)));
  const auto high = power_f64(dd, hn::PromoteTo(dd, hn::UpperHalf(dh, magnitude)),
                              hn::PromoteTo(dd, hn::UpperHalf(dh, y)));
  V result = hn::Combine(d, hn::DemoteTo(dh, high), hn::DemoteTo(dh, low));
  const V of_zero = hn::IfThenElse(hn::Lt(y, zero), infinity, zero);
  result = hn::IfThenElse(hn::And(hn::Eq(magnitude, zero), hn::Ne(y, zero)), of_zero, result);
  const V half_y = hn::Mul(y, half);
  const auto whole = hn::Eq(hn::Trunc(y), y);
  const auto odd = hn::And(whole, hn::Ne(hn::Trunc(half_y), half_y));
  result = hn::IfThenElse(odd, hn::CopySign(result, x), result);
  return hn::IfThenElse(hn::AndNot(whole, hn::Lt(x, zero)),
                        hn::Set(d, std::numeric_limits<float>::quiet_NaN()), result);
#endif
}

template <class D, class V>
HWY_INLINE V tanh_f32(D d, V x) {
  static constexpr float kCoefficients[] = {-0.3333332894f, 0.1333276974f, -0.05385090958f,
                                            0.020997179f, -0.006096714166f};
  const V one = hn::Set(d, 1.0f);
  const V magnitude = hn::Abs(x);
  const V square = hn::Mul(x, x);
  const V near_zero = hn::MulAdd(hn::Mul(square, polynomial(d, square, kCoefficients)), x, x);
  const V twice = hn::Add(magnitude, magnitude);
  const V e = exp_in_range(d, hn::Min(hn::Set(d, kMostExponent), twice), twice);
  const V denominator = hn::Add(e, one);
  const V far = hn::CopySign(hn::Sub(one, hn::Div(hn::Set(d, 2.0f), denominator)), x);
  return hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0.625f)), near_zero, far);
}

template <class D, class V>
HWY_INLINE V sigmoid_f32(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V e = exp_up_to_one(d, hn::Or(x, hn::SignBit(d)));
  // e over 1 + e on the left, so that small results keep their digits
  return hn::Div(hn::IfNegativeThenElse(x, e, one), hn::Add(one, e));
}

template <class D, class V>
HWY_INLINE V erf_f32(D d, V x) {
  static constexpr float kNear[] = {0.1283791666f,   -0.37612633f,    0.112836837f,
                                    -0.02685872269f, 0.005199318198f, -0.0008122960888f,
                                    8.285826549e-5f};
  // log(erfc(t)) / t + 1
  static constexpr float kFar[] = {-0.1289027981f,   -0.6341481838f,   -0.1078556529f,
                                   0.02513955031f,   -0.004303789308f, 0.0004988250082f,
                                   -3.438850877e-5f, 1.046065682e-6f};
  const V square = hn::Mul(x, x);
  const V near_zero = hn::MulAdd(polynomial(d, square, kNear), x, x);
  const V t = hn::Min(hn::Abs(x), hn::Set(d, 4.0f));  // erf(4) rounds to 1
  const V exponent = hn::MulSub(polynomial(d, t, kFar), t, t);
  const V far = hn::CopySign(hn::Sub(hn::Set(d, 1.0f), exp_up_to_one(d, exponent)), x);
  const V result = hn::IfThenElse(hn::Lt(hn::Abs(x), hn::Set(d, 0.9375f)), near_zero, far);
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

// NaN if either is. x86 gives the second operand where one is NaN.
template <class D, class V>
HWY_INLINE V min_nan(D, V a, V b) {
  const V least = hn::IfThenElse(hn::IsNaN(a), a, hn::Min(a, b));
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  return hn::IfThenElse(hn::IsNaN(b), b, least);
#else
  return least;
#endif
}
template <class D, class V>
HWY_INLINE V max_nan(D, V a, V b) {
  const V most = hn::IfThenElse(hn::IsNaN(a), a, hn::Max(a, b));
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  return hn::IfThenElse(hn::IsNaN(b), b, most);
#else
  return most;
#endif
}

// To the nearest value of bf16, ties to even.
template <class D, class V>
HWY_INLINE V round_bf16(D d, V x) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto nearest = hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd);
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000u));
  const auto high = hn::Set(du, 0xffff0000u);
  const V rounded = hn::BitCast(d, hn::And(nearest, high));
  return hn::IfThenElse(hn::IsNaN(x), hn::BitCast(d, hn::And(quiet, high)), rounded);
}

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
