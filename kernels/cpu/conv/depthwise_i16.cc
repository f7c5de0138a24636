// Depthwise convolutions of 8-bit numbers without VNNI: lanes of two differences of 16 bits.
#include "anneal/kernels/cpu/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/kernels/cpu/conv/depthwise_i16.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

#include "anneal/kernels/cpu/conv/depthwise_int8.h"

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_SCALAR

struct TwoRows {
  static constexpr bool kFinishes = false;
  static constexpr int64_t kLanes = 1;
  static constexpr int kPixels = 2;
  struct Vector {
    int16_t rows[2];
  };
  using Sum = int32_t;
  static Vector load(const std::byte* p) {
    Vector v;
    std::memcpy(&v, p, sizeof(v));
    return v;
  }
  static Sum dot(Sum sum, Vector x, Vector weight) {
    return sum + x.rows[0] * weight.rows[0] + x.rows[1] * weight.rows[1];
  }
  static Sum repeat(int32_t lane) { return lane; }
  static Sum load_sum(const int32_t* p) { return *p; }
  static void store_sum(int32_t* p, Sum sum) { *p = sum; }
};

template <class T>
void stage_typed(const DepthwiseStage& stage) {
  const auto* a = reinterpret_cast<const T*>(stage.rows[0]);
  const auto* b = reinterpret_cast<const T*>(stage.rows[1]);
  for (int64_t v = 0; v < stage.vectors; ++v) {
    auto* to = reinterpret_cast<int16_t*>(stage.to + v * stage.vector_stride) +
               stage.before * 2 * TwoRows::kLanes;
    for (int64_t i = 0; i < stage.columns; ++i) {
      *to++ = static_cast<int16_t>(a[i * stage.steps[0] + v] - stage.zero);
      *to++ = static_cast<int16_t>(b[i * stage.steps[1] + v] - stage.zero);
    }
  }
}

#else

namespace hn = hwy::HWY_NAMESPACE;

struct TwoRows {
  static constexpr bool kFinishes = false;
  static constexpr int64_t kLanes = HWY_LANES(int32_t);
  static constexpr int kPixels = HWY_TARGET == HWY_AVX3 ? 8 : 4;
  using D32 = hn::ScalableTag<int32_t>;
  using D16 = hn::Repartition<int16_t, D32>;
  using Vector = hn::Vec<D32>;
  using Sum = Vector;
  static HWY_INLINE Vector load(const std::byte* p) {
    return hn::LoadU(D32(), reinterpret_cast<const int32_t*>(p));
  }
  static HWY_INLINE Sum dot(Sum sum, Vector x, Vector weight) {
    Vector unused = sum;
    return hn::ReorderWidenMulAccumulate(D32(), hn::BitCast(D16(), x), hn::BitCast(D16(), weight),
                                         sum, unused);
  }
  static HWY_INLINE Sum repeat(int32_t lane) { return hn::Set(D32(), lane); }
  static HWY_INLINE Sum load_sum(const int32_t* p) { return hn::LoadU(D32(), p); }
  static HWY_INLINE void store_sum(int32_t* p, Sum sum) { hn::StoreU(sum, D32(), p); }
};

template <class T>
void stage_typed(const DepthwiseStage& stage) {
  const TwoRows::D32 d32;
  const TwoRows::D16 d16;
  const hn::Rebind<T, TwoRows::D32> narrow;
  const auto zero = hn::Set(d16, static_cast<int16_t>(stage.zero));
  for (int64_t v = 0; v < stage.vectors; ++v) {
    const auto* a = reinterpret_cast<const T*>(stage.rows[0]) + v * TwoRows::kLanes;
    const auto* b = reinterpret_cast<const T*>(stage.rows[1]) + v * TwoRows::kLanes;
    auto* to = reinterpret_cast<int16_t*>(stage.to + v * stage.vector_stride) +
               stage.before * 2 * TwoRows::kLanes;
    for (int64_t i = 0; i < stage.columns; ++i, to += 2 * TwoRows::kLanes) {
      const auto first = hn::PromoteTo(d32, hn::LoadU(narrow, a));
      const auto second = hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(narrow, b)));
      const auto both = hn::OddEven(hn::BitCast(d16, second), hn::BitCast(d16, first));
      hn::StoreU(hn::Sub(both, zero), d16, to);
      a += stage.steps[0], b += stage.steps[1];
    }
  }
}

#endif

#include "anneal/kernels/cpu/conv/depthwise_dots-inl.h"

}  // namespace

void stage_i16(const DepthwiseStage& stage) {
  stage_padding<TwoRows>(stage);
  stage.dtype == DataType::kI8 ? stage_typed<int8_t>(stage) : stage_typed<uint8_t>(stage);
}
void dots_i16(const DepthwiseDots& run) { depthwise_dots<TwoRows>(run); }
int64_t lanes_i16() { return TwoRows::kLanes; }

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anneal::cpu {

DepthwiseInt8 depthwise_i16(Isa isa) {
  return {ANNEAL_BY_ISA(isa, lanes_i16)(), 2, ANNEAL_BY_ISA(isa, stage_i16),
          ANNEAL_BY_ISA(isa, dots_i16)};
}

}  // namespace anneal::cpu
#endif
