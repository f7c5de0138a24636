#include "anneal/engine/tune/metric/accuracy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/engine/tune/metric/classify.h"
#include "anneal/tests/error_of.h"

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

Prediction prediction(const char* sample, std::optional<int64_t> label, int64_t best) {
  return {sample, label, {{best, 0.5}, {best + 1, 0.25}}};
}

TEST(Accuracy, CountsLabelledSamples) {
  const std::vector<Prediction> predictions = {prediction("a", 3, 3), prediction("b", 4, 3),
                                               prediction("c", 9, 3), prediction("d", {}, 3)};
  const Accuracy accuracy = accuracy_of(predictions);
  EXPECT_EQ(accuracy.samples, 4);
  EXPECT_EQ(accuracy.labelled, 3);
  EXPECT_DOUBLE_EQ(accuracy.top1(), 1. / 3);
  EXPECT_DOUBLE_EQ(accuracy.top5(), 2. / 3);
  EXPECT_EQ(accuracy.interval.high, wilson_interval(1, 3).high);
  EXPECT_EQ(accuracy_of({prediction("d", {}, 3)}).top1(), 0);
}

// The reference may be in another order, and without labels.
TEST(Accuracy, ComparesPredictionsOfTheSameSamples) {
  const std::vector<Prediction> ours = {prediction("a", 3, 3), prediction("b", 4, 7),
                                        prediction("c", {}, 5)};
  const std::vector<Prediction> reference = {prediction("c", {}, 5), prediction("b", {}, 4),
                                             prediction("a", {}, 3)};
  const LossAgainst against = loss_against(ours, reference);
  EXPECT_EQ(against.agree, 2);
  EXPECT_EQ(against.reference.labelled, 2);
  EXPECT_EQ(against.reference.right, 2);
  EXPECT_EQ(against.loss.lost, 1);
  EXPECT_EQ(against.loss.gained, 0);
  EXPECT_THAT(error_of([&] { loss_against(ours, {reference[0]}); }),
              testing::HasSubstr("no prediction for sample \"a\""));
}

TEST(BestClasses, OfTheFirstSamples) {
  std::vector<float> scores(3 * 10);
  scores[4] = scores[10 + 6] = 1;
  const Tensor output = Tensor::of<float>(DataType::kF32, {3, 10}, scores);
  const auto classes = best_classes(output, 1, 2);
  ASSERT_TRUE(classes.has_value());
  EXPECT_EQ(classes->samples, 3);
  EXPECT_EQ(classes->classes, 10);
  ASSERT_EQ(classes->best.size(), 2U);
  EXPECT_EQ(classes->best[0][0].index, 4);
  EXPECT_EQ(classes->best[1][0].index, 6);
  const Tensor picture = Tensor::of<float>(DataType::kF32, {1, 5, 6}, scores);
  EXPECT_FALSE(best_classes(picture, 1, 2).has_value());
}

}  // namespace
}  // namespace anneal
