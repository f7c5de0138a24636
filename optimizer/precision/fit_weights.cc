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
constexpr int kMostRefinements = 16;
constexpr float kLeastScale = 1e-30F;  // quotients by it are finite

// The integer nearest to the quotient, ties to even: 1.5 * 2^23 leaves no bits for a fraction.
float rounded(float weight, float per_scale) {
  constexpr float kNoFraction = 12582912;
  const float steps = weight * per_scale;
  const float most = steps < kMost ? steps : kMost;
  return ((most > -kMost ? most : -kMost) + kNoFraction) - kNoFraction;
}

// An estimate of the error up to `enough`: quotients are computed as products.
double estimated_error(std::span<const float> weights, float scale, double enough) {
  constexpr size_t kLanes = 8, kBlock = 128;
  const float per_scale = 1 / scale;
  double sum = 0;
  for (size_t begin = 0; begin < weights.size() && sum < enough; begin += kBlock) {
    const auto block = weights.subspan(begin, std::min(kBlock, weights.size() - begin));
    float lanes[kLanes] = {};
    size_t i = 0;
    for (; i + kLanes <= block.size(); i += kLanes)
      for (size_t lane = 0; lane < kLanes; ++lane) {
        const float weight = block[i + lane];
        const float error = weight - rounded(weight, per_scale) * scale;
        lanes[lane] += error * error;
      }
    for (; i < block.size(); ++i) {
      const float error = block[i] - rounded(block[i], per_scale) * scale;
      lanes[0] += error * error;
    }
    for (const float lane : lanes) sum += double{lane};
  }
  return sum;
}

// The scale by which these integers are nearest to the weights; 0 if all are 0.
float least_squares_scale(std::span<const float> weights, float scale) {
  double products = 0, squares = 0;
  for (const float weight : weights) {
    const double q = rounded(weight, 1 / scale);
    products += weight * q;
    squares += q * q;
  }
  return squares == 0 ? 0 : static_cast<float>(products / squares);
}

}  // namespace

double rounding_error(std::span<const float> weights, float scale) {
  double sum = 0;
  for (const float weight : weights) {
    const double q = std::clamp(std::nearbyint(weight / scale), -kMost, kMost);
    const double error = weight - q * double{scale};
    sum += error * error;
  }
  return sum;
}

float fitted_scale(std::span<const float> weights, float by_largest) {
  float best = by_largest;
  double least = estimated_error(weights, by_largest, std::numeric_limits<double>::infinity());
  const auto consider = [&](float scale) {
    if (!(scale >= kLeastScale)) return false;
    const double found = estimated_error(weights, scale, least);
    if (found >= least) return false;
    least = found;
    best = scale;
    return true;
  };
  for (int steps = kLeastSteps; steps <= kMostSteps; steps += steps < kMost ? 1 : 2)
    consider(by_largest * kMost / static_cast<float>(steps));
  for (int i = 0; i < kMostRefinements; ++i)
    if (!consider(least_squares_scale(weights, best))) break;
  return rounding_error(weights, best) < rounding_error(weights, by_largest) ? best : by_largest;
}

}  // namespace anneal
