// Every instruction set gives the same bits.
#include "anneal/optimizer/precision/fit_weights.h"

#include "anneal/kernels/cpu/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/optimizer/precision/fit_weights.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
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
constexpr int kMostRefinements = 16, kRefinementsOfABlock = 2;
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

// An estimate of the error up to `enough`: quotients are computed as products.
double estimated_error(std::span<const float> weights, float scale, double enough) {
  return sum_of(weights, enough, [=](float weight) {
    const float error = weight - integer_of(weight * (1 / scale), 1, {}) * scale;
    return error * error;
  });
}

// A search for the scale of the least error.
class Fit {
 public:
  Fit(std::span<const float> weights, float scale)
      : weights_(weights), best_(scale), least_(estimated_error(weights, scale, kAll)) {}

  // Whether the scale is better than those before.
  bool consider(float scale) {
    if (!(std::abs(scale) >= kLeastScale)) return false;
    const double found = estimated_error(weights_, scale, least_);
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
    const double products = sum_of(weights_, kAll, [=](float weight) {
      return weight * integer_of(weight * per_scale, 1, {});
    });
    const double squares = sum_of(weights_, kAll, [=](float weight) {
      const float integer = integer_of(weight * per_scale, 1, {});
      return integer * integer;
    });
    return squares == 0 ? 0 : static_cast<float>(products / squares);
  }

  std::span<const float> weights_;
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
  Fit fit(weights, by_largest);
  for (int steps = kLeastSteps; steps <= kMostSteps; steps += steps < kMost ? 1 : 2)
    fit.consider(by_largest * kMost / static_cast<float>(steps));
  fit.refine(kMostRefinements);
  const float best = fit.best();
  const IntegerLimits limits;
  const double error = error_of_rounding(weights, best, limits);
  return error < error_of_rounding(weights, by_largest, limits) ? best : by_largest;
}

