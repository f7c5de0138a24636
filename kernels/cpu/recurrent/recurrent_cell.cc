#include "anneal/kernels/cpu/recurrent/recurrent_cell.h"

#include "anneal/kernels/cpu/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/kernels/cpu/recurrent/recurrent_cell.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "anneal/kernels/cpu/program/tape_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr int64_t kLanes = HWY_LANES(float);
static_assert(kLanes <= kCellPadding);

V number(float value) { return hn::Set(D(), value); }

// log(1 + e) for e in [0, 1], small ones included.
HWY_INLINE V log1p_of(V e) {
  const V sum = hn::Add(e, number(1));
  const V rounded = hn::Sub(sum, number(1));
  const V scaled = hn::Div(hn::Mul(log_f32(D(), sum), e), rounded);
  return hn::IfThenElse(hn::Eq(rounded, number(0)), e, scaled);
}

HWY_INLINE V activated(Activation kind, float alpha, float beta, V x) {
  const D d;
  const V zero = hn::Zero(d), one = number(1);
  const V line = hn::Add(hn::Mul(number(alpha), x), number(beta));
  switch (kind) {
    case Activation::kSigmoid:
      return sigmoid_f32(d, x);
    case Activation::kTanh:
      return tanh_f32(d, x);
    case Activation::kRelu:
      return hn::IfThenElse(hn::Lt(x, zero), zero, x);
    case Activation::kAffine:
      return line;
    case Activation::kLeakyRelu:
      return hn::IfThenElse(hn::Lt(x, zero), hn::Mul(number(alpha), x), x);
    case Activation::kThresholdedRelu:
      return hn::IfThenElse(hn::Le(x, number(alpha)), zero, x);
    case Activation::kScaledTanh:
      return hn::Mul(number(alpha), tanh_f32(d, hn::Mul(number(beta), x)));
    case Activation::kHardSigmoid: {
      const V low = hn::IfThenElse(hn::Lt(line, zero), zero, line);
      return hn::IfThenElse(hn::Lt(one, low), one, low);
    }
    case Activation::kElu: {
      // exp(x) - 1 from tanh(x / 2), so that small results keep their digits.
      const V half = tanh_f32(d, hn::Mul(number(0.5F), x));
      const V below = hn::Div(hn::Add(half, half), hn::Sub(one, half));
      return hn::IfThenElse(hn::Lt(x, zero), hn::Mul(number(alpha), below), x);
    }
    case Activation::kSoftsign:
      return hn::Div(x, hn::Add(one, hn::Abs(x)));
    case Activation::kSoftplus: {
      const V tail = log1p_of(exp_f32(d, hn::Neg(hn::Abs(x))));
      return hn::Add(hn::IfThenElse(hn::Lt(x, zero), zero, x), tail);
    }
  }
  return x;
}

// One vector of any activation, in memory: called where the fast path does not go.
HWY_NOINLINE void activate(const CellSettings& settings, int which, float* x) {
  const D d;
  V value = hn::Load(d, x);
  if (settings.clip != 0 && which != 2) {
    const V low =
        hn::IfThenElse(hn::Lt(value, number(-settings.clip)), number(-settings.clip), value);
    value = hn::IfThenElse(hn::Lt(number(settings.clip), low), number(settings.clip), low);
  }
  hn::Store(activated(settings.kinds[which], settings.alphas[which], settings.betas[which], value),
            d, x);
}

template <bool kPlain>
struct Apply {
  const CellSettings& settings;
  HWY_INLINE V operator()(int which, V x) const {
    if constexpr (kPlain) {
      return which == 0 ? sigmoid_f32(D(), x) : tanh_f32(D(), x);
    } else {
      HWY_ALIGN float lanes[kLanes];
      hn::Store(x, D(), lanes);
      activate(settings, which, lanes);
      return hn::Load(D(), lanes);
    }
  }
};

template <bool kPlain>
void rnn_row(const CellSettings& settings, const CellRow& row) {
  const D d;
  const Apply<kPlain> apply{settings};
  for (int64_t i = 0; i < row.hidden; i += kLanes)
    hn::StoreU(apply(1, hn::LoadU(d, row.gates + i)), d, row.h + i);
}

