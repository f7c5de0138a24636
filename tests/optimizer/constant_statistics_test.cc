#include "anneal/optimizer/precision/constant_statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <utility>

#include "anneal/core/bytes.h"
#include "anneal/core/float16.h"
#include "anneal/graph/text/text.h"
#include "anneal/optimizer/precision/half_weights.h"
#include "anneal/optimizer/precision/product_norms.h"
#include "anneal/optimizer/precision/quantized_weights.h"
#include "anneal/optimizer/precision/round_weights.h"

namespace anneal {
namespace {

using ::testing::ElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float nearest(float value, DataType half) {
  return half == DataType::kF16 ? to_f32(to_f16(value)) : to_f32(to_bf16(value));
}

// Of all magnitudes of f16, with a few numbers that it has not.
std::vector<float> numbers(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> made(count);
  for (float& number : made) {
    number = std::ldexp(static_cast<float>(random() % 4096) - 2048,
                        static_cast<int>(random() % 24) - 20);
    if (random() % 50 == 0)
      number = std::array{kInfinity, -kInfinity, std::nanf(""), 1e5F}[random() % 4];
  }
  return made;
}

TEST(ConstantStatistics, Range) {
  for (const size_t count : {0, 1, 7, 8, 100, 1000}) {
    std::vector<float> all = numbers(count, 1);
    for (const bool has_infinities : {true, false}) {
      float least = kInfinity, most = -kInfinity;
      for (float& number : all) {
        if (!has_infinities && std::isinf(number)) number = 3;
        const float known = std::isnan(number) ? 0 : number;
        least = std::min(least, known);
        most = std::max(most, known);
      }
      const FloatRange range = range_of_floats(all);
      EXPECT_EQ(range.least, least) << count;
      EXPECT_EQ(range.most, most) << count;
    }
  }
}

TEST(ConstantStatistics, OneFractionAnywhereIsFound) {
  std::vector<float> whole(37, -3);
  whole[5] = kInfinity, whole[6] = std::nanf(""), whole[7] = 0x1p60F, whole[8] = -0.0F;
  EXPECT_TRUE(range_of_floats(whole).is_integer);
  EXPECT_FALSE(channel_norms(whole, std::nullopt, 1).is_integer) << "NaN is no whole number";
  whole[6] = 0;
  EXPECT_TRUE(channel_norms(whole, std::nullopt, 1).is_integer);
  for (float& number : whole) {
    const float before = number;
    number = 8388607.5F;
    EXPECT_FALSE(range_of_floats(whole).is_integer);
    EXPECT_FALSE(channel_norms(whole, std::nullopt, 1).is_integer);
    number = before;
  }
}

// Columns, more of them than a thread takes at once; rows; matrices; groups; and windows.
std::vector<std::string> products() {
  const std::string spatial =
      " strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1] groups=2";
  return {
      "graph g(x: f32[2,70])\n  const w: f32[70,1100] = random(1)\n  y = MatMul(x, w)\n  return "
      "y\n",
      "graph g(x: f32[3,2,101])\n  const w: f32[3,70,101] = random(2)\n"
      "  y = MatMul(x, w) transpose_b=true\n  return y\n",
      "graph g(x: f32[3,2,40])\n  const w: f32[3,40,71] = random(3)\n  y = MatMul(x, w)\n  return "
      "y\n",
      "graph g(x: f32[1,12,4,4])\n  const w: f32[70,6,3,3] = random(4)\n  y = Conv(x, w)" +
          spatial + "\n  return y\n",
      "graph g(x: f32[1,12,4,4])\n  const w: f32[12,35,3,3] = random(5)\n  y = ConvTranspose(x, "
      "w)" +
          spatial + " output_padding=[0,0]\n  return y\n",
      "graph g(x: f32[1,12,4,4])\n  const w: f32[12,35,1,1] = random(6)\n  y = ConvTranspose(x, "
      "w)" +
          spatial + " output_padding=[0,0]\n  return y\n"};
}

// By the channels' numbers, not by windows_of().
TEST(ConstantStatistics, SumsOfChannels) {
  for (const std::string& text : products()) {
    const Graph graph = parse_graph(text);
    const LayerId id = graph.order()[0];
    const ChannelWeights layout = *channel_weights(graph, id);
    const std::vector<float> weights =
        numbers(static_cast<size_t>(graph.constant(graph.layer(id).inputs[1])->count()), 2);
    const auto channels = static_cast<size_t>(layout.written_count);
    const auto matrices = static_cast<size_t>(layout.outer);
    std::vector<double> magnitudes(channels * matrices), squares(magnitudes), sums(magnitudes);
    std::vector<double> most(channels), power(channels), lost_f16(channels), lost_bf16(channels);
    for_each_weight(layout, [&](size_t at, size_t, size_t written) {
      const double weight = weights[at];
      if (!std::isfinite(weight)) return;
      const size_t channel = at / (weights.size() / matrices) * channels + written;
      magnitudes[channel] += std::abs(weight);
      squares[channel] += weight * weight;
      sums[channel] += weight;
      most[written] = std::max(most[written], std::abs(weight));
      power[written] += weight * weight;
      lost_f16[written] += std::pow(weight - nearest(weights[at], DataType::kF16), 2);
      lost_bf16[written] += std::pow(weight - nearest(weights[at], DataType::kBF16), 2);
    });
    for (const int threads : {1, 2}) {
      const ChannelNorms norms = channel_norms(weights, layout, threads);
      ASSERT_EQ(norms.sums.size(), sums.size());
      EXPECT_EQ(norms.most, std::ranges::max(most));
      for (size_t i = 0; i < sums.size(); ++i) {
        EXPECT_NEAR(norms.magnitudes[i], magnitudes[i], 1e-12 * magnitudes[i]) << text << i;
        EXPECT_NEAR(norms.squares[i], squares[i], 1e-12 * squares[i]) << text << i;
        EXPECT_NEAR(norms.sums[i], sums[i], 1e-12 * magnitudes[i]) << text << i;
      }
      for (const DataType half : {DataType::kF16, DataType::kBF16}) {
        const ChannelLosses losses = channel_losses(weights, layout, half, threads);
        const std::vector<double>& lost = half == DataType::kF16 ? lost_f16 : lost_bf16;
        ASSERT_EQ(losses.most.size(), channels);
        for (size_t i = 0; i < channels; ++i) {
          EXPECT_EQ(losses.most[i], most[i]) << text << i;
          EXPECT_NEAR(losses.squares[i], power[i], 1e-12 * power[i]) << text << i;
          if (std::isinf(lost[i]))
            EXPECT_EQ(losses.lost[i], lost[i]) << text << i;
          else
            EXPECT_NEAR(losses.lost[i], lost[i], 1e-12 * lost[i]) << text << i;
        }
      }
    }
  }
}

// Weights of one size, and down to where 16 bits end, in which a channel may have none but 0.
TEST(ConstantStatistics, BoundsSayNoLessThanLosses) {
  int kept = 0, rounded_badly = 0;
  for (const std::string& text : products())
    for (int size = -44; size <= 16; size += 4)
      for (const int spread : {0, 20}) {
        Graph graph = parse_graph(text);
        const LayerId id = graph.order()[0];
        const ValueId value = graph.layer(id).inputs[1];
        std::mt19937 random(static_cast<uint32_t>(size + 50));
        std::normal_distribution<float> normal;
        std::vector<float> weights(static_cast<size_t>(graph.constant(value)->count()));
        for (size_t i = 0; i < weights.size(); ++i) {
          const int less = spread == 0 ? 0 : static_cast<int>(random() % 20);
          weights[i] = i % 3 == 0 && spread > 0 ? 0 : std::ldexp(normal(random), size - less);
        }
        const Tensor tensor =
            Tensor::of<float>(DataType::kF32, graph.constant(value)->dims(), weights);
        graph.replace_uses(value, graph.add_constant("v", tensor));
        const ProductNorms norms = norms_of_floats(graph, id, 1);
        for (const DataType half : {DataType::kF16, DataType::kBF16}) {
          const bool suffer = !why_weights_suffer(graph, id, tensor, half, nullptr).empty();
          const bool are_kept = are_kept_by(norms, half, 0x1p-8);
          EXPECT_FALSE(are_kept && suffer) << text << size << " " << spread;
          EXPECT_EQ(why_weights_suffer(graph, id, tensor, half, &norms),
                    why_weights_suffer(graph, id, tensor, half, nullptr));
          if (size >= -8 && size <= 8 && spread == 0) {
            EXPECT_TRUE(are_kept) << text << size;
          }
          kept += are_kept ? 1 : 0;
          rounded_badly += suffer ? 1 : 0;
        }
      }
  EXPECT_GT(kept, 100);
  EXPECT_GT(rounded_badly, 30);
}

// ctest runs this with ANNEAL_MAX_ISA=baseline, too.
TEST(ConstantStatistics, EveryInstructionSetGivesTheseBits) {
  uint32_t sum = 0;
  const auto add = [&](const auto& numbers) {
    sum = crc32c(std::as_bytes(std::span(numbers)), sum);
  };
  const auto add_bytes = [&](const Tensor& tensor) { sum = crc32c(tensor.bytes(), sum); };
  std::vector<uint32_t> sums;
  for (const std::string& text : products()) {
    const Graph graph = parse_graph(text);
    const LayerId id = graph.order()[0];
    const ChannelWeights layout = *channel_weights(graph, id);
    const Dims& dims = graph.constant(graph.layer(id).inputs[1])->dims();
    std::vector<float> finite = numbers(static_cast<size_t>(count(dims)), 3);
    for (float& number : finite) number = std::abs(number) < 6e4F ? number : 0.3F;
    const Tensor weights = Tensor::of<float>(DataType::kF32, dims, finite);
    const ChannelNorms norms = channel_norms(weights.as<float>(), layout, 1);
    add(norms.magnitudes), add(norms.squares), add(norms.sums);
    for (const DataType half : {DataType::kF16, DataType::kBF16}) {
      const ChannelLosses losses = channel_losses(weights.as<float>(), layout, half, 1);
      add(losses.most), add(losses.squares), add(losses.lost);
      add_bytes(round_weights(weights, layout, half, 1, half));
    }
    if (weights.dims().rank() == 2) {
      const Tensor block =
          Tensor::of<float>(DataType::kF32, {64, 1100}, weights.as<float>().first(64 * 1100));
      for (const int bits : {4, 8}) {
        const QuantizedRows rows = quantize_rows(block, true, bits, 32, 1);
        add_bytes(rows.integers), add_bytes(rows.scales);
        sum = crc32c(std::as_bytes(std::span(&rows.error, 1)), sum);
      }
    }
    sums.push_back(std::exchange(sum, 0));
  }
  EXPECT_THAT(sums,
              ElementsAre(4036845293, 4091059216, 1199234800, 3392958173, 2494119222, 1024821657));
}

}  // namespace
}  // namespace anneal
