// Mean intersection over union, by values computed by hand.
#include "anneal/engine/tune/metric/mask_metric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "anneal/tests/error_of.h"
#include "anneal/tests/tune/judged_tensors.h"

namespace anneal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Tensor truth(const Dims& dims, const std::vector<int32_t>& classes) {
  return Tensor::of<int32_t>(DataType::kI32, dims, classes);
}

const std::string kNames[] = {"a", "b"};
SampleScore judge(const Metric& metric, const std::vector<Tensor>& outputs,
                  const std::vector<Tensor>& reference) {
  return metric.judge(
      {"s1", std::nullopt, std::span(kNames).first(outputs.size()), outputs, reference});
}
// With the truth.
SampleScore judge(const std::vector<Tensor>& outputs, const std::optional<Tensor>& mask,
                  const std::string& output = {}) {
  return make_metric("miou", output)
      ->judge({"s1", std::nullopt, std::span(kNames).first(outputs.size()), outputs, {}, mask});
}
double joint_score(const Metric& metric, const std::vector<SampleScore>& samples) {
  std::vector<const SampleScore*> pointers;
  for (const SampleScore& sample : samples) pointers.push_back(&sample);
  return metric.score(pointers);
}

TEST(MaskMetric, WithTheMasksOfF32) {
  const auto miou = make_metric("miou-f32");
  EXPECT_EQ(miou->name(), "mIoU with f32's masks");
  EXPECT_EQ(miou->unit(), "%");
  EXPECT_TRUE(miou->wants_reference() && miou->has_drop() && !miou->wants_masks());
  // Class 0: 1 of 2, class 1: 1 of 2, class 7: 1 of 1.
  const Tensor mask = integers({1, 2, 2}, {0, 1, 1, 7}),
               reference = integers({1, 2, 2}, {0, 0, 1, 7});
  EXPECT_THAT(judge(*miou, {mask}, {reference}), ElementsAre(0, 1, 2, 1, 1, 2, 7, 1, 1));
  EXPECT_NEAR(joint_score(*miou, {judge(*miou, {mask}, {reference})}), 100 * (0.5 + 0.5 + 1) / 3,
              1e-12);
  EXPECT_EQ(joint_score(*miou, {judge(*miou, {mask}, {mask})}), 100);
  // The sums are over all samples.
  EXPECT_NEAR(joint_score(*miou, {{0, 1, 2}, {0, 3, 4, 1, 0, 2}}), 100 * (4.0 / 6 + 0) / 2, 1e-12);
  // Nothing is ignored.
  EXPECT_THAT(judge(*miou, {integers({1, 1, 2, 1}, {255, -3})}, {integers({1, 1, 2, 1}, {255, 2})}),
              ElementsAre(-3, 0, 1, 2, 0, 1, 255, 1, 1));
  // Two classes of three pixels: class 1, the lower of equals, class 1 as the other is NaN.
  const Tensor scores = floats({1, 2, 1, 3}, {1, 2, kNan, 3, 2, -1});
  const Tensor other = floats({1, 2, 1, 3}, {0, 1, 0, 1, 0, 1});
  EXPECT_THAT(judge(*miou, {scores}, {other}), ElementsAre(0, 1, 1, 1, 2, 2));
  // Pixels without a class are those of none, as are those of another size.
  const Tensor broken = floats({1, 2, 1, 3}, std::vector<float>(6, kNan));
  EXPECT_THAT(judge(*miou, {broken}, {other}), ElementsAre(0, 0, 1, 1, 0, 2));
  EXPECT_THAT(judge(*miou, {floats({1, 2, 1, 1}, {1, 2})}, {other}), ElementsAre(0, 0, 1, 1, 0, 3));
}

