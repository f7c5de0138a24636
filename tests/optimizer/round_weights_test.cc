#include "anneal/optimizer/precision/round_weights.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "anneal/core/float16.h"
#include "anneal/graph/text/text.h"
#include "anneal/optimizer/precision/half_weights.h"

namespace anneal {
namespace {

float nearest(float value, DataType half) {
  return half == DataType::kF16 ? to_f32(to_f16(value)) : to_f32(to_bf16(value));
}

struct Product {
  Graph graph;
  Tensor weights;
  ChannelWeights layout;
};

Product product(const std::string& text) {
  Graph graph = parse_graph(text);
  const LayerId id = graph.order()[0];
  const ChannelWeights layout = *channel_weights(graph, id);
  const Tensor weights = *graph.constant(graph.layer(id).inputs[layout.input]);
  return {std::move(graph), weights, layout};
}

// 64 windows of 9 weights: whole blocks, and vectors that begin in the last window end behind it.
Product convolution() {
  return product(R"txt(graph g(x: f32[1,64,4,4])
  const w: f32[16,64,3,3] = random(1)
  y = Conv(x, w) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  return y
)txt");
}
Product matrix() {
  return product(R"txt(graph g(x: f32[2,300])
  const w: f32[300,24] = random(2)
  y = MatMul(x, w)
  return y
)txt");
}

// The error of each result, as a root of mean squares over inputs: halves of a normal distribution,
// as a ReLU makes them.
double error_of(const Tensor& rounded, const Product& exact) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  const ChannelWeights& layout = exact.layout;
  double squares = 0;
  for (int sample = 0; sample < 50; ++sample) {
    std::vector<double> results(static_cast<size_t>(layout.written_count));
    size_t at = 0;
    std::vector<double> inputs(static_cast<size_t>(layout.read_count * layout.inner));
    for (double& input : inputs) input = std::max(normal(random), 0.0);
    for (int64_t i = 0; i < layout.i_count; ++i)
      for (int64_t j = 0; j < layout.j_count; ++j)
        for (int64_t k = 0; k < layout.inner; ++k, ++at)
          results[static_cast<size_t>(layout.writes(i, j))] +=
              inputs[static_cast<size_t>(layout.reads(i, j) * layout.inner + k)] *
              (double{rounded.as<float>()[at]} - exact.weights.as<float>()[at]);
    for (const double result : results) squares += result * result;
  }
  return std::sqrt(squares);
}

Tensor rounded_one_by_one(const Tensor& weights, DataType half) {
  std::vector<float> values(weights.as<float>().begin(), weights.as<float>().end());
  for (float& value : values) value = nearest(value, half);
  return Tensor::of<float>(DataType::kF32, weights.dims(), values);
}

class RoundWeights : public ::testing::TestWithParam<DataType> {};

TEST_P(RoundWeights, EachIsOneOfItsTwoNeighbours) {
  for (const Product& each : {convolution(), matrix()}) {
    const Tensor rounded = round_weights(each.weights, each.layout, GetParam());
    const double unit = GetParam() == DataType::kF16 ? 0x1p-10 : 0x1p-7;
    for (size_t i = 0; i < each.weights.as<float>().size(); ++i) {
      const float weight = each.weights.as<float>()[i], to = rounded.as<float>()[i];
      EXPECT_EQ(nearest(to, GetParam()), to) << i;
      EXPECT_LT(std::abs(double{to} - weight), std::ldexp(unit, std::ilogb(weight))) << i;
    }
    const Tensor again = round_weights(rounded, each.layout, GetParam());
    EXPECT_TRUE(again == rounded) << "what is exact moved";
  }
}

// Without what inputs have in common a share of sqrt(1 - 1 / pi) = 0.83 is left.
TEST_P(RoundWeights, WhatInputsHaveInCommonCostsLittle) {
  for (const Product& each : {convolution(), matrix()}) {
    const Tensor rounded = round_weights(each.weights, each.layout, GetParam());
    const double alone = error_of(rounded_one_by_one(each.weights, GetParam()), each);
    EXPECT_GT(error_of(rounded, each), 0);
    EXPECT_LT(error_of(rounded, each), alone * 0.92);
  }
}

TEST_P(RoundWeights, WhatIsNotFiniteAndWhatIsNextToItStays) {
  Product each = matrix();
  std::vector<float> values(each.weights.as<float>().begin(), each.weights.as<float>().end());
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float largest = GetParam() == DataType::kF16 ? 65504.0f : 0x1.fep127f;
  values[0] = kInfinity, values[24] = std::nanf(""), values[48] = -kInfinity;
  values[72] = std::nextafter(largest, kInfinity);
  each.weights = Tensor::of<float>(DataType::kF32, each.weights.dims(), values);
  const Tensor rounded = round_weights(each.weights, each.layout, GetParam());
  EXPECT_EQ(rounded.as<float>()[0], kInfinity);
  EXPECT_TRUE(std::isnan(rounded.as<float>()[24]));
  EXPECT_EQ(rounded.as<float>()[48], -kInfinity);
  EXPECT_EQ(rounded.as<float>()[72], largest);
  for (size_t i = 96; i < values.size(); i += 24)
    EXPECT_TRUE(std::isfinite(rounded.as<float>()[i]));
}

// Rounded all at once, the weights of each channel become what they become alone.
TEST_P(RoundWeights, ChannelsAreRoundedApart) {
  const std::vector<std::string> texts = {
      "graph g(x: f32[2,90])\n  const w: f32[90,75] = random(1)\n  y = MatMul(x, w)\n  return y\n",
      "graph g(x: f32[3,2,40])\n  const w: f32[3,70,40] = random(2)\n  y = MatMul(x, w) "
      "transpose_b=true\n"
      "  return y\n",
      "graph g(x: f32[3,2,40])\n  const w: f32[3,40,70] = random(3)\n  y = MatMul(x, w)\n  return "
      "y\n",
      "graph g(x: f32[1,12,4,4])\n  const w: f32[70,6,3,3] = random(4)\n"
      "  y = Conv(x, w) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1] groups=2\n"
      "  return y\n",
      "graph g(x: f32[1,12,4,4])\n  const w: f32[12,35,3,3] = random(5)\n"
      "  y = ConvTranspose(x, w) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1] "
      "output_padding=[0,0] groups=2\n  return y\n"};
  for (const std::string& text : texts) {
    const Product each = product(text);
    const ChannelWeights& layout = each.layout;
    const Tensor together = round_weights(each.weights, layout, GetParam());
    EXPECT_TRUE(round_weights(each.weights, layout, GetParam(), 0, GetParam()) ==
                in_16_bits(together, GetParam()))
        << text;
    // By the channels' numbers, not by windows_of().
    std::vector<std::vector<size_t>> places(
        static_cast<size_t>(layout.outer * layout.written_count));
    const size_t per_outer = each.weights.as<float>().size() / static_cast<size_t>(layout.outer);
    for_each_weight(layout, [&](size_t at, size_t, size_t written) {
      places[at / per_outer * static_cast<size_t>(layout.written_count) + written].push_back(at);
    });
    for (const std::vector<size_t>& channel : places) {
      std::vector<float> weights;
      for (const size_t at : channel) weights.push_back(each.weights.as<float>()[at]);
      ChannelWeights alone;
      alone.inner = layout.inner;
      alone.j_count = static_cast<int64_t>(weights.size()) / layout.inner;
      alone.read_count = alone.j_count;
      alone.written_count = 1;
      const Dims dims{static_cast<int64_t>(weights.size())};
      const Tensor rounded =
          round_weights(Tensor::of<float>(DataType::kF32, dims, weights), alone, GetParam());
      for (size_t k = 0; k < channel.size(); ++k)
        EXPECT_EQ(rounded.as<float>()[k], together.as<float>()[channel[k]]) << text << channel[k];
    }
  }
}

// Of each exponent of f32: halfway, next to it, and others.
TEST_P(RoundWeights, InlineConversionsAreThoseOfTheCore) {
  std::vector<float> numbers;
  for (uint32_t high = 0; high < 0x10000; ++high)
    for (const uint32_t low :
         {0x0000U, 0x0001U, 0x0fffU, 0x1000U, 0x1001U, 0x7fffU, 0x8000U, 0x8001U})
      numbers.push_back(std::bit_cast<float>(high << 16 | low));
  const Tensor floats =
      Tensor::of<float>(DataType::kF32, {static_cast<int64_t>(numbers.size())}, numbers);
  const Tensor halves = in_16_bits(floats, GetParam());
  const auto* const bits = reinterpret_cast<const uint16_t*>(halves.bytes().data());
  for (size_t i = 0; i < numbers.size(); ++i) {
    const uint16_t wanted =
        GetParam() == DataType::kF16 ? to_f16(numbers[i]).bits : to_bf16(numbers[i]).bits;
    ASSERT_EQ(bits[i], wanted) << numbers[i];
    ASSERT_EQ(std::bit_cast<uint32_t>(in_half(numbers[i], GetParam())),
              std::bit_cast<uint32_t>(nearest(numbers[i], GetParam())))
        << numbers[i];
  }
}

Product depthwise(const std::vector<float>& weights) {
  Product each = product(R"txt(graph g(x: f32[1,8,4,4])
  const w: f32[8,1,3,3] = random(1)
  y = Conv(x, w) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1] groups=8
  return y
)txt");
  if (!weights.empty())
    each.weights = Tensor::of<float>(DataType::kF32, each.weights.dims(), weights);
  return each;
}

