// Every instruction set gives the same bits.
#include "anneal/optimizer/precision/fit_weights.h"

#include "anneal/kernels/cpu/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/optimizer/precision/fit_weights.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "anneal/core/float16.h"
// In this order, which formatting must not change:
#include "anneal/kernels/cpu/program/tape_math-inl.h"
//
#include "anneal/kernels/cpu/program/vector_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr float kMost = 127;
// A grid on which the largest magnitude is fewer steps than this from 0 has a finer one, of which
// every second or third point is its own, among those tried.
constexpr int kLeastSteps = 64;
constexpr int kMostSteps = 254;  // clips at half the largest magnitude
constexpr int kMostRefinements = 16, kFewRefinements = 2;
// The largest magnitude of a block becomes these shares of the lowest integer: more than 1 clips
// it.
constexpr float kShares[] = {0.625F, 0.75F, 0.875F, 1.125F, 1.25F, 1.4F};
constexpr float kLeastScale = 1e-30F;  // quotients by it are finite

constexpr size_t kLanes = 8;    // sums of f32 that vectors compute
constexpr size_t kBlock = 128;  // weights of which sums are f32

double sum_of(const float (&lanes)[kLanes]) {
  return double{((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) +
                ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]))};
}

// The sum of term(weight), up to `enough`.
template <class Term>
double sum_of(std::span<const float> weights, double enough, const Term& term) {
  double sum = 0;
  for (size_t begin = 0; begin < weights.size() && sum < enough; begin += kBlock) {
    const auto block = weights.subspan(begin, std::min(kBlock, weights.size() - begin));
    float lanes[kLanes] = {};
    size_t i = 0;
    for (; i + kLanes <= block.size(); i += kLanes)
      for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(block[i + lane]);
    for (; i < block.size(); ++i) lanes[0] += term(block[i]);
    sum += sum_of(lanes);
  }
  return sum;
}

constexpr double kAll = std::numeric_limits<double>::infinity();

// Quotients are computed as products.
float square_of_error(float weight, float scale, IntegerLimits limits) {
  const float error = weight - integer_of(weight * (1 / scale), 1, limits) * scale;
  return error * error;
}

// An estimate of the error up to `enough`.
double estimated_error(std::span<const float> weights, float scale, IntegerLimits limits,
                       double enough) {
  return sum_of(weights, enough,
                [=](float weight) { return square_of_error(weight, scale, limits); });
}

// The estimates of several scales at once, whose sums do not wait for each other.
template <size_t kScales>
std::array<double, kScales> estimated_errors(std::span<const float> weights,
                                             const std::array<float, kScales>& scales,
                                             IntegerLimits limits) {
  const hn::CappedTag<float, kLanes> d;
  constexpr size_t kEach = std::min<size_t>(HWY_LANES(float), kLanes), kVectors = kLanes / kEach;
  const auto low = hn::Set(d, limits.low), high = hn::Set(d, limits.high);
  std::array<float, kScales> per_scale;
  std::ranges::transform(scales, per_scale.begin(), [](float scale) { return 1 / scale; });
  std::array<double, kScales> errors{};
  for (size_t begin = 0; begin < weights.size(); begin += kBlock) {
    const auto block = weights.subspan(begin, std::min(kBlock, weights.size() - begin));
    const size_t whole = block.size() / kLanes * kLanes;
    hn::Vec<decltype(d)> sums[kScales][kVectors];
    for (auto& of_scale : sums) std::ranges::fill(of_scale, hn::Zero(d));
    for (size_t i = 0; i < whole; i += kLanes)
      for (size_t v = 0; v < kVectors; ++v) {
        const auto weight = hn::LoadU(d, &block[i + v * kEach]);
#pragma GCC unroll 8
        for (size_t k = 0; k < kScales; ++k) {
          const auto steps = hn::Mul(weight, hn::Set(d, per_scale[k]));
          const auto integer = hn::Round(hn::Max(hn::Min(steps, high), low));
          const auto error = hn::Sub(weight, hn::Mul(integer, hn::Set(d, scales[k])));
          sums[k][v] = hn::Add(sums[k][v], hn::Mul(error, error));
        }
      }
    for (size_t k = 0; k < kScales; ++k) {
      float lanes[kLanes];
      for (size_t v = 0; v < kVectors; ++v) hn::StoreU(sums[k][v], d, lanes + v * kEach);
      for (size_t i = whole; i < block.size(); ++i)
        lanes[0] += square_of_error(block[i], scales[k], limits);
      errors[k] += sum_of(lanes);
    }
  }
  return errors;
}

