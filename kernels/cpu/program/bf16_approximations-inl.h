// ApproximatedInstruction functions of f32 vectors (program/bf16_approximations.h). Without AVX-512
// they are the exact ones. No include guard: included once per target, behind tape_math-inl.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3
// 2^x, within 2^-18: a minimax fit of 2^f for f in [0, 1], times 2^floor(x).
template <class D, class V>
HWY_INLINE V coarse_exp2(D d, V x) {
  static constexpr float kCoefficients[] = {1.00000259f, 0.693003834f, 0.241442757f, 0.0520114606f,
                                            0.0135341679f};
  constexpr int kDown = 0x09;                        // also without an exception
  const V fraction{_mm512_reduce_ps(x.raw, kDown)};  // 0 of infinities
  return V{_mm512_scalef_ps(polynomial(d, fraction, kCoefficients).raw, x.raw)};
}

// 1 / (1 + e^-x); the reciprocal is within 2^-14.
template <class D, class V>
HWY_INLINE V approximate_sigmoid(D d, V x) {
  const V e = coarse_exp2(d, hn::Mul(x, hn::Set(d, -1.44269504f)));
  return V{_mm512_rcp14_ps(hn::Add(e, hn::Set(d, 1.0f)).raw)};
}

// erfc(-x), which is erfc(|x|) or 2 - erfc(|x|): a minimax fit of log2(erfc(t)) / t up to t = 6.
// Within 2^-15 up to 4.3, and 2^-10 up to 6, where erfc(t) is 2e-17.
template <class D, class V>
HWY_INLINE V approximate_one_plus_erf(D d, V x) {
  static constexpr float kCoefficients[] = {-1.62780777f,   -0.918131232f,   -0.150944783f,
                                            0.0329301363f,  -0.00489429235f, 0.000431475785f,
                                            -1.67711008e-5f};
  const V t = hn::Abs(x);
  const V rest = coarse_exp2(d, hn::Mul(t, polynomial(d, t, kCoefficients)));
  return hn::IfNegativeThenElse(x, rest, hn::Sub(hn::Set(d, 2.0f), rest));
}

// 2 sigmoid(2 x)
template <class D, class V>
HWY_INLINE V approximate_one_plus_tanh(D d, V x) {
  const V half = approximate_sigmoid(d, hn::Add(x, x));
  return hn::Add(half, half);
}
#else
template <class D, class V>
HWY_NOINLINE V approximate_sigmoid(D d, V x) {
  return sigmoid_f32(d, x);
}
template <class D, class V>
HWY_NOINLINE V approximate_one_plus_erf(D d, V x) {
  return hn::Add(erf_f32(d, x), hn::Set(d, 1.0f));
}
template <class D, class V>
HWY_NOINLINE V approximate_one_plus_tanh(D d, V x) {
  return hn::Add(tanh_f32(d, x), hn::Set(d, 1.0f));
}
#endif

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