namespace {

// Several blocks at once, each in a lane of its own. Sums follow the order of the weights, so that
// they do not depend on the number of lanes.
using Lanes = hn::ScalableTag<float>;
using Vector = hn::Vec<Lanes>;
constexpr size_t kFloats = HWY_LANES(float);
static_assert(kFloats <= kMostBlocksAtOnce);
using FloatOfEach = std::array<float, kFloats>;
using DoubleOfEach = std::array<double, kFloats>;

Vector load(const FloatOfEach& numbers) { return hn::LoadU(Lanes(), numbers.data()); }

// 2^exponent. REQUIRES: a normal number
double power_of_2(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

float in_type(double scale, DataType dtype) {
  if (dtype == DataType::kF16) return to_f32(to_f16(scale));
  const auto rounded = static_cast<float>(scale);
  return dtype == DataType::kBF16 ? to_f32(to_bf16(rounded)) : rounded;
}

// As integer_of(), of products or quotients.
HWY_INLINE Vector nearest(Vector steps, Vector low, Vector high) {
  return hn::Round(hn::Max(hn::Min(steps, high), low));
}

class BlockGroup {
 public:
  // memory: room for the weights of kFloats blocks.
  BlockGroup(size_t length, IntegerLimits limits, float* memory)
      : length_(length),
        limits_(limits),
        low_(hn::Set(Lanes(), limits.low)),
        high_(hn::Set(Lanes(), limits.high)),
        near_1_(memory) {}

  // The first `count` blocks of these columns.
  void quantize(const BlockColumns& columns, size_t count, DataType scale_type, int8_t* to,
                int64_t to_stride, QuantizedBlock* made) {
    take(columns, count);
    fit();
    FloatOfEach scales;
    for (size_t i = 0; i < kFloats; ++i) {
      float scale = in_type(fitted_[i] * power_of_2(exponents_[i]), scale_type);
      if (scale == 0) scale = scale_type == DataType::kF16 ? 0x1p-24F : 0x1p-126F;
      if (i < count) made[i].scale = scale;
      scales[i] = static_cast<float>(scale * power_of_2(-exponents_[i]));
    }
    const Vector scale = load(scales), low = low_, high = high_;
    const auto sums = sums_of<2>([=](Vector(&parts)[2], Vector weights) HWY_ATTR {
      const Vector integers = nearest(hn::Div(weights, scale), low, high);
      const Vector errors = hn::Sub(weights, hn::Mul(integers, scale));
      parts[0] = hn::Add(parts[0], hn::Mul(errors, errors));
      parts[1] = hn::Add(parts[1], hn::Mul(weights, weights));
    });
    for (size_t i = 0; i < count; ++i) {
      const double square = power_of_2(2 * exponents_[i]);
      made[i].error = sums[0][i] * square;
      made[i].square = sums[1][i] * square;
    }
    store(scale, count, to, to_stride);
  }

 private:
  // Multiplies each block by a power of two, so that no square of a weight leaves f32.
  void take(const BlockColumns& columns, size_t count) {
    const Lanes d;
    Vector lows = hn::Zero(d), highs = hn::Zero(d);
    for (size_t k = 0; k < length_; ++k) {
      const float* const row = columns.weights + static_cast<int64_t>(k) * columns.stride;
      FloatOfEach some{};
      if (count < kFloats) std::copy_n(row, count, some.begin());
      const Vector weights = count < kFloats ? load(some) : hn::LoadU(d, row);
      __builtin_prefetch(row + kFloats);
      lows = hn::Min(lows, weights);
      highs = hn::Max(highs, weights);
      hn::StoreU(weights, d, near_1_ + k * kFloats);
    }
    FloatOfEach low, high, first, second;
    hn::StoreU(lows, d, low.data());
    hn::StoreU(highs, d, high.data());
    for (size_t i = 0; i < kFloats; ++i) {
      const float largest = high[i] == -low[i] ? first_of_magnitude(high[i], i)
                                               : (high[i] > -low[i] ? high[i] : low[i]);
      const int exponent = exponents_[i] = largest == 0 ? 0 : std::ilogb(largest);
      // In two factors, since f32 may not have 2^-exponent.
      first[i] = static_cast<float>(power_of_2(-(exponent / 2)));
      second[i] = static_cast<float>(power_of_2(exponent / 2 - exponent));
      largest_[i] = largest * first[i] * second[i];
    }
    const Vector by = load(first), and_by = load(second);
    for (size_t k = 0; k < length_; ++k) {
      float* const row = near_1_ + k * kFloats;
      hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, row), by), and_by), d, row);
    }
  }

  float first_of_magnitude(float magnitude, size_t block) const {
    for (size_t k = 0; k < length_; ++k)
      if (const float weight = near_1_[k * kFloats + block]; std::abs(weight) == magnitude)
        return weight;
    return 0;
  }

  // The scales of all blocks; 1 for weights of 0.
  void fit() {
    constexpr size_t kScales = std::size(kShares) + 2;
    std::array<FloatOfEach, kScales> scales;
    std::array<bool, kFloats> is_searched;
    for (size_t i = 0; i < kFloats; ++i) {
      float largest = largest_[i];
      is_searched[i] = std::abs(largest / limits_.low) >= 2 * kLeastScale;
      if (!is_searched[i]) largest = limits_.low;
      if (limits_.low == -limits_.high) largest = -std::abs(largest);
      // None of these is below kLeastScale.
      scales[0][i] = largest / limits_.low;
      for (size_t s = 0; s < std::size(kShares); ++s)
        scales[s + 1][i] = largest / (limits_.low * kShares[s]);
      scales.back()[i] = largest / limits_.high;
    }
    const auto errors = estimated_errors(scales);
    DoubleOfEach least;
    for (size_t i = 0; i < kFloats; ++i) {
      size_t best = 0;
      for (size_t s = 1; s < kScales; ++s)
        if (errors[s][i] < errors[best][i]) best = s;
      least[i] = errors[best][i];
      fitted_[i] = is_searched[i] ? scales[best][i] : 1;
    }
    for (int time = 0; time < kRefinementsOfABlock; ++time) refine(is_searched, least);
  }

  // Tries the scale by which the integers of the best one are nearest to the weights. A block for
  // which it is no better is searched no further.
  void refine(std::array<bool, kFloats>& is_searched, DoubleOfEach& least) {
    const Vector per_scale = hn::Div(hn::Set(Lanes(), 1), load(fitted_)), low = low_, high = high_;
    const auto sums = sums_of<2>([=](Vector(&parts)[2], Vector weights) HWY_ATTR {
      const Vector integers = nearest(hn::Mul(weights, per_scale), low, high);
      parts[0] = hn::Add(parts[0], hn::Mul(weights, integers));
      parts[1] = hn::Add(parts[1], hn::Mul(integers, integers));
    });
    std::array<FloatOfEach, 1> tried;
    for (size_t i = 0; i < kFloats; ++i) {
      const float scale = sums[1][i] == 0 ? 0 : static_cast<float>(sums[0][i] / sums[1][i]);
      is_searched[i] = is_searched[i] && std::abs(scale) >= kLeastScale;
      tried[0][i] = is_searched[i] ? scale : 1;
    }
    const auto errors = estimated_errors(tried);
    for (size_t i = 0; i < kFloats; ++i) {
      is_searched[i] = is_searched[i] && errors[0][i] < least[i];
      if (!is_searched[i]) continue;
      least[i] = errors[0][i];
      fitted_[i] = tried[0][i];
    }
  }

  // Estimates: quotients are computed as products.
  template <size_t kScales>
  std::array<DoubleOfEach, kScales> estimated_errors(
      const std::array<FloatOfEach, kScales>& scales) const {
    Vector scale[kScales], per_scale[kScales];
    for (size_t s = 0; s < kScales; ++s) {
      scale[s] = load(scales[s]);
      per_scale[s] = hn::Div(hn::Set(Lanes(), 1), scale[s]);
    }
    const Vector low = low_, high = high_;
    return sums_of<kScales>([&](Vector(&parts)[kScales], Vector weights) HWY_ATTR {
#pragma GCC unroll 8
      for (size_t s = 0; s < kScales; ++s) {
        const Vector integers = nearest(hn::Mul(weights, per_scale[s]), low, high);
        const Vector errors = hn::Sub(weights, hn::Mul(integers, scale[s]));
        parts[s] = hn::Add(parts[s], hn::Mul(errors, errors));
      }
    });
  }

  // add(parts, weights) adds to some sums of each block; those of kBlock weights are f32.
  template <size_t kSums, class Add>
  HWY_INLINE std::array<DoubleOfEach, kSums> sums_of(const Add& add) const {
    const Lanes d;
    std::array<DoubleOfEach, kSums> sums{};
    for (size_t begin = 0; begin < length_; begin += kBlock) {
      Vector parts[kSums];
#pragma GCC unroll 8
      for (size_t s = 0; s < kSums; ++s) parts[s] = hn::Zero(d);
      for (size_t k = begin; k < std::min(begin + kBlock, length_); ++k)
        add(parts, hn::LoadU(d, near_1_ + k * kFloats));
      FloatOfEach lanes;
#pragma GCC unroll 8
      for (size_t s = 0; s < kSums; ++s) {
        hn::StoreU(parts[s], d, lanes.data());
        for (size_t i = 0; i < kFloats; ++i) sums[s][i] += double{lanes[i]};
      }
    }
    return sums;
  }

  void store(Vector scale, size_t count, int8_t* to, int64_t to_stride) const {
    const Lanes d;
    constexpr size_t kTogether = 16;
    int8_t integers[kTogether][kFloats];
    for (size_t begin = 0; begin < length_; begin += kTogether, to += kTogether) {
      const size_t together = std::min(kTogether, length_ - begin);
      for (size_t k = 0; k < together; ++k) {
        const Vector weights = hn::LoadU(d, near_1_ + (begin + k) * kFloats);
        narrow(d, nearest(hn::Div(weights, scale), low_, high_), integers[k]);
      }
      for (size_t i = 0; i < count; ++i)
        for (size_t k = 0; k < together; ++k)
          to[static_cast<int64_t>(i) * to_stride + static_cast<int64_t>(k)] = integers[k][i];
    }
  }

  const size_t length_;
  const IntegerLimits limits_;
  const Vector low_, high_;
  float* const near_1_;  // weight k of block i at k * kFloats + i
  // Of each block: the exponent of its largest weight; and, divided by that power of two, this
  // weight and the scale.
  std::array<int, kFloats> exponents_;
  FloatOfEach largest_, fitted_;
};

}  // namespace

