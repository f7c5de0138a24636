// The steps of a vector program as functions that take eight vectors of A in registers, change them
// and jump to the function of the next step; B is in memory. No include guard: included once per
// target.
#include <hwy/highway.h>

#include "anneal/core/float16.h"
#include "anneal/kernels/cpu/program/tape.h"

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

constexpr int64_t kLanes = HWY_LANES(float);
// As many as the calling convention passes in registers.
constexpr int kGroup = 8;
#define ANNEAL_A V a0, V a1, V a2, V a3, V a4, V a5, V a6, V a7
#define ANNEAL_EACH_A a0, a1, a2, a3, a4, a5, a6, a7

// Eight vectors of a block: some columns of some rows, evenly spaced; and their B.
struct Group {
  int64_t row, column;  // of the first
  int64_t row_step, column_step;
  HWY_ALIGN float b[kGroup * kLanes];
};

struct Call {
  void (*run)(const Call* call, Group& group, ANNEAL_A);
  float constant, high;
  int32_t zero;
  TapePort port;
};
using Step = void (*)(const Call* call, Group& group, ANNEAL_A);

#define ANNEAL_NEXT return call[1].run(call + 1, group, ANNEAL_EACH_A)

// Every f(i, a) of the group.
#define ANNEAL_FOR_EACH_A(f) \
  f(0, a0);                  \
  f(1, a1);                  \
  f(2, a2);                  \
  f(3, a3);                  \
  f(4, a4);                  \
  f(5, a5);                  \
  f(6, a6);                  \
  f(7, a7)

// Where vector i of a group with kColumns columns is in a port.
template <class T, int kColumns>
struct Places {
  HWY_INLINE Places(const TapePort& port, const Group& group)
      : first(reinterpret_cast<T*>(port.data) + group.row * port.row_stride +
              group.column * port.column_stride),
        row_jump(group.row_step * port.row_stride),
        column_jump(group.column_step * port.column_stride) {}
  HWY_INLINE T* operator()(int i) const {
    return first + i / kColumns * row_jump + i % kColumns * column_jump;
  }
  T* first;
  int64_t row_jump, column_jump;
};

// How elements become vectors, and back.
struct AsF32 {
  using Element = float;
  static HWY_INLINE V load(const float* p) { return hn::LoadU(D(), p); }
  static HWY_INLINE void store(V v, float* p) { hn::StoreU(v, D(), p); }
};
struct FromI32 {
  using Element = int32_t;
  static HWY_INLINE V load(const int32_t* p) {
    return hn::ConvertTo(D(), hn::LoadU(hn::RebindToSigned<D>(), p));
  }
};
template <class T>
struct AsSmall {
  using Element = T;
  static HWY_INLINE V load(const T* p) { return widened(D(), p); }
  static HWY_INLINE void store(V v, T* p) { narrow(D(), v, p); }
};
struct AsBf16 {
  using Element = uint16_t;
  static HWY_INLINE V load(const uint16_t* p) { return widened_bf16(D(), p); }
  static HWY_INLINE void store(V v, uint16_t* p) { narrow_bf16(D(), v, p); }
};
struct AsF16 {
  using Element = Float16;
  static HWY_INLINE V load(const Float16* p) { return widened_f16(D(), p); }
  static HWY_INLINE void store(V v, Float16* p) { narrow_f16(D(), v, p); }
};

// How the lanes of a vector are in a port: behind each other, all one element, or `step` apart.
enum class Access { kDense, kUniform, kSpaced };

template <class Storage, Access kAccess>
HWY_INLINE V loaded(const typename Storage::Element* from, [[maybe_unused]] int64_t step) {
  if constexpr (kAccess == Access::kDense) return Storage::load(from);
  HWY_ALIGN typename Storage::Element lanes[kLanes];
  for (int64_t i = 0; i < kLanes; ++i)
    lanes[i] = kAccess == Access::kSpaced ? from[i * step] : *from;
  return Storage::load(lanes);
}

template <class Storage, int kColumns, Access kAccess>
void load_a(const Call* call, Group& group, ANNEAL_A) {
  const Places<const typename Storage::Element, kColumns> at(call->port, group);
#define ANNEAL_STEP(i, a) a = loaded<Storage, kAccess>(at(i), call->port.column_stride)
  ANNEAL_FOR_EACH_A(ANNEAL_STEP);
#undef ANNEAL_STEP
  ANNEAL_NEXT;
}

