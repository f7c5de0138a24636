#include "anneal/engine/compare/compare_outputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "anneal/core/new_tensor.h"
#include "anneal/engine/data/elements.h"

namespace anneal {
namespace {

using ::testing::HasSubstr;

constexpr double kNan = NAN, kInf = INFINITY;

Tensor tensor(DataType dtype, const Dims& dims, const std::vector<double>& values) {
  auto fresh = allocate_tensor(dtype, dims);
  size_t i = 0;
  for_each_element(fresh.view(), [&](std::byte* at) { write_element(dtype, at, values.at(i++)); });
  return fresh.tensor;
}

Comparison compare(DataType dtype, const std::vector<double>& got, const std::vector<double>& want,
                   Arithmetic arithmetic = Arithmetic::kFloat, const Tolerance& tolerance = {}) {
  const Dims dims = {static_cast<int64_t>(got.size())};
  return compare_output(tensor(dtype, dims, got).view(), tensor(dtype, dims, want).view(),
                        tolerance, arithmetic);
}

TEST(CompareOutputs, FloatTolerance) {
  const struct {
    double got, want;
    bool close;
  } cases[] = {
      {1, 1, true},         {1.0009, 1, true},     {1.0012, 1, false},   {9e-6, 0, true},
      {1.2e-5, 0, false},   {-1, 1, false},        {kNan, kNan, true},   {kNan, 1, false},
      {1, kNan, false},     {kInf, kInf, true},    {-kInf, -kInf, true}, {kInf, -kInf, false},
      {1e30, kInf, false},  {kInf, 1e30, false},   {kNan, kInf, false},  {-0.0, 0.0, true},
      {1000.9, 1000, true}, {1001.1, 1000, false},
  };
  for (const auto& test : cases)
    for (const DataType dtype : {DataType::kF32, DataType::kF64})
      EXPECT_EQ(compare(dtype, {test.got}, {test.want}).why.empty(), test.close)
          << test.got << " for " << test.want;
}

TEST(CompareOutputs, ReportsTheLargestErrors) {
  const Comparison result = compare(DataType::kF64, {1.5, 0, 100}, {1, 2, 101});
  EXPECT_EQ(result.max_abs, 2);
  EXPECT_EQ(result.max_rel, 1);
  EXPECT_THAT(result.why, HasSubstr("3 of 3 elements"));
  EXPECT_THAT(result.why, HasSubstr("worst at [1]: 0 instead of 2"));
  EXPECT_EQ(compare(DataType::kF64, {kNan}, {1}).max_abs, kInf);
}

TEST(CompareOutputs, TypesAndShapesMustMatch) {
  const Tensor a = tensor(DataType::kF32, {2, 1}, {1, 2});
  EXPECT_THAT(compare_output(a.view(), tensor(DataType::kF64, {2, 1}, {1, 2}).view(), {},
                             Arithmetic::kFloat)
                  .why,
              HasSubstr("type f32 instead of f64"));
  EXPECT_THAT(
      compare_output(a.view(), tensor(DataType::kF32, {2}, {1, 2}).view(), {}, Arithmetic::kFloat)
          .why,
      HasSubstr("shape [2,1] instead of [2]"));
  EXPECT_EQ(compare(DataType::kF32, {}, {}).why, "");
}

TEST(CompareOutputs, IntegersAreEqualButForAShare) {
  const auto with_wrong = [](size_t wrong) {
    std::vector<double> values(1500, 5);
    for (size_t i = 0; i < wrong; ++i) values[i] = 6;
    return values;
  };
  const struct {
    Arithmetic arithmetic;
    size_t wrong;
    bool close;
  } cases[] = {
      {Arithmetic::kInteger, 0, true},    {Arithmetic::kInteger, 1, false},
      {Arithmetic::kFloat, 1, true},      {Arithmetic::kFloat, 2, false},
      {Arithmetic::kQuantized, 30, true}, {Arithmetic::kQuantized, 31, false},
  };
  for (const auto& test : cases)
    for (const DataType dtype : {DataType::kU8, DataType::kI64})
      EXPECT_EQ(compare(dtype, with_wrong(test.wrong), with_wrong(0), test.arithmetic).why.empty(),
                test.close)
          << test.wrong;
  // 0.1 % of 999 elements is none.
  EXPECT_NE(compare(DataType::kI32, std::vector<double>(999, 1), std::vector<double>(999, 2)).why,
            "");
  const Tensor big = Tensor::of<int64_t>(DataType::kI64, {1}, std::vector<int64_t>{INT64_MAX});
  const Tensor other =
      Tensor::of<int64_t>(DataType::kI64, {1}, std::vector<int64_t>{INT64_MAX - 1});
  EXPECT_NE(compare_output(big.view(), other.view(), {}, Arithmetic::kFloat).why, "");
}

TEST(CompareOutputs, BoolIsExact) {
  std::vector<double> got(5000, 1), want(5000, 1);
  EXPECT_EQ(compare(DataType::kBool, got, want).why, "");
  got[3] = 0;
  EXPECT_NE(compare(DataType::kBool, got, want).why, "");
  EXPECT_NE(compare(DataType::kBool, got, want, Arithmetic::kQuantized).why, "");
}

TEST(CompareOutputs, AGivenShareIsForEveryType) {
  const Tolerance half = {1e-3, 1e-5, 0.5};
  EXPECT_EQ(compare(DataType::kF32, {1, 9}, {1, 2}, Arithmetic::kFloat, half).why, "");
  EXPECT_NE(compare(DataType::kF32, {9, 9}, {1, 2}, Arithmetic::kFloat, half).why, "");
  EXPECT_EQ(compare(DataType::kBool, {1, 0}, {1, 1}, Arithmetic::kInteger, half).why, "");
}

TEST(CompareOutputs, QuantizedModelsHaveThreePercentAndKeepTheirTop1) {
  std::vector<double> want = {0, 1, 2, 3, 4, 5, 6, 7, 8, 10};
  std::vector<double> got = want;
  got[0] = 0.29;
  EXPECT_NE(compare(DataType::kF32, got, want, Arithmetic::kFloat).why, "");
  EXPECT_EQ(compare(DataType::kF32, got, want, Arithmetic::kQuantized).why, "");
  got[0] = 0.31;
  EXPECT_NE(compare(DataType::kF32, got, want, Arithmetic::kQuantized).why, "");
  want[8] = got[8] = 9.9;
  got[0] = 0;
  got[9] = 9.8;
  EXPECT_THAT(compare(DataType::kF32, got, want, Arithmetic::kQuantized).why, HasSubstr("top-1"));
  EXPECT_EQ(compare(DataType::kF32, got, want, Arithmetic::kQuantized, {.ranked = false}).why, "");
  got[8] = 9.8;  // equal first places: either may be taken
  EXPECT_EQ(compare(DataType::kF32, got, want, Arithmetic::kQuantized).why, "");
  // Fewer than 10 elements are no scores.
  EXPECT_EQ(compare(DataType::kF32, {9.8, 10}, {10, 9.9}, Arithmetic::kQuantized).why, "");
}

TEST(CompareOutputs, Top1IsOfEachRowAlongTheLongestAxis) {
  std::vector<double> want(24, 0), got(24, 0);
  for (const auto at : {3, 15}) want[at] = got[at] = 100;
  const Dims dims = {2, 12};
  const auto why = [&] {
    return compare_output(tensor(DataType::kF32, dims, got).view(),
                          tensor(DataType::kF32, dims, want).view(), {}, Arithmetic::kQuantized)
        .why;
  };
  EXPECT_EQ(why(), "");
  want[15] = 1, want[16] = 0, got[15] = 0, got[16] = 1;
  EXPECT_THAT(why(), HasSubstr("top-1 of row 1"));
}

TEST(CompareOutputs, StridedOutputsAreReadInOrder) {
  const Tensor stored = tensor(DataType::kF32, {2, 3}, {1, 4, 2, 5, 3, 6});
  ConstTensorView turned = stored.view();
  turned.dims = {2, 3};
  turned.strides = {1, 2};
  EXPECT_EQ(compare_output(turned, tensor(DataType::kF32, {2, 3}, {1, 2, 3, 4, 5, 6}).view(), {},
                           Arithmetic::kFloat)
                .why,
            "");
}

}  // namespace
}  // namespace anneal