void quantized_blocks(const BlockColumns& columns, IntegerLimits limits, DataType scale_type,
                      std::span<float> memory, int8_t* to, int64_t to_stride,
                      QuantizedBlock* made) {
  BlockGroup group(static_cast<size_t>(columns.length), limits, memory.data());
  for (int64_t first = 0; first < columns.count; first += int64_t{kFloats}) {
    BlockColumns some = columns;
    some.weights += first;
    group.quantize(some, static_cast<size_t>(std::min<int64_t>(kFloats, columns.count - first)),
                   scale_type, to + first * to_stride, to_stride, made + first);
  }
}

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anneal::cpu {
namespace {

auto error_finder() { return ANNEAL_BY_ISA(current_isa(), error_of_rounding); }
auto scale_finder() { return ANNEAL_BY_ISA(current_isa(), fit_scale); }
auto blocks_quantizer() { return ANNEAL_BY_ISA(current_isa(), quantized_blocks); }

}  // namespace
}  // namespace anneal::cpu

namespace anneal {

double rounding_error(std::span<const float> weights, float scale, IntegerLimits limits) {
  return cpu::error_finder()(weights, scale, limits);
}
float fitted_scale(std::span<const float> weights, float by_largest) {
  return cpu::scale_finder()(weights, by_largest);
}
void quantize_blocks(const BlockColumns& columns, IntegerLimits limits, DataType scale_type,
                     std::span<float> memory, int8_t* to, int64_t to_stride, QuantizedBlock* made) {
  cpu::blocks_quantizer()(columns, limits, scale_type, memory, to, to_stride, made);
}

}  // namespace anneal
#endif
