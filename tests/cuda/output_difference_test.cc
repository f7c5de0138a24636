// What the GPU bundle takes for a wrong output of a configuration.
#include "anneal/bench/gpu/output_difference.h"

#include <gmock/gmock.h>

#include <limits>
#include <vector>

namespace anneal::bench {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

template <class T>
OutputDifference difference(DataType dtype, std::vector<T> got, std::vector<T> wanted) {
  return output_difference(dtype, std::as_bytes(std::span(got)), std::as_bytes(std::span(wanted)));
}

TEST(OutputDifference, FloatsMayRoundDifferently) {
  EXPECT_THAT(difference<float>(DataType::kF32, {1, 100}, {1, 100}).why_wrong, IsEmpty());
  const auto rounded = difference<float>(DataType::kF32, {1.001f, 100}, {1, 100});
  EXPECT_THAT(rounded.why_wrong, IsEmpty()) << "of the largest it is little";
  EXPECT_NEAR(rounded.largest, 1e-5, 1e-7);
  EXPECT_THAT(difference<float>(DataType::kF32, {2, 100}, {1, 100}).why_wrong,
              HasSubstr("element 0 is 2 instead of 1"));
  // 1 and the next halves of it.
  EXPECT_THAT(difference<uint16_t>(DataType::kF16, {0x3c01}, {0x3c00}).why_wrong, IsEmpty());
  EXPECT_THAT(difference<uint16_t>(DataType::kF16, {0x3c08}, {0x3c00}).why_wrong,
              HasSubstr("instead of 1"));
}

TEST(OutputDifference, WhatIsNotFiniteHasToBeTheSame) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(difference<float>(DataType::kF32, {nan, 1}, {nan, 1}).why_wrong, IsEmpty());
  EXPECT_THAT(difference<float>(DataType::kF32, {nan, 1}, {1, 1}).why_wrong, HasSubstr("nan"));
  EXPECT_THAT(difference<float>(DataType::kF32, {1, 1}, {nan, 1}).why_wrong, HasSubstr("nan"));
}

TEST(OutputDifference, IntegersHaveToBeEqual) {
  EXPECT_THAT(difference<int8_t>(DataType::kI8, {1, -2}, {1, -2}).why_wrong, IsEmpty());
  EXPECT_THAT(difference<int8_t>(DataType::kI8, {1, -3}, {1, -2}).why_wrong,
              HasSubstr("element 1 is -3 instead of -2"));
}

}  // namespace
}  // namespace anneal::bench
