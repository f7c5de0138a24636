#include "anneal/optimizer/precision/fit_weights.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace anneal {
namespace {

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

constexpr size_t kLanes = 8;  // sums of f32 that vectors compute

double sum_of(const float (&lanes)[kLanes]) {
  return double{((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) +
                ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]))};
}

// The sum of term(weight), up to `enough`.
template <class Term>
double sum_of(std::span<const float> weights, double enough, const Term& term) {
  constexpr size_t kBlock = 128;
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
double estimated_error(std::span<const float> weights, float scale, IntegerLimits limits,
                       double enough) {
  const float per_scale = 1 / scale;
  return sum_of(weights, enough, [=](float weight) {
    const float error = weight - integer_of(weight * per_scale, 1, limits) * scale;
    return error * error;
  });
}

// A search for the scale of the least error.
class Fit {
 public:
  Fit(std::span<const float> weights, IntegerLimits limits, float scale)
      : weights_(weights),
        limits_(limits),
        best_(scale),
        least_(estimated_error(weights, scale, limits, kAll)) {}

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

double rounding_error(std::span<const float> weights, float scale, IntegerLimits limits) {
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

double sum_of_squares(std::span<const float> weights) {
  return sum_of(weights, kAll, [](float weight) { return weight * weight; });
}

float fitted_scale(std::span<const float> weights, float by_largest) {
  Fit fit(weights, {}, by_largest);
  for (int steps = kLeastSteps; steps <= kMostSteps; steps += steps < kMost ? 1 : 2)
    fit.consider(by_largest * kMost / static_cast<float>(steps));
  fit.refine(kMostRefinements);
  const float best = fit.best();
  return rounding_error(weights, best) < rounding_error(weights, by_largest) ? best : by_largest;
}

float fitted_block_scale(std::span<const float> block, IntegerLimits limits) {
  float largest = 0;
  for (const float weight : block)
    if (std::abs(weight) > std::abs(largest)) largest = weight;
  if (std::abs(largest / limits.low) < 2 * kLeastScale) return 1;
  if (limits.low == -limits.high) largest = -std::abs(largest);
  Fit fit(block, limits, largest / limits.low);
  for (const float share : kShares) fit.consider(largest / (limits.low * share));
  fit.consider(largest / limits.high);
  fit.refine(kFewRefinements);
  return fit.best();
}

}  // namespace anneal