// Integers of 9 digits times a number per channel.
std::vector<float> on_a_grid() {
  std::vector<float> weights;
  for (int i = 0; i < 72; ++i)
    weights.push_back(static_cast<float>((i * 37 % 311 - 155) * (0.013 + 0.001 * (i / 9))));
  return weights;
}

TEST(WeightScales, FindAGridThatWeightsLieOn) {
  const std::vector<float> weights = on_a_grid();
  const Product each = depthwise(weights);
  const auto scales = weight_scales(each.weights, each.layout, DataType::kBF16);
  ASSERT_EQ(scales.size(), 8u);
  for (size_t i = 0; i < weights.size(); ++i) {
    const double scale = scales[i / 9];
    const double rounded = nearest(static_cast<float>(weights[i] / scale), DataType::kBF16) * scale;
    EXPECT_EQ(static_cast<float>(rounded), rounded) << "no number of f32";
    EXPECT_NEAR(rounded, weights[i], 0x1p-12 * std::abs(weights[i])) << i;
  }
}

TEST(WeightScales, HalveTheSquaredErrorOfFewWeightsOrLeaveThem) {
  const Product each = depthwise({});
  const auto scales = weight_scales(each.weights, each.layout, DataType::kBF16);
  ASSERT_EQ(scales.size(), 8u);
  for (size_t channel = 0; channel < 8; ++channel) {
    double before = 0, after = 0;
    for (size_t i = 9 * channel; i < 9 * channel + 9; ++i) {
      const float weight = each.weights.as<float>()[i];
      const auto divided = static_cast<float>(weight / scales[channel]);
      before += std::pow(nearest(weight, DataType::kBF16) - weight, 2);
      after += std::pow(nearest(divided, DataType::kBF16) * scales[channel] - weight, 2);
    }
    EXPECT_TRUE(scales[channel] == 1 || after < before / 2) << channel;
  }
}

