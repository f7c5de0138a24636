#include "anneal/engine/tune/calibration/choose_range.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "anneal/optimizer/precision/quantized_weights.h"

namespace anneal {
namespace {

constexpr RangeMethod kMethods[] = {RangeMethod::kMinMax, RangeMethod::kEntropy,
                                    RangeMethod::kPercentile, RangeMethod::kMse,
                                    RangeMethod::kAuto};

// Normal values, some cut off at 0, and a few far out.
std::vector<float> with_outliers(bool relu, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(40000);
  for (float& value : values) value = relu ? std::max(normal(random), 0.0F) : normal(random);
  values[7] = 40;
  if (!relu) values[8] = -30;
  return values;
}

Histogram histogram_of(const std::vector<float>& values) {
  Histogram histogram;
  histogram.add(values);
  return histogram;
}

double measured_error(const std::vector<float>& values, const TensorRange& range, bool symmetric) {
  const Scaling scaling = scaling_for(range, symmetric);
  const double low = scaling.integer == DataType::kU8 ? 0 : -128;
  double sum = 0;
  for (const float value : values) {
    const double q = std::clamp(
        std::nearbyint(double{value / scaling.scales[0]}) + scaling.zeros[0], low, low + 255);
    const double back = (q - scaling.zeros[0]) * scaling.scales[0];
    sum += (value - back) * (value - back);
  }
  return sum / static_cast<double>(values.size());
}

TEST(ChooseRange, TheErrorIsWhatQuantizingMakes) {
  for (const bool relu : {false, true})
    for (const bool symmetric : {false, true})
      for (const RangeMethod method : kMethods) {
        const std::vector<float> values = with_outliers(relu, 1);
        const Histogram histogram = histogram_of(values);
        const TensorRange range =
            choose_range(histogram, {.method = method, .symmetric = symmetric});
        const double expected = measured_error(values, range, symmetric);
        EXPECT_NEAR(quantization_error(histogram, range.min, range.max, symmetric), expected,
                    0.1 * expected)
            << to_string(method) << (relu ? ", after ReLU" : "");
      }
}

TEST(ChooseRange, MethodsCutOutliersOff) {
  const std::vector<float> values = with_outliers(false, 2);
  const Histogram histogram = histogram_of(values);
  const auto range = [&](RangeMethod method) {
    return choose_range(histogram, {.method = method});
  };
  EXPECT_EQ(range(RangeMethod::kMinMax).max, 40);
  EXPECT_EQ(range(RangeMethod::kMinMax).min, -30);
  // Far enough out, a value is dearer to clamp than all others are to round.
  EXPECT_LT(range(RangeMethod::kMse).max, 40);
  for (const RangeMethod method : {RangeMethod::kEntropy, RangeMethod::kPercentile}) {
    EXPECT_LT(range(method).max, 10) << to_string(method);
    EXPECT_GT(range(method).max, 2.5) << to_string(method);
    EXPECT_GT(range(method).min, -10) << to_string(method);
    EXPECT_EQ(range(method).seen_max, 40);
    EXPECT_EQ(range(method).seen_min, -30);
    EXPECT_EQ(range(method).method, to_string(method));
  }
}

TEST(ChooseRange, AutoTakesTheLeastError) {
  for (const bool relu : {false, true}) {
    const Histogram histogram = histogram_of(with_outliers(relu, 3));
    const auto error = [&](RangeMethod method) {
      const TensorRange range = choose_range(histogram, {.method = method});
      return quantization_error(histogram, range.min, range.max, false);
    };
    for (const RangeMethod method : kMethods)
      EXPECT_LE(error(RangeMethod::kAuto), error(method)) << to_string(method);
  }
}

TEST(ChooseRange, APercentileLeavesItsShareOutside) {
  const std::vector<float> values = with_outliers(false, 4);
  const TensorRange range =
      choose_range(histogram_of(values), {.method = RangeMethod::kPercentile, .percentile = 90});
  const auto outside = std::ranges::count_if(
      values, [&](float value) { return value < range.min || value > range.max; });
  EXPECT_NEAR(static_cast<double>(outside), 0.1 * static_cast<double>(values.size()), 100);
}

TEST(ChooseRange, NothingAndOneValue) {
  for (const RangeMethod method : kMethods) {
    Histogram zeros, constant;
    zeros.add(std::vector<float>(100));
    constant.add(std::vector<float>(100, 2.5F));
    const TensorRange none = choose_range({}, {.method = method});
    EXPECT_EQ(none.min, 0);
    EXPECT_EQ(none.max, 0);
    EXPECT_EQ(choose_range(zeros, {.method = method}).max, 0);
    const TensorRange one = choose_range(constant, {.method = method});
    EXPECT_NEAR(one.max, 2.5, 0.03) << to_string(method);
    EXPECT_EQ(one.min, 0) << to_string(method);
  }
}

TEST(ChooseRange, NamesGoBothWays) {
  for (const RangeMethod method : kMethods) EXPECT_EQ(range_method(to_string(method)), method);
  EXPECT_FALSE(range_method("kl"));
}

}  // namespace
}  // namespace anneal
