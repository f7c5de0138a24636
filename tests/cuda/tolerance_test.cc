// Bounds of what kernels may be off: wide enough for tensor cores, too narrow for a wrong product.
#include "anneal/tests/kernels/tolerance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "anneal/tests/kernels/tensor_text.h"

namespace anneal::testing {
namespace {

// Adds blocks of products as tensor cores do: to the largest exponent, 24 bits of it, the rest cut
// off.
float add_like_tensor_cores(const std::vector<double>& products, size_t block) {
  double sum = 0;
  for (size_t from = 0; from < products.size(); from += block) {
    const size_t to = std::min(from + block, products.size());
    double largest = std::abs(sum);
    for (size_t i = from; i < to; ++i) largest = std::max(largest, std::abs(products[i]));
    if (largest == 0) continue;
    const double unit = std::ldexp(1.0, std::ilogb(largest) - 23);
    const auto cut = [&](double value) { return std::trunc(value / unit) * unit; };
    double next = cut(sum);
    for (size_t i = from; i < to; ++i) next += cut(products[i]);
    sum = cut(next);
  }
  return static_cast<float>(sum);
}

float add_in_order(const std::vector<double>& products) {
  float sum = 0;
  for (const double product : products) sum += static_cast<float>(product);
  return sum;
}

// `low`: of the operands, up to 2. Sums of positive products are where cutting off adds up most.
struct Sums {
  Sums(int64_t depth, double low) {
    std::mt19937 random(static_cast<unsigned>(depth));
    std::uniform_int_distribution<int> halves(static_cast<int>(low * 1024), 2048);
    for (int n = 0; n < 200; ++n) {
      std::vector<double> products(static_cast<size_t>(depth));
      for (double& product : products)  // of f16
        product = halves(random) / 1024.0 * (halves(random) / 1024.0);
      const float wanted = add_in_order(products);
      largest = std::max(largest, std::abs(double{wanted}));
      for (const size_t block : {4, 8, 16})
        worst = std::max(worst, std::abs(double{add_like_tensor_cores(products, block)} - wanted));
      products[static_cast<size_t>(n) % products.size()] = 0;
      left_out.push_back(std::abs(double{add_in_order(products)} - wanted));
    }
    std::ranges::sort(left_out);
  }
  double largest = 0, worst = 0;
  std::vector<double> left_out;  // what a product that is left out changes, ascending
};

TEST(SumTolerance, HoldsTensorCores) {
  for (const int64_t depth : {16, 64, 576, 2304, 4608, 10000})
    for (const double low : {-2.0, 0.0}) {
      const Sums sums(depth, low);
      const double allowed = default_tolerance(DataType::kF32) + sum_tolerance(depth);
      EXPECT_LE(sums.worst, allowed * sums.largest) << depth << " from " << low;
    }
  // What was allowed of f32 before is too little for deep sums.
  const Sums deep(4608, 0);
  EXPECT_GT(deep.worst, default_tolerance(DataType::kF32) * deep.largest);
}

TEST(SumTolerance, ShowsAProductThatIsLeftOut) {
  for (const int64_t depth : {16, 576, 4608, 10000}) {
    const Sums sums(depth, -2);
    const double allowed = default_tolerance(DataType::kF32) + sum_tolerance(depth);
    EXPECT_GT(sums.left_out[sums.left_out.size() / 2], allowed * sums.largest) << depth;
  }
}

TestLayer layer(Op op, const std::vector<std::string>& inputs) {
  TestLayer layer{std::move(op)};
  for (const std::string& text : inputs) layer.inputs.emplace_back(tensor_from_text(text));
  layer.op_input_count = static_cast<int>(inputs.size());
  return layer;
}

TEST(Tolerance, GrowsWithTheDepthOfProductsOfHalves) {
  const auto conv = layer(Conv{.groups = 2}, {"f16[1,8,5,5]", "f16[6,4,3,3]"});
  EXPECT_EQ(depth_of(conv), 36);
  EXPECT_EQ(depth_of(layer(ConvTranspose{.groups = 2}, {"f16[1,8,5,5]", "f16[8,3,2,2]"})), 16);
  EXPECT_EQ(depth_of(layer(MatMul{}, {"bf16[3,70]", "bf16[70,2]"})), 70);
  EXPECT_EQ(depth_of(layer(MatMul{.transpose_a = true}, {"f16[70,3]", "f16[70,2]"})), 70);
  EXPECT_EQ(depth_of(layer(Attention{}, {"f16[1,2,3,8]", "f16[1,2,5,8]", "f16[1,2,5,4]"})), 13);
  EXPECT_EQ(depth_of(layer(Pointwise{}, {"f16[70]"})), 0);
  EXPECT_EQ(tolerance_of(conv, DataType::kF32), 1e-5 + 36 * std::ldexp(1.0, -23));
  EXPECT_EQ(tolerance_of(conv, DataType::kF16), 2e-3 + 36 * std::ldexp(1.0, -23));
  EXPECT_EQ(tolerance_of(conv, DataType::kI8), 0);
  const auto f32 = layer(MatMul{}, {"f32[3,70]", "f32[70,2]"});
  EXPECT_EQ(tolerance_of(f32, DataType::kF32), 1e-5) << "not on tensor cores";
}

TEST(Tolerance, OfRoundedSumsAFewMayBeTheNextOnes) {
  const auto halves = layer(MatMul{}, {"f16[3,70]", "f16[70,2]"});
  const auto bytes = layer(MatMul{}, {"i8[3,70]", "i8[70,2]"});
  const Tensor wanted = tensor_from_text("i8[6]={1,2,3,4,5,6}");
  const Tensor one = tensor_from_text("i8[6]={1,2,4,4,5,6}");
  const Tensor two = tensor_from_text("i8[6]={1,2,4,4,5,7}");
  const Tensor far = tensor_from_text("i8[6]={1,2,5,4,5,6}");
  EXPECT_FALSE(disagreement(halves, wanted, wanted));
  EXPECT_FALSE(disagreement(halves, one, wanted));
  EXPECT_TRUE(disagreement(halves, two, wanted));
  EXPECT_TRUE(disagreement(halves, far, wanted));
  EXPECT_FALSE(disagreement(bytes, wanted, wanted));
  EXPECT_TRUE(disagreement(bytes, one, wanted)) << "sums of integers are exact";
}

}  // namespace
}  // namespace anneal::testing
