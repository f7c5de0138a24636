#include "anneal/tests/optimizer/random_functions.h"

#include <limits>

namespace anneal::testing {
namespace {

using enum Opcode;

Reg softplus(ProgramBuilder& b, Reg x) {  // that does not overflow
  const Reg decay = b.apply(kExp, b.apply(kNeg, b.apply(kAbs, x)));
  return b.apply(kAdd, b.apply(kMax, x, b.constant(0.f)), b.apply(kLog1p, decay));
}

Reg gelu(ProgramBuilder& b, Reg x) {
  const Reg erf = b.apply(kErf, b.apply(kMul, x, b.constant(0.70710678f)));
  return b.apply(kMul, b.apply(kMul, x, b.constant(0.5f)), b.apply(kAdd, b.constant(1.f), erf));
}

}  // namespace

Reg tame_function(ProgramBuilder& b, uint32_t kind, Reg x) {
  switch (kind) {
    case 0:
      return b.apply(kTanh, x);
    case 1:
      return b.apply(kMul, x, b.apply(kSigmoid, x));
    case 2:
      return b.apply(kMax, x, b.constant(0.f));
    case 3:
      return b.apply(kMul, x, b.constant(1.f));
    case 4:
      return b.apply(kSqrt, b.apply(kAdd, b.apply(kAbs, x), b.constant(1.f)));
    case 5:
      return b.apply(kNeg, x);
    case 6:
      return gelu(b, x);
    case 7:
      return b.apply(kMin, b.apply(kMax, x, b.constant(-3.f)), b.constant(3.f));
    case 8:
      return b.apply(kDiv, x, b.constant(3.f));
    case 9:  // kept from -inf
      return b.apply(kLog, b.apply(kMax, b.apply(kSigmoid, x), b.constant(1e-4f)));
    case 10:
      return softplus(b, x);
    default:
      return b.apply(kAdd, x, b.constant(0.25f));
  }
}

Reg wild_function(ProgramBuilder& b, uint32_t kind, Reg x) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Reg zero = b.constant(0.f), one = b.constant(1.f), two = b.constant(2.f);
  switch (kind) {
    case 0:
      return b.select(b.apply(kIsInf, x), b.apply(kSign, x), x);
    case 1:
      return b.cast(b.apply(kIsInf, x), RegisterType::kF32);
    case 2:
      return b.select(b.apply(kIsNan, x), one, x);
    case 3:
      return b.cast(b.apply(kIsNan, x), RegisterType::kF32);
    case 4:
      return b.select(b.apply(kEqual, x, x), x, two);
    case 5:
      return b.select(b.apply(kLess, x, x), two, x);
    case 6:
      return b.apply(kMax, x, b.constant(-inf));
    case 7:
      return b.apply(kMin, x, b.constant(inf));
    case 8:
      return b.apply(kSub, x, x);
    case 9:
      return b.apply(kMul, x, zero);
    case 10:
      return b.apply(kDiv, x, x);
    case 11:
      return b.select(b.apply(kNot, b.apply(kLess, x, one)), two, x);
    case 12:
      return b.select(b.apply(kLess, zero, x), x, zero);  // a ReLU that drops NaN
    case 13:
      return b.apply(kMax, x, b.constant(nan));
    case 14:
      return b.apply(kExp, x);
    case 15:
      return b.apply(kLog, x);
    case 16:
      return b.apply(kExp, b.apply(kLog, x));
    case 17:
      return b.apply(kSqrt, x);
    case 18:
      return b.apply(kSqrt, b.apply(kMul, x, x));
    case 19:
      return b.apply(kPow, x, b.constant(0.5f));
    case 20:
      return b.apply(kPow, x, two);
    case 21:
      return b.apply(kPow, x, zero);
    case 22:
      return b.apply(kDiv, one, b.apply(kAbs, x));
    case 23:
      return b.apply(kAdd, b.apply(kSub, x, b.constant(1e30f)), b.constant(1e30f));
    case 24:
      return b.apply(kMul, b.apply(kMul, x, b.constant(1e25f)), b.constant(1e25f));
    case 25:
      return b.apply(kMul, b.apply(kMul, x, b.constant(1e-25f)), b.constant(1e-25f));
    case 26:
      return b.cast(b.cast(x, RegisterType::kI32), RegisterType::kF32);
    case 27:
      return b.cast(b.round(x, DataType::kF16), RegisterType::kF32);
    case 28:
      return b.select(b.apply(kLessEqual, b.apply(kAbs, x), b.constant(1e30f)), x, b.constant(nan));
    case 29:
      return b.apply(kSub, zero, x);
    case 30:
      return b.apply(kAtan, b.apply(kMul, x, b.constant(-1.f)));
    default:
      return b.apply(kDiv, b.apply(kExp, x), b.apply(kAdd, b.apply(kExp, x), one));
  }
}

}  // namespace anneal::testing