// A search for the scale of the least error.
class Fit {
 public:
  Fit(std::span<const float> weights, IntegerLimits limits, float scale, double error)
      : weights_(weights), limits_(limits), best_(scale), least_(error) {}
  Fit(std::span<const float> weights, IntegerLimits limits, float scale)
      : Fit(weights, limits, scale, estimated_error(weights, scale, limits, kAll)) {}

  // Whether the scale is better than those before.
  bool consider(float scale) {
    if (!(std::abs(scale) >= kLeastScale)) return false;
    const double found = estimated_error(weights_, scale, limits_, least_);
    if (!(found < least_)) return false;
    least_ = found;
    best_ = scale;
    return true;
  }
  void refine(int most_times) {
    for (int i = 0; i < most_times; ++i)
      if (!consider(least_squares_scale())) break;
  }
  float best() const { return best_; }

 private:
  // The scale by which the integers of the best one are nearest to the weights; 0 if all are 0.
  float least_squares_scale() const {
    const float per_scale = 1 / best_;
    const IntegerLimits limits = limits_;
    const double products = sum_of(weights_, kAll, [=](float weight) {
      return weight * integer_of(weight * per_scale, 1, limits);
    });
    const double squares = sum_of(weights_, kAll, [=](float weight) {
      const float integer = integer_of(weight * per_scale, 1, limits);
      return integer * integer;
    });
    return squares == 0 ? 0 : static_cast<float>(products / squares);
  }

  std::span<const float> weights_;
  IntegerLimits limits_;
  float best_;
  double least_;
};

}  // namespace

double error_of_rounding(std::span<const float> weights, float scale, IntegerLimits limits) {
  constexpr size_t kSums = 4;  // that do not wait for each other
  double sums[kSums] = {};
  size_t i = 0;
  const auto add = [&](size_t sum, float weight) {
    const double error = weight - double{integer_of(weight, scale, limits)} * double{scale};
    sums[sum] += error * error;
  };
  for (; i + kSums <= weights.size(); i += kSums)
    for (size_t sum = 0; sum < kSums; ++sum) add(sum, weights[i + sum]);
  for (; i < weights.size(); ++i) add(0, weights[i]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

float fit_scale(std::span<const float> weights, float by_largest) {
  Fit fit(weights, {}, by_largest);
  for (int steps = kLeastSteps; steps <= kMostSteps; steps += steps < kMost ? 1 : 2)
    fit.consider(by_largest * kMost / static_cast<float>(steps));
  fit.refine(kMostRefinements);
  const float best = fit.best();
  const IntegerLimits limits;
  const double error = error_of_rounding(weights, best, limits);
  return error < error_of_rounding(weights, by_largest, limits) ? best : by_largest;
}

namespace {

using Lanes = hn::ScalableTag<float>;
constexpr size_t kFloats = HWY_LANES(float);

// The weight of the largest magnitude, the first of several. 0: there is none.
float largest_of(std::span<const float> weights) {
  const Lanes d;
  auto lows = hn::Zero(d), highs = hn::Zero(d);
  size_t i = 0;
  for (; i + kFloats <= weights.size(); i += kFloats) {
    lows = hn::Min(lows, hn::LoadU(d, &weights[i]));
    highs = hn::Max(highs, hn::LoadU(d, &weights[i]));
  }
  float low = hn::GetLane(hn::MinOfLanes(d, lows)), high = hn::GetLane(hn::MaxOfLanes(d, highs));
  for (; i < weights.size(); ++i) {
    low = std::min(low, weights[i]);
    high = std::max(high, weights[i]);
  }
  if (high != -low) return high > -low ? high : low;
  const auto first =
      std::ranges::find(weights, high, [](float weight) { return std::abs(weight); });
  return first == weights.end() ? 0 : *first;
}

// 2^-exponent in two factors, since f32 may not have it.
struct Power {
  explicit Power(int exponent)
      : first(std::ldexp(1.0F, -(exponent / 2))),
        second(std::ldexp(1.0F, exponent / 2 - exponent)) {}
  float first, second;
};

void multiply(std::span<const float> weights, const Power& by, std::span<float> to) {
  const Lanes d;
  const auto first = hn::Set(d, by.first), second = hn::Set(d, by.second);
  size_t i = 0;
  for (; i + kFloats <= weights.size(); i += kFloats)
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, &weights[i]), first), second), d, &to[i]);
  for (; i < weights.size(); ++i) to[i] = weights[i] * by.first * by.second;
}