template <bool kPlain>
void lstm_row(const CellSettings& settings, const CellRow& row) {
  const D d;
  const Apply<kPlain> apply{settings};
  const int64_t hidden = row.hidden;
  for (int64_t i = 0; i < hidden; i += kLanes) {
    const V old = hn::LoadU(d, row.c + i);
    const auto sum = [&](int64_t gate, int64_t peephole, V cell) HWY_ATTR {
      const V value = hn::LoadU(d, row.gates + gate * hidden + i);
      if (row.peepholes == nullptr) return value;
      const V weight = hn::LoadU(d, row.peepholes + peephole * row.peephole_stride + i);
      return hn::MulAdd(weight, cell, value);
    };
    const V input = apply(0, sum(0, 0, old));
    const V forget = settings.input_forget ? hn::Sub(number(1), input) : apply(0, sum(2, 2, old));
    const V candidate = apply(1, hn::LoadU(d, row.gates + 3 * hidden + i));
    const V cell = hn::MulAdd(input, candidate, hn::Mul(forget, old));
    const V output = apply(0, sum(1, 1, cell));
    hn::StoreU(cell, d, row.c + i);
    hn::StoreU(hn::Mul(output, apply(2, cell)), d, row.h + i);
  }
}

template <bool kPlain>
void gru_row(const CellSettings& settings, const CellRow& row) {
  const D d;
  const Apply<kPlain> apply{settings};
  for (int64_t i = 0; i < row.hidden; i += kLanes) {
    const V update = apply(0, hn::LoadU(d, row.gates + i));
    V sum = hn::LoadU(d, row.candidate + i);
    if (row.recurrent != nullptr) {
      const V reset = apply(0, hn::LoadU(d, row.gates + row.hidden + i));
      sum = hn::MulAdd(reset, hn::LoadU(d, row.recurrent + i), sum);
    }
    const V candidate = apply(1, sum);
    const V kept = hn::Mul(update, hn::LoadU(d, row.h + i));
    hn::StoreU(hn::MulAdd(hn::Sub(number(1), update), candidate, kept), d, row.h + i);
  }
}

template <bool kPlain>
void gru_reset_row(const CellSettings& settings, const CellRow& row, float* reset) {
  const D d;
  const Apply<kPlain> apply{settings};
  for (int64_t i = 0; i < row.hidden; i += kLanes) {
    const V gate = apply(0, hn::LoadU(d, row.gates + row.hidden + i));
    hn::StoreU(hn::Mul(gate, hn::LoadU(d, row.h + i)), d, reset + i);
  }
}

}  // namespace

void rnn(const CellSettings& settings, const CellRow& row) {
  settings.plain ? rnn_row<true>(settings, row) : rnn_row<false>(settings, row);
}
void lstm(const CellSettings& settings, const CellRow& row) {
  settings.plain ? lstm_row<true>(settings, row) : lstm_row<false>(settings, row);
}
void gru(const CellSettings& settings, const CellRow& row) {
  settings.plain ? gru_row<true>(settings, row) : gru_row<false>(settings, row);
}
void gru_reset(const CellSettings& settings, const CellRow& row, float* reset) {
  settings.plain ? gru_reset_row<true>(settings, row, reset)
                 : gru_reset_row<false>(settings, row, reset);
}

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anneal::cpu {

CellSettings::CellSettings(const Recurrent& op)
    : kinds{op.gate, op.cell, op.output}, clip(op.clip), input_forget(op.input_forget) {
  std::copy(op.alphas.begin(), op.alphas.end(), alphas);
  std::copy(op.betas.begin(), op.betas.end(), betas);
  plain = clip == 0 && op.gate == Activation::kSigmoid && op.cell == Activation::kTanh &&
          op.output == Activation::kTanh;
}

CellFunctions cell_functions(Isa isa) {
  return {ANNEAL_BY_ISA(isa, rnn), ANNEAL_BY_ISA(isa, lstm), ANNEAL_BY_ISA(isa, gru),
          ANNEAL_BY_ISA(isa, gru_reset)};
}

}  // namespace anneal::cpu
#endif