TEST(WeightScales, AreNoneForManyWeightsAndForExactOnes) {
  const Product many = convolution();
  EXPECT_TRUE(weight_scales(many.weights, many.layout, DataType::kBF16).empty());
  for (const float weight : {0.0f, 1.5f, 0x1p-120f, std::numeric_limits<float>::infinity()}) {
    const Product each = depthwise(std::vector<float>(72, weight));
    EXPECT_TRUE(weight_scales(each.weights, each.layout, DataType::kBF16).empty()) << weight;
  }
}

TEST(WeightScales, AreNoneBesideAWeightThatIsNotFinite) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float bad : {kInf, -kInf, std::nanf(""), std::numeric_limits<float>::max()}) {
    std::vector<float> weights = on_a_grid();
    weights[40] = bad;
    const Product each = depthwise(weights);
    EXPECT_TRUE(weight_scales(each.weights, each.layout, DataType::kBF16).empty()) << bad;
  }
}

TEST(WeightScales, LeaveWhatTheyCouldBringBeyondF32) {
  std::vector<float> weights = on_a_grid();
  float most = 0;
  for (size_t i = 0; i < 9; ++i) most = std::max(most, std::abs(weights[i]));
  for (size_t i = 0; i < 9; ++i) weights[i] = weights[i] / most * 3.385e38F;
  const Product each = depthwise(weights);
  const auto scales = weight_scales(each.weights, each.layout, DataType::kBF16);
  ASSERT_EQ(scales.size(), 8u);
  EXPECT_EQ(scales[0], 1);
  EXPECT_NE(scales[1], 1);
}

INSTANTIATE_TEST_SUITE_P(, RoundWeights, ::testing::Values(DataType::kF16, DataType::kBF16),
                         [](const auto& param) { return std::string(to_string(param.param)); });

}  // namespace
}  // namespace anneal
