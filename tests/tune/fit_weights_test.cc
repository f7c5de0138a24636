// Scales of weights: never worse than those by the largest magnitude, and exact where that can be.
#include "anneal/optimizer/precision/fit_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "anneal/optimizer/precision/quantized_weights.h"

namespace anneal {
namespace {

float by_largest(const std::vector<float>& weights) {
  float most = 0;
  for (const float weight : weights) most = std::max(most, std::abs(weight));
  return most / 127;
}

TEST(FitWeights, FindsTheGridThatWeightsLieOn) {
  std::mt19937 random(1);
  for (const int most : {1, 2, 5, 21, 42, 63, 64, 90, 126, 127}) {
    for (const float step : {1.0F, 0.0123F, 7e-6F}) {
      std::uniform_int_distribution<int> steps(-most, most);
      std::vector<float> weights = {static_cast<float>(most) * step};
      for (int i = 0; i < 71; ++i) weights.push_back(static_cast<float>(steps(random)) * step);
      const float scale = fitted_scale(weights, by_largest(weights));
      double squares = 0;
      for (const float weight : weights) squares += double{weight} * double{weight};
      EXPECT_LT(rounding_error(weights, scale), 1e-12 * squares) << most << " steps of " << step;
    }
  }
}

TEST(FitWeights, IsNeverWorseThanTheLargestMagnitude) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::student_t_distribution<float> heavy(2);
  for (const int size : {1, 2, 9, 27, 100, 511, 513, 1200})
    for (int round = 0; round < 20; ++round) {
      std::vector<float> weights;
      for (int i = 0; i < size; ++i) weights.push_back(round % 2 ? normal(random) : heavy(random));
      const float largest = by_largest(weights);
      EXPECT_LE(rounding_error(weights, fitted_scale(weights, largest)),
                rounding_error(weights, largest));
    }
}

TEST(FitWeights, ClipsOneThatLiesFarOut) {
  std::vector<float> weights = {1.5F};
  for (int i = 0; i < 100000; ++i) weights.push_back(std::sin(static_cast<float>(i)));
  const float largest = by_largest(weights), scale = fitted_scale(weights, largest);
  EXPECT_LT(scale, 0.9F * largest);
  EXPECT_LT(rounding_error(weights, scale), 0.9 * rounding_error(weights, largest));
}

TEST(FitWeights, ChannelsAreFittedEachByItself) {
  // Columns: a grid of 0.5, another of 0.03 whose largest is 100 steps, zeros.
  const std::vector<float> weights = {0.5F, 3, 0, -1, 0.99F, 0, 2.5F, -0.03F, 0};
  const Tensor tensor = Tensor::of<float>(DataType::kF32, {3, 3}, weights);
  const QuantizedWeights plain = quantize_channels(tensor, 1, false);
  const QuantizedWeights fitted = quantize_channels(tensor, 1, true);
  EXPECT_EQ(plain.scaling.scales[0], 2.5F / 127);
  EXPECT_EQ(fitted.scaling.scales[2], 1);
  for (size_t i = 0; i < weights.size(); ++i)
    EXPECT_FLOAT_EQ(
        static_cast<float>(fitted.integers.as<int8_t>()[i]) * fitted.scaling.scales[i % 3],
        weights[i]);
}

}  // namespace
}  // namespace anneal
