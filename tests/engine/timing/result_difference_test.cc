// When two kernels of a layer count as computing the same.
#include "anneal/engine/builder/timing/result_difference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "anneal/core/float16.h"

namespace anneal::testing {
namespace {

using ::testing::HasSubstr;

template <class T>
std::string difference(DataType dtype, const std::vector<T>& got, const std::vector<T>& want) {
  return result_difference(dtype, std::as_bytes(std::span(got)), std::as_bytes(std::span(want)));
}

TEST(ResultDifference, RoundingIsNone) {
  EXPECT_EQ(difference<float>(DataType::kF32, {100, 0.1F}, {100.1F, 0}), "");
  EXPECT_THAT(difference<float>(DataType::kF32, {100, 0.1F}, {102, 0}),
              HasSubstr("a difference of 2 where the largest element is 102"));
  EXPECT_EQ(difference<double>(DataType::kF64, {1, 2}, {1, 2}), "");
  EXPECT_NE(difference<double>(DataType::kF64, {1, 2}, {1, 2.001}), "");
  const auto half = [](float value) { return to_f16(value).bits; };
  EXPECT_EQ(difference<uint16_t>(DataType::kF16, {half(100)}, {half(100.5F)}), "");
  EXPECT_NE(difference<uint16_t>(DataType::kF16, {half(100)}, {half(104)}), "");
  EXPECT_EQ(difference<uint16_t>(DataType::kBF16, {to_bf16(100).bits}, {to_bf16(104).bits}), "");
}

TEST(ResultDifference, IntegersAreExactOrOffByOne) {
  EXPECT_EQ(difference<int8_t>(DataType::kI8, {-3, 4}, {-2, 4}), "");
  EXPECT_NE(difference<int8_t>(DataType::kI8, {-3, 4}, {-1, 4}), "");
  EXPECT_NE(difference<int32_t>(DataType::kI32, {3}, {4}), "");
}

TEST(ResultDifference, LostNumbersAreTold) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(difference<float>(DataType::kF32, {nan, 1}, {1, 1}),
              HasSubstr("1 elements are finite"));
  EXPECT_EQ(difference<float>(DataType::kF32, {nan, 1.0001F}, {nan, 1}), "");
}

}  // namespace
}  // namespace anneal::testing
