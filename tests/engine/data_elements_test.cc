#include "anneal/core/dtype_kinds.h"
#include "anneal/core/new_tensor.h"
#include "anneal/engine/data/elements.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "anneal/engine/data/made_samples.h"

namespace anneal {
namespace {

double round_trip(DataType dtype, double value) {
  std::byte memory[8] = {};
  write_element(dtype, memory, value);
  return read_element(dtype, memory);
}

TEST(Elements, WriteAndReadBack) {
  for (const DataType dtype : all_dtypes()) {
    if (dtype == DataType::kString) continue;
    EXPECT_EQ(round_trip(dtype, 0), 0) << to_string(dtype);
    EXPECT_EQ(round_trip(dtype, 1), 1) << to_string(dtype);
    if (is_float(dtype)) {
      EXPECT_TRUE(std::isnan(round_trip(dtype, NAN))) << to_string(dtype);
      EXPECT_EQ(round_trip(dtype, -INFINITY), -INFINITY) << to_string(dtype);
    } else {
      EXPECT_EQ(round_trip(dtype, 0.75), dtype == DataType::kBool ? 1 : 0) << to_string(dtype);
      EXPECT_GE(round_trip(dtype, 1e30), 1) << to_string(dtype);
    }
  }
  EXPECT_EQ(round_trip(DataType::kI8, 1000), 127);
  EXPECT_EQ(round_trip(DataType::kU8, -5), 0);
  EXPECT_EQ(round_trip(DataType::kI64, -1e30), -std::ldexp(1, 63));
  EXPECT_EQ(round_trip(DataType::kI32, NAN), 0);
}

TEST(Elements, StridedViewsAreVisitedInRowMajorOrder) {
  const Tensor tensor =
      Tensor::of<int32_t>(DataType::kI32, {2, 3}, std::vector<int32_t>{1, 2, 3, 4, 5, 6});
  ConstTensorView turned = tensor.view();
  turned.dims = {3, 2};
  turned.strides = {1, 3};
  EXPECT_EQ(dense_copy(turned),
            Tensor::of<int32_t>(DataType::kI32, {3, 2}, std::vector<int32_t>{1, 4, 2, 5, 3, 6}));
  ConstTensorView repeated = tensor.view();
  repeated.strides = {0, 1};
  EXPECT_EQ(dense_copy(repeated),
            Tensor::of<int32_t>(DataType::kI32, {2, 3}, std::vector<int32_t>{1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(dense_copy(allocate_tensor(DataType::kF32, {0, 3}).tensor.view()).count(), 0);
}

TEST(MadeSamples, AreInRangeAndRepeatable) {
  for (const DataType dtype : all_dtypes()) {
    if (dtype == DataType::kString) continue;
    const Tensor sample = random_sample(dtype, {129}, 7);
    EXPECT_EQ(sample, random_sample(dtype, {129}, 7));
    EXPECT_FALSE(sample == random_sample(dtype, {129}, 8)) << to_string(dtype);
    for_each_element(sample.view(), [&](const std::byte* element) {
      const double value = read_element(dtype, element);
      EXPECT_GE(value, 0);
      EXPECT_LT(value, is_float(dtype) ? 1 : 10);
    });
  }
}

TEST(MadeSamples, RampIsArangeOverN) {
  EXPECT_EQ(ramp_sample(DataType::kF32, {1, 3}),
            Tensor::of<float>(
                DataType::kF32, {1, 3},
                std::vector<float>{0, static_cast<float>(1 / 3.0), static_cast<float>(2 / 3.0)}));
}

}  // namespace
}  // namespace anneal