TEST(MaskMetric, WithTheTruth) {
  const auto miou = make_metric("miou");
  EXPECT_EQ(miou->name(), "mIoU");
  EXPECT_TRUE(miou->wants_masks() && miou->has_drop() && !miou->wants_reference());
  // Classes by their best scores: 2 0 1 / 1 1 0.
  const Tensor scores = floats({1, 3, 2, 3}, {0, 5, 1, 0, 2, 9,  //
                                              1, 4, 2, 3, 3, 8,  //
                                              7, 3, 0, 1, 1, 7});
  // Class 0: 1 of 3; class 1: 1 of 4; class 2: 1 of 2.
  const SampleScore first = judge({scores}, truth({2, 3}, {2, 0, 1, 0, 2, 1}));
  EXPECT_THAT(first, ElementsAre(0, 1, 3, 1, 1, 4, 2, 1, 2));
  EXPECT_NEAR(joint_score(*miou, {first}), 100 * (1.0 / 3 + 1.0 / 4 + 1.0 / 2) / 3, 1e-12);
  // Sums of the samples before quotients: not the mean of 36.1 and 100.
  const SampleScore second = judge({scores}, truth({2, 3}, {2, 0, 1, 1, 1, 0}));
  EXPECT_THAT(second, ElementsAre(0, 2, 2, 1, 3, 3, 2, 1, 1));
  EXPECT_NEAR(joint_score(*miou, {first, second}), 100 * (3.0 / 5 + 4.0 / 7 + 2.0 / 3) / 3, 1e-12);
  // Ignored pixels are in no union, whatever the network says of them.
  EXPECT_THAT(judge({scores}, truth({2, 3}, {-1, 0, 1, -1, -1, 1})), ElementsAre(0, 1, 2, 1, 1, 2));
  // Where all are, there is a score all the same, which counts for nothing.
  const SampleScore none = judge({scores}, truth({2, 3}, std::vector<int32_t>(6, -1)));
  EXPECT_THAT(none, ElementsAre(0, 0, 0));
  EXPECT_TRUE(std::isnan(joint_score(*miou, {none})));
  EXPECT_EQ(joint_score(*miou, {none, second}), 100);
}

TEST(MaskMetric, OutputsOfOtherSizesAreResizedToTheMask) {
  // Of two pixels the scores of class 1 are 0 and 4, those of class 0 are 1: along four pixels 0,
  // 1, 3, 4. Of the second equals, the lower class is taken.
  const Tensor scores = floats({1, 2, 1, 2}, {1, 1, 0, 4});
  EXPECT_THAT(judge({scores}, truth({2, 4}, {0, 0, 1, 1, 0, 0, 1, 1})),
              ElementsAre(0, 4, 4, 1, 4, 4));
  EXPECT_THAT(judge({scores}, truth({1, 8}, {0, 0, 0, 1, 1, 1, 1, 1})),
              ElementsAre(0, 3, 3, 1, 5, 5));
  // To half its size: between two pixels.
  EXPECT_THAT(judge({floats({1, 2, 2, 2}, {2, 2, 2, 2, 0, 3, 1, 5})}, truth({1, 1}, {1})),
              ElementsAre(1, 1, 1));
  // Infinite scores beside others do not spoil them.
  EXPECT_THAT(judge({floats({1, 2, 1, 2}, {-kInfinity, 0, 3, kNan})}, truth({1, 2}, {1, 0})),
              ElementsAre(0, 1, 1, 1, 1, 1));
  // Classes are not blended.
  const Tensor classes = integers({1, 2, 2}, {3, 9, 0, 9});
  EXPECT_THAT(judge({classes}, truth({2, 4}, {3, 3, 9, 9, 0, 0, 9, 9})),
              ElementsAre(0, 2, 2, 3, 2, 2, 9, 4, 4));
  EXPECT_THAT(judge({classes}, truth({1, 1}, {9})), ElementsAre(9, 1, 1));
  EXPECT_THAT(judge({integers({1, 1, 3, 1}, {4, 5, 6})}, truth({2, 1}, {4, 6})),
              ElementsAre(4, 1, 1, 6, 1, 1));
}

