#include "anneal/engine/tune/metric/accuracy.h"

#include <gtest/gtest.h>

namespace anneal {
namespace {

// Wilson's interval as Newcombe (1998) tabulates it.
TEST(Accuracy, WilsonIntervals) {
  const struct {
    int64_t right, all;
    double low, high;
  } cases[] = {{81, 263, 0.2553, 0.3662},
               {15, 148, 0.0624, 0.1605},
               {0, 20, 0, 0.1611},
               {1, 29, 0.0061, 0.1718},
               {29, 29, 0.8830, 1}};
  for (const auto& [right, all, low, high] : cases) {
    EXPECT_NEAR(wilson_interval(right, all).low, low, 5e-5) << right << " of " << all;
    EXPECT_NEAR(wilson_interval(right, all).high, high, 5e-5) << right << " of " << all;
  }
}

TEST(Accuracy, NetLossCountsWhatOneAloneHasRight) {
  std::vector<bool> right(400, true), reference(400, true);
  for (size_t i = 0; i < 9; ++i) right[i] = false;
  for (size_t i = 100; i < 105; ++i) reference[i] = false;
  const NetLoss loss = net_loss(right, reference);
  EXPECT_EQ(loss.lost, 9);
  EXPECT_EQ(loss.gained, 5);
  EXPECT_EQ(loss.net(), 4);
  // The net has a standard deviation of about the square root of 14.
  EXPECT_NEAR(loss.net_interval.low, 4 - 1.96 * 3.74, 1.1);
  EXPECT_NEAR(loss.net_interval.high, 4 + 1.96 * 3.74, 1.1);
  const NetLoss none = net_loss(right, right);
  EXPECT_EQ(none.net_interval.low, 0);
  EXPECT_EQ(none.net_interval.high, 0);
}

}  // namespace
}  // namespace anneal