template <class Storage, int kColumns, Access kAccess>
void load_b(const Call* call, Group& group, ANNEAL_A) {
  const Places<const typename Storage::Element, kColumns> at(call->port, group);
#pragma GCC unroll 8
  for (int i = 0; i < kGroup; ++i)
    hn::Store(loaded<Storage, kAccess>(at(i), call->port.column_stride), D(), group.b + i * kLanes);
  ANNEAL_NEXT;
}

void copy_to_b(const Call* call, Group& group, ANNEAL_A) {
#define ANNEAL_STEP(i, a) hn::Store(a, D(), group.b + (i)*kLanes)
  ANNEAL_FOR_EACH_A(ANNEAL_STEP);
#undef ANNEAL_STEP
  ANNEAL_NEXT;
}

// The last step.
template <class Storage, int kColumns>
void store_a(const Call* call, Group& group, ANNEAL_A) {
  const Places<typename Storage::Element, kColumns> at(call->port, group);
#define ANNEAL_STEP(i, a) Storage::store(a, at(i))
  ANNEAL_FOR_EACH_A(ANNEAL_STEP);
#undef ANNEAL_STEP
}

template <class T, int kColumns>
void quantize_a(const Call* call, Group& group, ANNEAL_A) {
  const Places<T, kColumns> at(call->port, group);
  const V low = hn::Set(D(), call->constant), high = hn::Set(D(), call->high);
  const auto zero = hn::Set(hn::RebindToSigned<D>(), call->zero);
#define ANNEAL_STEP(i, a) quantize(D(), a, low, high, zero, at(i))
  ANNEAL_FOR_EACH_A(ANNEAL_STEP);
#undef ANNEAL_STEP
}

// Binary steps of F.
template <class F>
void a_by_constant(const Call* call, Group& group, ANNEAL_A) {
  const V constant = hn::Set(D(), call->constant);
#define ANNEAL_STEP(i, a) a = F::apply(a, constant)
  ANNEAL_FOR_EACH_A(ANNEAL_STEP);
#undef ANNEAL_STEP
  ANNEAL_NEXT;
}
template <class F>
void a_by_b(const Call* call, Group& group, ANNEAL_A) {
#define ANNEAL_STEP(i, a) a = F::apply(a, hn::Load(D(), group.b + (i)*kLanes))
  ANNEAL_FOR_EACH_A(ANNEAL_STEP);
#undef ANNEAL_STEP
  ANNEAL_NEXT;
}
template <class F, int kColumns, Access kAccess>
void a_by_port(const Call* call, Group& group, ANNEAL_A) {
  const Places<const float, kColumns> at(call->port, group);
#define ANNEAL_STEP(i, a) a = F::apply(a, loaded<AsF32, kAccess>(at(i), call->port.column_stride))
  ANNEAL_FOR_EACH_A(ANNEAL_STEP);
#undef ANNEAL_STEP
  ANNEAL_NEXT;
}
template <class F>
void b_by_constant(const Call* call, Group& group, ANNEAL_A) {
  const V constant = hn::Set(D(), call->constant);
#pragma GCC unroll 8
  for (int i = 0; i < kGroup; ++i) {
    float* const b = group.b + i * kLanes;
    hn::Store(F::apply(hn::Load(D(), b), constant), D(), b);
  }
  ANNEAL_NEXT;
}
template <class F>
void b_by_a(const Call* call, Group& group, ANNEAL_A) {
#define ANNEAL_STEP(i, a) \
  hn::Store(F::apply(hn::Load(D(), group.b + (i)*kLanes), a), D(), group.b + (i)*kLanes)
  ANNEAL_FOR_EACH_A(ANNEAL_STEP);
#undef ANNEAL_STEP
  ANNEAL_NEXT;
}