TEST(MaskMetric, ChancesOfOneClass) {
  const Tensor chances = floats({1, 1, 1, 4}, {0, 0.5, 0.75, 1});
  EXPECT_THAT(judge({chances}, truth({1, 4}, {0, 1, 1, 1})), ElementsAre(0, 1, 2, 1, 2, 3));
  EXPECT_THAT(judge({floats({1, 1, 1, 1}, {kNan})}, truth({1, 1}, {1})), ElementsAre(1, 0, 1));
  // One of more classes is the likelier output.
  const Tensor scores = floats({1, 2, 1, 1}, {0, 1});
  EXPECT_THAT(judge({floats({1, 1, 1, 1}, {7}), scores}, truth({1, 1}, {1})), ElementsAre(1, 1, 1));
  EXPECT_THAT(error_of([&] {
                judge({floats({1, 1, 1, 1}, {7}), scores}, truth({1, 1}, {1}), "a");
              }),
              AllOf(StartsWith("invalid_argument"), HasSubstr("\"a\" f32[1,1,1,1]"),
                    HasSubstr("holds 7"), HasSubstr("Sigmoid")));
  EXPECT_THAT(error_of([&] {
                judge({chances}, truth({1, 4}, {0, 0, 2, 0}));
              }),
              HasSubstr("the class 2, but the output \"a\" has 2 classes"));
}

TEST(MaskMetric, WhatIsWrongIsNamedWithTheRemedy) {
  const Tensor scores = floats({1, 2, 1, 2}, {1, 1, 0, 4});
  EXPECT_THAT(error_of([&] { judge({scores}, std::nullopt); }),
              AllOf(StartsWith("invalid_argument"), HasSubstr("\"s1\" has no mask"),
                    HasSubstr("miou-f32")));
  EXPECT_THAT(error_of([&] {
                judge({scores}, truth({1, 2}, {0, 21}));
              }),
              AllOf(StartsWith("invalid_argument"), HasSubstr("\"s1\" has the class 21"),
                    HasSubstr("\"a\" has 2 classes"), HasSubstr("--ignore-label")));
  EXPECT_THAT(error_of([&] {
                judge({scores}, integers({1, 2}, {0, 1}));
              }),
              HasSubstr("masks are i32 [height,width]"));
  EXPECT_THAT(error_of([&] {
                judge({floats({1, 5}, {1, 2, 3, 4, 5})}, truth({1, 1}, {0}));
              }),
              AllOf(StartsWith("invalid_argument"), HasSubstr("mIoU needs"), HasSubstr("masks")));
  EXPECT_THAT(error_of([&] {
                judge({scores}, truth({1, 2}, {0, 1}), "b");
              }),
              HasSubstr("\"b\" is none"));
  EXPECT_THAT(error_of([&] {
                judge({floats({1, 2, 0, 2}, {})}, truth({1, 2}, {0, 1}));
              }),
              HasSubstr("is empty"));
}

// A resample has the counts of the samples that it drew.
TEST(MaskMetric, TheIntervalIsThatOfSummedCounts) {
  const auto miou = make_metric("miou");
  // One sample is large and all right, the other small and lost.
  const std::vector<SampleScore> lost = {{0, 900, 900, 1, 100, 100}, {0, 10, 20, 1, 0, 10}},
                                 right = {{0, 900, 900, 1, 100, 100}, {0, 10, 10, 1, 10, 10}};
  const DropInterval drop = drop_of(*miou, lost, right);
  EXPECT_NEAR(drop.drop, 100 - 100 * (910.0 / 920 + 100.0 / 110) / 2, 1e-9);
  EXPECT_NEAR(drop.low, 0, 1e-9);                     // the large one twice
  EXPECT_NEAR(drop.high, 100 - 100 * 0.5 / 2, 1e-9);  // the small one twice
}

}  // namespace
}  // namespace anneal
