// Vectors of f32 from elements of other types, and back.
// No include guard: included once per target.
#include <hwy/highway.h>

#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// For i8 or u8.
template <class D, class T>
HWY_INLINE hn::Vec<D> widened(D d, const T* p) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<T, D> dn;
  return hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(dn, p)));
}

template <class D>
HWY_INLINE hn::Vec<D> widened_bf16(D d, const uint16_t* p) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> dn;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(dn, p))));
}

// How a kernel reads elements that it has two loops for.
struct StoredF32 {
  using Element = float;
  static HWY_INLINE hn::Vec<hn::ScalableTag<float>> load(const float* p) {
    return hn::LoadU(hn::ScalableTag<float>(), p);
  }
};
struct StoredI8 {
  using Element = int8_t;
  static HWY_INLINE hn::Vec<hn::ScalableTag<float>> load(const int8_t* p) {
    return widened(hn::ScalableTag<float>(), p);
  }
};
struct StoredBf16 {
  using Element = uint16_t;
  static HWY_INLINE hn::Vec<hn::ScalableTag<float>> load(const uint16_t* p) {
    return widened_bf16(hn::ScalableTag<float>(), p);
  }
};

// min and max of a value, which may be NaN and then is the result, and a number. x86 gives the
// second operand where one is NaN.
template <class D, class V>
HWY_INLINE V min_number([[maybe_unused]] D d, V v, V number) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  return min_nan(d, v, number);
#else
  return hn::Min(number, v);
#endif
}
template <class D, class V>
HWY_INLINE V max_number([[maybe_unused]] D d, V v, V number) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  return max_nan(d, v, number);
#else
  return hn::Max(number, v);
#endif
}

// In [low, high]; NaN gives 0.
template <class D, class V>
HWY_INLINE V clamped(D, V v, V low, V high) {
  return hn::Min(hn::Max(hn::IfThenElseZero(hn::Eq(v, v), v), low), high);
}

// Whole numbers that T holds.
template <class D, class V, class T>
HWY_INLINE void narrow(D, V v, T* p) {
  const hn::Rebind<T, D> dn;
#if HWY_TARGET == HWY_AVX3
  const hn::Vec<decltype(dn)> bytes{_mm512_cvtepi32_epi8(_mm512_cvttps_epi32(v.raw))};
  hn::StoreU(bytes, dn, p);
#else
  const hn::RebindToSigned<D> di;
  hn::StoreU(hn::DemoteTo(dn, hn::ConvertTo(di, v)), dn, p);
#endif
}

// Cut to [low, high], rounded to whole numbers, ties to even; `zero` is added. NaN gives 0.
// REQUIRES: then T holds them
template <class D, class V, class T>
HWY_INLINE void quantize(D, V v, V low, V high, hn::Vec<hn::RebindToSigned<D>> zero, T* p) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<T, D> dn;
#if HWY_TARGET == HWY_AVX3
  // Where v is NaN, the limit is taken, which for unsigned numbers stands for 0.
  if constexpr (std::is_signed_v<T>)
    v = hn::IfThenElse(hn::Eq(v, v), v, hn::Neg(hn::ConvertTo(D(), zero)));
  const hn::Vec<decltype(di)> whole{_mm512_cvtps_epi32(hn::Min(hn::Max(v, low), high).raw)};
  const hn::Vec<decltype(dn)> bytes{_mm512_cvtepi32_epi8(hn::Add(whole, zero).raw)};
  hn::StoreU(bytes, dn, p);
#else
  v = hn::IfThenElse(hn::Eq(v, v), v, hn::Neg(hn::ConvertTo(D(), zero)));
  const auto whole = hn::ConvertTo(di, hn::Round(hn::Min(hn::Max(v, low), high)));
  hn::StoreU(hn::DemoteTo(dn, hn::Add(whole, zero)), dn, p);
#endif
}

// Values of bf16.
template <class D, class V>
HWY_INLINE void narrow_bf16(D, V v, uint16_t* p) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint16_t, D> dn;
  const auto high = hn::ShiftRight<16>(hn::BitCast(du, v));
  hn::StoreU(hn::DemoteTo(dn, hn::BitCast(di, high)), dn, p);
}

// Any values, rounded.
struct RoundedToBf16 {
  using Element = uint16_t;
  static HWY_INLINE void store(hn::Vec<hn::ScalableTag<float>> v, uint16_t* p) {
    narrow_bf16(hn::ScalableTag<float>(), round_bf16(hn::ScalableTag<float>(), v), p);
  }
};
#if HWY_TARGET == HWY_AVX3
// The same with AVX512_BF16, whose instruction makes denormal numbers zeros.
struct ConvertedToBf16 {
  using Element = uint16_t;
  static HWY_INLINE void store(hn::Vec<hn::ScalableTag<float>> v, uint16_t* p) {
    constexpr int kDenormal = 0x20;
    if (_mm512_fpclass_ps_mask(v.raw, kDenormal) != 0) return RoundedToBf16::store(v, p);
    __m256i converted;  // Highway's AVX3 knows no such instruction
    asm("vcvtneps2bf16 %1, %0" : "=v"(converted) : "v"(v.raw));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), converted);
  }
};
#else
using ConvertedToBf16 = RoundedToBf16;
#endif

// Highway's emulation knows neither infinities nor rounding to even.
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
template <class D>
HWY_INLINE hn::Vec<D> widened_f16(D d, const Float16* p) {
  HWY_ALIGN float lanes[HWY_LANES(float)];
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = to_f32(p[i]);
  return hn::Load(d, lanes);
}
template <class D, class V>
HWY_INLINE void narrow_f16(D d, V v, Float16* p) {
  HWY_ALIGN float lanes[HWY_LANES(float)];
  hn::Store(v, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) p[i] = to_f16(lanes[i]);
}
template <class D, class V>
HWY_INLINE V round_f16(D d, V v) {
  HWY_ALIGN float lanes[HWY_LANES(float)];
  hn::Store(v, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = to_f32(to_f16(lanes[i]));
  return hn::Load(d, lanes);
}
#else
template <class D>
HWY_INLINE hn::Vec<D> widened_f16(D d, const Float16* p) {
  const hn::Rebind<hwy::float16_t, D> dn;
  const hn::Rebind<uint16_t, D> dbits;
  return hn::PromoteTo(d, hn::BitCast(dn, hn::LoadU(dbits, reinterpret_cast<const uint16_t*>(p))));
}
template <class D, class V>
HWY_INLINE void narrow_f16(D, V v, Float16* p) {
  const hn::Rebind<hwy::float16_t, D> dn;
  const hn::Rebind<uint16_t, D> dbits;
  hn::StoreU(hn::BitCast(dbits, hn::DemoteTo(dn, v)), dbits, reinterpret_cast<uint16_t*>(p));
}
template <class D, class V>
HWY_INLINE V round_f16(D d, V v) {
  const hn::Rebind<hwy::float16_t, D> dn;
  return hn::PromoteTo(d, hn::DemoteTo(dn, v));
}
#endif

struct StoredF16 {
  using Element = Float16;
  static HWY_INLINE hn::Vec<hn::ScalableTag<float>> load(const Float16* p) {
    return widened_f16(hn::ScalableTag<float>(), p);
  }
};

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