// Of weights near 1, so that no square of a weight leaves f32. 1 for weights of 0.
float fit_block_scale(std::span<const float> block, float largest, IntegerLimits limits) {
  if (std::abs(largest / limits.low) < 2 * kLeastScale) return 1;
  if (limits.low == -limits.high) largest = -std::abs(largest);
  // None of these is below kLeastScale.
  std::array<float, std::size(kShares) + 2> scales{largest / limits.low};
  for (size_t i = 0; i < std::size(kShares); ++i)
    scales[i + 1] = largest / (limits.low * kShares[i]);
  scales.back() = largest / limits.high;
  const auto errors = estimated_errors(block, scales, limits);
  const auto* const best = std::ranges::min_element(errors);
  Fit fit(block, limits, scales[static_cast<size_t>(best - errors.begin())], *best);
  fit.refine(kFewRefinements);
  return fit.best();
}

// As integer_of().
void round_to(std::span<const float> weights, float scale, IntegerLimits limits, int8_t* to) {
  const Lanes d;
  const auto low = hn::Set(d, limits.low), high = hn::Set(d, limits.high);
  size_t i = 0;
  for (; i + kFloats <= weights.size(); i += kFloats) {
    const auto steps = hn::Div(hn::LoadU(d, &weights[i]), hn::Set(d, scale));
    narrow(d, hn::Round(hn::Max(hn::Min(steps, high), low)), to + i);
  }
  for (; i < weights.size(); ++i)
    to[i] = static_cast<int8_t>(integer_of(weights[i], scale, limits));
}

float in_type(double scale, DataType dtype) {
  if (dtype == DataType::kF16) return to_f32(to_f16(scale));
  const auto rounded = static_cast<float>(scale);
  return dtype == DataType::kBF16 ? to_f32(to_bf16(rounded)) : rounded;
}

}  // namespace

QuantizedBlock block_quantized(std::span<const float> weights, IntegerLimits limits,
                               DataType scale_type, std::span<float> memory, int8_t* to) {
  const float largest = largest_of(weights);
  const int exponent = largest == 0 ? 0 : std::ilogb(largest);
  const Power power(exponent);
  const std::span<float> near_1 = memory.first(weights.size());
  multiply(weights, power, near_1);
  QuantizedBlock made;
  const float fitted = fit_block_scale(near_1, largest * power.first * power.second, limits);
  made.scale = in_type(std::ldexp(double{fitted}, exponent), scale_type);
  if (made.scale == 0) made.scale = scale_type == DataType::kF16 ? 0x1p-24F : 0x1p-126F;
  const auto scale = static_cast<float>(std::ldexp(double{made.scale}, -exponent));
  round_to(near_1, scale, limits, to);
  const double square =
      sum_of(std::span<const float>(near_1), kAll, [](float weight) { return weight * weight; });
  made.error = std::ldexp(error_of_rounding(near_1, scale, limits), 2 * exponent);
  made.square = std::ldexp(square, 2 * exponent);
  return made;
}

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anneal::cpu {
namespace {

auto error_finder() { return ANNEAL_BY_ISA(current_isa(), error_of_rounding); }
auto scale_finder() { return ANNEAL_BY_ISA(current_isa(), fit_scale); }
auto block_quantizer() { return ANNEAL_BY_ISA(current_isa(), block_quantized); }

}  // namespace
}  // namespace anneal::cpu

namespace anneal {

double rounding_error(std::span<const float> weights, float scale, IntegerLimits limits) {
  return cpu::error_finder()(weights, scale, limits);
}
float fitted_scale(std::span<const float> weights, float by_largest) {
  return cpu::scale_finder()(weights, by_largest);
}
QuantizedBlock quantize_block(std::span<const float> weights, IntegerLimits limits,
                              DataType scale_type, std::span<float> memory, int8_t* to) {
  return cpu::block_quantizer()(weights, limits, scale_type, memory, to);
}

}  // namespace anneal
#endif
