#include "anneal/engine/tune/calibration/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace anneal {
namespace {

std::vector<float> random_values(size_t count, float scale, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

void expect_equal(const Histogram& a, const Histogram& b) {
  EXPECT_EQ(a.width(), b.width());
  EXPECT_EQ(a.count(), b.count());
  EXPECT_EQ(a.zeros(), b.zeros());
  EXPECT_EQ(a.min(), b.min());
  EXPECT_EQ(a.max(), b.max());
  for (int i = -Histogram::kBinsPerSide; i < Histogram::kBinsPerSide; ++i)
    ASSERT_EQ(a.bin(i), b.bin(i)) << i;
}

TEST(Histogram, CountsEveryValueInItsBin) {
  const std::vector<float> values = random_values(10000, 3, 1);
  Histogram histogram;
  histogram.add(values);
  for (int i = -Histogram::kBinsPerSide; i < Histogram::kBinsPerSide; ++i) {
    const double begin = i * histogram.width(), end = (i + 1) * histogram.width();
    ASSERT_EQ(histogram.bin(i),
              std::ranges::count_if(
                  values, [&](float value) { return value != 0 && value >= begin && value < end; }))
        << i;
  }
}

TEST(Histogram, DoesNotDependOnTheOrder) {
  std::vector<float> values = random_values(5000, 1, 2);
  values.push_back(1000);
  values.push_back(-4096);
  values.push_back(0);
  Histogram at_once, one_by_one, backwards;
  at_once.add(values);
  for (const float& value : values) one_by_one.add({&value, 1});
  std::ranges::reverse(values);
  for (const float& value : values) backwards.add({&value, 1});
  expect_equal(at_once, one_by_one);
  expect_equal(at_once, backwards);
}

TEST(Histogram, AddsUp) {
  const std::vector<float> a = random_values(1000, 1, 3), b = random_values(1000, 100, 4);
  std::vector<float> both = a;
  both.insert(both.end(), b.begin(), b.end());
  Histogram whole, first, second, empty;
  whole.add(both);
  first.add(a);
  second.add(b);
  first.add(second);
  first.add(empty);
  empty.add(second);
  expect_equal(whole, first);
  expect_equal(second, empty);
}

// Elements are counted in blocks; for any block size, the counts are those of one at a time.
TEST(Histogram, CountsBlocksAsSingleValues) {
  for (const size_t size : {1, 7, 15, 16, 23, 255, 256, 257, 300, 1000}) {
    SCOPED_TRACE(size);
    std::vector<float> values = random_values(size, 2, 5);
    for (size_t i = 0; i < size; i += 3) values[i] = i % 2 == 0 ? 0.0f : -0.0f;
    for (const bool all_finite : {true, false}) {
      if (!all_finite) values[size / 2] = std::numeric_limits<float>::quiet_NaN();
      Histogram together, single;
      together.add(values);
      for (const float& value : values) single.add(std::span(&value, 1));
      expect_equal(together, single);
      EXPECT_EQ(together.not_finite(), single.not_finite());
    }
  }
}

TEST(Histogram, BeginsFromAnySize) {
  for (const float size : {std::numeric_limits<float>::max(), std::numeric_limits<float>::min(),
                           std::numeric_limits<float>::denorm_min(), 4096.0F}) {
    Histogram histogram;
    const std::vector<float> values = {size, -size, 0};
    histogram.add(values);
    EXPECT_EQ(histogram.count(), 3) << size;
    EXPECT_EQ(histogram.zeros(), 1) << size;
    int64_t counted = 0;
    for (int i = 0; i < Histogram::kBinsPerSide; ++i) counted += histogram.magnitudes(i);
    EXPECT_EQ(counted, 2) << size;
    EXPECT_GT(histogram.width(), 0) << size;
  }
}

TEST(Histogram, CountsWhatIsNotFiniteApart) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {1, inf, -inf, std::nanf(""), 2};
  Histogram histogram, only;
  histogram.add(values);
  only.add(std::vector<float>{1, 2});
  EXPECT_EQ(histogram.not_finite(), 3);
  expect_equal(histogram, only);
}

}  // namespace
}  // namespace anneal
