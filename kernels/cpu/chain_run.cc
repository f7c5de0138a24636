// run_chain(): threaded code. Each step of a chain is a function that takes eight vectors of A in
// registers, changes them and jumps to the function of the next step; B is in memory.
#include "anneal/kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/kernels/cpu/chain_run.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>

#include "anneal/core/float16.h"
#include "anneal/kernels/cpu/gemm.h"
#include "anneal/kernels/cpu/tape.h"
// In this order, which formatting must not change:
#include "anneal/kernels/cpu/tape_math-inl.h"
//
#include "anneal/kernels/cpu/chain_vectors-inl.h"

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
// Any values, rounded.
struct RoundedToBf16 {
  using Element = uint16_t;
  static HWY_INLINE void store(V v, uint16_t* p) { narrow_bf16(D(), round_bf16(D(), v), p); }
};
#if HWY_TARGET == HWY_AVX3
// The same with AVX512_BF16, whose instruction makes denormal numbers zeros.
struct ConvertedToBf16 {
  using Element = uint16_t;
  static HWY_INLINE void store(V v, uint16_t* p) {
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

// The function of each step, for groups of kColumns columns.
template <int kColumns>
class Binder {
 public:
  // access: to the port, if the step has one.
  static Step step(const ChainStep& step, Access access) {
    switch (step.op) {
      case ChainOp::kLoad:
        return load_of(step, access);
      case ChainOp::kCopy:
        return copy_to_b;
      case ChainOp::kAdd:
        return binary<Add>(step, access);
      case ChainOp::kSub:
        return binary<Sub>(step, access);
      case ChainOp::kSubFrom:
        return binary<SubFrom>(step, access);
      case ChainOp::kMul:
        return binary<Mul>(step, access);
      case ChainOp::kDiv:
        return binary<Div>(step, access);
      case ChainOp::kDivInto:
        return binary<DivInto>(step, access);
      case ChainOp::kMin:
        return is_number(step) ? binary<MinNumber>(step, access) : binary<Min>(step, access);
      case ChainOp::kMax:
        return is_number(step) ? binary<MaxNumber>(step, access) : binary<Max>(step, access);
      case ChainOp::kNeg:
        return unary<Neg>(step);
      case ChainOp::kAbs:
        return unary<Abs>(step);
      case ChainOp::kSqrt:
        return unary<Sqrt>(step);
      case ChainOp::kFloor:
        return unary<Floor>(step);
      case ChainOp::kCeil:
        return unary<Ceil>(step);
      case ChainOp::kRoundEven:
        return unary<RoundEven>(step);
      case ChainOp::kTrunc:
        return unary<Trunc>(step);
      case ChainOp::kClamp:
        return step.to_b ? clamp_b : clamp_a;
      case ChainOp::kRoundBf16:
        return unary<RoundBf16>(step);
      case ChainOp::kRoundF16:
        return unary<RoundF16>(step);
      case ChainOp::kExp:
        return function<Exp>(step);
      case ChainOp::kErf:
        return function<Erf>(step);
      case ChainOp::kTanh:
        return function<Tanh>(step);
      case ChainOp::kSigmoid:
        return function<Sigmoid>(step);
    }
    return nullptr;
  }

  static Step quantize(DataType dtype) {
    return dtype == DataType::kU8 ? quantize_a<uint8_t, kColumns> : quantize_a<int8_t, kColumns>;
  }

  static Step store_rounded_bf16() {
    return has_bf16_gemm(current_isa()) ? store_a<ConvertedToBf16, kColumns>
                                        : store_a<RoundedToBf16, kColumns>;
  }
  static Step store(DataType dtype) {
    switch (dtype) {
      case DataType::kU8:
        return store_a<AsSmall<uint8_t>, kColumns>;
      case DataType::kI8:
        return store_a<AsSmall<int8_t>, kColumns>;
      case DataType::kBF16:
        return store_a<AsBf16, kColumns>;
      case DataType::kF16:
        return store_a<AsF16, kColumns>;
      default:
        return store_a<AsF32, kColumns>;
    }
  }

 private:
  static bool is_number(const ChainStep& step) {
    return step.operand == ChainOperand::kConstant && !std::isnan(step.constant);
  }
  template <class F>
  static Step binary(const ChainStep& step, Access access) {
    switch (step.operand) {
      case ChainOperand::kConstant:
        return step.to_b ? b_by_constant<F> : a_by_constant<F>;
      case ChainOperand::kPort:
        return a_by_port_of<F>(access);
      case ChainOperand::kOther:
        break;
    }
    return step.to_b ? b_by_a<F> : a_by_b<F>;
  }
  template <class F>
  static Step unary(const ChainStep& step) {
    return step.to_b ? of_b<F> : of_a<F>;
  }
  template <class F>
  static Step function(const ChainStep& step) {
    return step.to_b ? of_b<F> : of_a_in_memory<F>;
  }
  template <class F>
  static Step a_by_port_of(Access access) {
    switch (access) {
      case Access::kUniform:
        return a_by_port<F, kColumns, Access::kUniform>;
      case Access::kSpaced:
        return a_by_port<F, kColumns, Access::kSpaced>;
      case Access::kDense:
        break;
    }
    return a_by_port<F, kColumns, Access::kDense>;
  }
  template <class Storage>
  static Step load(const ChainStep& step, Access access) {
    switch (access) {
      case Access::kUniform:
        return load<Storage, Access::kUniform>(step);
      case Access::kSpaced:
        return load<Storage, Access::kSpaced>(step);
      case Access::kDense:
        break;
    }
    return load<Storage, Access::kDense>(step);
  }
  template <class Storage, Access kAccess>
  static Step load(const ChainStep& step) {
    return step.to_b ? load_b<Storage, kColumns, kAccess> : load_a<Storage, kColumns, kAccess>;
  }
  static Step load_of(const ChainStep& step, Access access) {
    switch (step.storage) {
      case DataType::kI32:
        return load<FromI32>(step, access);
      case DataType::kU8:
        return load<AsSmall<uint8_t>>(step, access);
      case DataType::kI8:
        return load<AsSmall<int8_t>>(step, access);
      case DataType::kBF16:
        return load<AsBf16>(step, access);
      case DataType::kF16:
        return load<AsF16>(step, access);
      default:
        return load<AsF32>(step, access);
    }
  }
};

bool has_port(const ChainStep& step) {
  return step.op == ChainOp::kLoad || step.operand == ChainOperand::kPort;
}

Access access_of(const TapePort& port) {
  if (port.column_stride == 1) return Access::kDense;
  return port.column_stride == 0 ? Access::kUniform : Access::kSpaced;
}

// All rows of `vectors` (a multiple of kColumns, or one group) columns of vectors from `column` on.
template <int kColumns>
void run_columns(const Chain& chain, int64_t rows, int64_t column, int64_t vectors,
                 int64_t column_step, std::span<const TapePort> ports, const TapePort& sink) {
  std::array<Call, Chain::kMostSteps + 1> calls;
  auto steps = chain.steps();
  const bool rounds_at_last = chain.result() == DataType::kBF16 && !steps.empty() &&
                              steps.back().op == ChainOp::kRoundBf16 && !steps.back().to_b;
  if (rounds_at_last) steps = steps.first(steps.size() - 1);
  for (size_t i = 0; i < steps.size(); ++i) {
    Access access = Access::kDense;
    if (has_port(steps[i])) {
      calls[i].port = ports[steps[i].port];
      access = access_of(calls[i].port);
    }
    calls[i].run = Binder<kColumns>::step(steps[i], access);
    calls[i].constant = steps[i].constant;
    calls[i].high = steps[i].high;
  }
  Call& last = calls[steps.size()];
  if (const auto& to = chain.quantize()) {
    last = {Binder<kColumns>::quantize(chain.result()), to->low, to->high, to->zero, {}};
  } else {
    last.run = rounds_at_last ? Binder<kColumns>::store_rounded_bf16()
                              : Binder<kColumns>::store(chain.result());
  }
  last.port = sink;

  constexpr int kRows = kGroup / kColumns;
  const V zero = hn::Zero(D());
  Group group;
  group.column_step = column_step;
  // Rows that fill no group are groups of one row again and again.
  for (group.row = 0; group.row < rows; group.row += group.row_step == 1 ? kRows : 1) {
    group.row_step = group.row + kRows <= rows ? 1 : 0;
    for (int64_t i = 0; i < vectors; i += kColumns) {
      group.column = column + i * kLanes;
      calls[0].run(calls.data(), group, zero, zero, zero, zero, zero, zero, zero, zero);
    }
  }
}

}  // namespace

// Vectors of a row end where the row does: the last may overlap the one before it. Then nothing
// that is read may be memory that is written.
bool chain_fits(const Chain& chain, int64_t columns, std::span<const TapePort> ports,
                const TapePort& sink) {
  if (columns < kLanes || sink.column_stride != 1) return false;
  for (const ChainStep& step : chain.steps()) {
    if (!has_port(step)) continue;
    if (columns % kLanes != 0 && ports[step.port].data == sink.data) return false;
  }
  return true;
}

void run_chain(const Chain& chain, int64_t rows, int64_t columns, std::span<const TapePort> ports,
               const TapePort& sink) {
  int64_t column = 0, vectors = columns / kLanes;
  const bool has_tail = columns % kLanes != 0;
  const auto take = [&](int64_t count) {
    const int64_t from = column;
    column += count * kLanes;
    vectors -= count;
    return from;
  };
  if (const int64_t eights = vectors / 8 * 8; eights > 0)
    run_columns<8>(chain, rows, take(eights), eights, kLanes, ports, sink);
  if (vectors >= 4) run_columns<4>(chain, rows, take(4), 4, kLanes, ports, sink);
  if (vectors >= 2) run_columns<2>(chain, rows, take(2), 2, kLanes, ports, sink);
  const int64_t last = columns - kLanes;
  if (vectors == 1 && has_tail) {
    run_columns<2>(chain, rows, column, 2, last - column, ports, sink);
  } else if (vectors == 1 || has_tail) {
    run_columns<1>(chain, rows, last, 1, kLanes, ports, sink);
  }
}

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
