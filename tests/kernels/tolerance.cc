#include "anneal/tests/kernels/tolerance.h"

#include <cmath>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/tests/kernels/tensor_text.h"

namespace anneal::testing {
namespace {

const Dims& dims_of_input(const TestLayer& layer, size_t index) {
  return layer.inputs[index]->dims();
}

// Whether a card may add the layer's products on tensor cores in floats.
bool adds_halves(const TestLayer& layer) {
  return depth_of(layer) > 0 && is_half(layer.inputs[0]->dtype());
}

// How many elements are not equal, all others being no more than 1 apart; -1 if some are.
int64_t next_ones(const Tensor& got, const Tensor& wanted) {
  int64_t count = 0;
  for (int64_t i = 0; i < wanted.count(); ++i) {
    const double apart = std::abs(element(got, i) - element(wanted, i));
    if (apart > 1) return -1;
    if (apart > 0) ++count;
  }
  return count;
}

}  // namespace

int64_t depth_of(const TestLayer& layer) {
  if (std::holds_alternative<Conv>(layer.op)) {
    const Dims& w = dims_of_input(layer, 1);
    return w[0] == 0 ? 0 : count(w) / w[0];
  }
  if (const auto* op = std::get_if<ConvTranspose>(&layer.op)) {
    const Dims& w = dims_of_input(layer, 1);
    return w[1] == 0 ? 0 : count(w) / w[1] / op->groups;
  }
  if (const auto* op = std::get_if<MatMul>(&layer.op)) {
    const Dims& a = dims_of_input(layer, 0);
    return a[a.rank() - (op->transpose_a ? 2 : 1)];
  }
  if (std::holds_alternative<Attention>(layer.op)) {
    // Scores are sums over D, and results sums over S of what is made of them.
    const Dims& k = dims_of_input(layer, 1);
    return k[3] + k[2];
  }
  return 0;
}

// Products of two 16-bit floats have at most 22 bits, so f32 holds them. The reference adds them
// one after another. Each sum is rounded to nearest, with an error of at most 2^-24 of it (Higham,
// Accuracy and Stability of Numerical Algorithms, chapter 4). Errors of both signs mostly cancel,
// and stay within default_tolerance().
// NVIDIA does not say how tensor cores add. The bound is that of a machine which adds several
// products to the sum so far at once, in fixed point: it shifts all addends to the largest exponent
// among them, and cuts off what lies below the last of the 24 bits of f32. An addend then loses
// less than 2^-23 of the largest magnitude among them. Losses all have one direction where addends
// have one sign, so they add up: `depth` addends lose less than depth * 2^-23 of the largest
// magnitude that they meet. That is about the largest sum at most, which tolerances are shares of.
//
// It still shows one product that is left out or wrong. Of operands uniform in -2..2 a product is
// about 1, sums have a deviation of 4/3 * sqrt(depth), and the largest of some thousands is 4
// deviations: a product is 1 / (5.3 * sqrt(depth)) of it, more than depth * 2^-23 below 13,500.
double sum_tolerance(int64_t depth) {
  check(depth <= kDeepest, "the bound would let a wrong product pass");
  return std::ldexp(static_cast<double>(depth), -23);
}

// What 16-bit floats are stored with stays most of the bound: 2e-3 for f16, of depth 1000 1.2e-4
// more. Reductions, norms and averages add in f32 on CUDA cores, which round to nearest as CPUs do.
double tolerance_of(const TestLayer& layer, DataType stored) {
  const double sums = adds_halves(layer) ? sum_tolerance(depth_of(layer)) : 0;
  const double other = default_tolerance(stored);
  return other == 0 ? 0 : other + sums;
}

std::optional<std::string> disagreement(const TestLayer& layer, const Tensor& got,
                                        const Tensor& wanted) {
  const DataType dtype = wanted.dtype();
  auto problem = difference(got, wanted, tolerance_of(layer, dtype));
  if (!problem || is_float(dtype) || !adds_halves(layer) || got.dtype() != dtype ||
      !(got.dims() == wanted.dims()))
    return problem;
  // A sum falls on the other side of a tie if one is no further away than the sum may be off, of
  // some hundreds of steps; at least one of a small tensor.
  constexpr double kSteps = 512;
  const double share = 2 * kSteps * sum_tolerance(depth_of(layer));
  const int64_t others = next_ones(got, wanted);
  const double allowed = 1 + share * static_cast<double>(wanted.count());
  if (others >= 0 && static_cast<double>(others) <= allowed) return std::nullopt;
  return problem;
}

}  // namespace anneal::testing