// Unary ones.
template <class F>
void of_a(const Call* call, Group& group, ANNEAL_A) {
#define ANNEAL_STEP(i, a) a = F::apply(a)
  ANNEAL_FOR_EACH_A(ANNEAL_STEP);
#undef ANNEAL_STEP
  ANNEAL_NEXT;
}
template <class F>
void of_b(const Call* call, Group& group, ANNEAL_A) {
#pragma GCC unroll 1
  for (int i = 0; i < kGroup; ++i) {
    float* const b = group.b + i * kLanes;
    hn::Store(F::apply(hn::Load(D(), b)), D(), b);
  }
  ANNEAL_NEXT;
}
// Functions that need the registers for themselves.
template <class F>
void of_a_in_memory(const Call* call, Group& group, ANNEAL_A) {
  HWY_ALIGN float lanes[kGroup * kLanes];
#define ANNEAL_STEP(i, a) hn::Store(a, D(), lanes + (i)*kLanes)
  ANNEAL_FOR_EACH_A(ANNEAL_STEP);
#undef ANNEAL_STEP
#pragma GCC unroll 1
  for (int i = 0; i < kGroup; ++i)
    hn::Store(F::apply(hn::Load(D(), lanes + i * kLanes)), D(), lanes + i * kLanes);
#define ANNEAL_STEP(i, a) a = hn::Load(D(), lanes + (i)*kLanes)
  ANNEAL_FOR_EACH_A(ANNEAL_STEP);
#undef ANNEAL_STEP
  ANNEAL_NEXT;
}

void clamp_a(const Call* call, Group& group, ANNEAL_A) {
  const V low = hn::Set(D(), call->constant), high = hn::Set(D(), call->high);
#define ANNEAL_STEP(i, a) a = clamped(D(), a, low, high)
  ANNEAL_FOR_EACH_A(ANNEAL_STEP);
#undef ANNEAL_STEP
  ANNEAL_NEXT;
}
void clamp_b(const Call* call, Group& group, ANNEAL_A) {
  const V low = hn::Set(D(), call->constant), high = hn::Set(D(), call->high);
#pragma GCC unroll 8
  for (int i = 0; i < kGroup; ++i) {
    float* const b = group.b + i * kLanes;
    hn::Store(clamped(D(), hn::Load(D(), b), low, high), D(), b);
  }
  ANNEAL_NEXT;
}

#define ANNEAL_UNARY_FUNCTION(Name, expression)           \
  struct Name {                                           \
    static HWY_INLINE V apply(V a) { return expression; } \
  }
#define ANNEAL_BINARY_FUNCTION(Name, expression)               \
  struct Name {                                                \
    static HWY_INLINE V apply(V a, V b) { return expression; } \
  }
ANNEAL_BINARY_FUNCTION(Add, hn::Add(a, b));
ANNEAL_BINARY_FUNCTION(Sub, hn::Sub(a, b));
ANNEAL_BINARY_FUNCTION(SubFrom, hn::Sub(b, a));
ANNEAL_BINARY_FUNCTION(Mul, hn::Mul(a, b));
ANNEAL_BINARY_FUNCTION(Div, hn::Div(a, b));
ANNEAL_BINARY_FUNCTION(DivInto, hn::Div(b, a));
ANNEAL_BINARY_FUNCTION(Min, min_nan(D(), a, b));
ANNEAL_BINARY_FUNCTION(Max, max_nan(D(), a, b));
ANNEAL_BINARY_FUNCTION(MinNumber, min_number(D(), a, b));
ANNEAL_BINARY_FUNCTION(MaxNumber, max_number(D(), a, b));
ANNEAL_UNARY_FUNCTION(Neg, hn::Neg(a));
ANNEAL_UNARY_FUNCTION(Abs, hn::Abs(a));
ANNEAL_UNARY_FUNCTION(Sqrt, hn::Sqrt(a));
ANNEAL_UNARY_FUNCTION(Floor, hn::Floor(a));
ANNEAL_UNARY_FUNCTION(Ceil, hn::Ceil(a));
ANNEAL_UNARY_FUNCTION(RoundEven, hn::Round(a));
ANNEAL_UNARY_FUNCTION(Trunc, hn::Trunc(a));
ANNEAL_UNARY_FUNCTION(RoundBf16, round_bf16(D(), a));
ANNEAL_UNARY_FUNCTION(RoundF16, round_f16(D(), a));
ANNEAL_UNARY_FUNCTION(Exp, exp_f32(D(), a));
ANNEAL_UNARY_FUNCTION(Erf, erf_f32(D(), a));
ANNEAL_UNARY_FUNCTION(Tanh, tanh_f32(D(), a));
ANNEAL_UNARY_FUNCTION(Sigmoid, sigmoid_f32(D(), a));
ANNEAL_UNARY_FUNCTION(ApproximateSigmoid, approximate_sigmoid(D(), a));
ANNEAL_UNARY_FUNCTION(ApproximateOnePlusErf, approximate_one_plus_erf(D(), a));
ANNEAL_UNARY_FUNCTION(ApproximateOnePlusTanh, approximate_one_plus_tanh(D(), a));

}  // namespace
}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
