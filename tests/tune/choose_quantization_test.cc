// How a layer is quantized by the errors that were measured, and that they are measured right.
#include "anneal/engine/tune/calibration/choose_quantization.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "anneal/graph/text/text.h"
#include "anneal/tests/error_of.h"
#include "anneal/tests/tune/normal_samples.h"

namespace anneal {
namespace {

LayerErrors errors(const ChannelErrors& largest, const ChannelErrors& fitted) {
  return {true, true, 4, largest, fitted};
}

TEST(ChooseQuantization, TakesWhatMeasuredLess) {
  const ChannelErrors plain{{{{0, 0}, {0, 0}}}, {2, 4}};
  const ChannelErrors biased{{{{1, -1}, {1, -1}}}, {2, 3}};
  const ChosenQuantization fitted = choose_quantization(errors(plain, biased), {});
  EXPECT_EQ(fitted.layer, (LayerQuantization{true, 0.75F, 0.375F}));
  EXPECT_EQ(fitted.bias, (std::vector<float>{-1, 1}));
  const ChosenQuantization largest = choose_quantization(errors(biased, plain), {});
  EXPECT_EQ(largest.layer, (LayerQuantization{false, 0.625F, 0.375F}));
  const ChosenQuantization none =
      choose_quantization(errors(biased, plain), {FitChoice::kOff, FitChoice::kOff});
  EXPECT_EQ(none.layer, (LayerQuantization{false, 0.625F, 0.625F}));
  EXPECT_TRUE(none.bias.empty());
  const ChosenQuantization forced =
      choose_quantization(errors(biased, plain), {FitChoice::kOn, FitChoice::kOn});
  EXPECT_EQ(forced.layer, (LayerQuantization{true, 0.625F, 0.75F}));
  EXPECT_EQ(forced.bias.size(), 2u);
}

TEST(ChooseQuantization, MeansThatAreChanceGiveNoBias) {
  const ChannelErrors chance{{{{1, -1}, {-1, 1}}}, {2, 2}};
  EXPECT_GT(error_without_bias(chance), error_of(chance));
  EXPECT_TRUE(choose_quantization(errors(chance, chance), {}).bias.empty());
  LayerErrors once = errors({{{{1}, {0}}}, {2}}, {{{{1}, {0}}}, {2}});
  once.has_two_batches = false;
  EXPECT_TRUE(choose_quantization(once, {FitChoice::kAuto, FitChoice::kOn}).bias.empty());
  once.has_two_batches = true;
  once.takes_bias = false;
  EXPECT_TRUE(choose_quantization(once, {FitChoice::kAuto, FitChoice::kOn}).bias.empty());
}

// Squares of f32 overflow, and differences of infinities are no numbers.
TEST(ChooseQuantization, WhatCannotBeMeasuredIsAllOfTheSquare) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const ChannelErrors fine{{{{1}, {1}}}, {2}};
  for (const double bad : {kInf, std::nan("")}) {
    const ChannelErrors worse{{{{bad}, {bad}}}, {bad}};
    for (const FitChoice use : {FitChoice::kOff, FitChoice::kOn, FitChoice::kAuto}) {
      const ChosenQuantization neither = choose_quantization(errors(worse, worse), {use, use});
      EXPECT_EQ(neither.layer.error_by_ranges, 1);
      EXPECT_EQ(neither.layer.error, 1);
      EXPECT_TRUE(neither.bias.empty());
    }
    const ChosenQuantization fitted = choose_quantization(errors(worse, fine), {});
    EXPECT_EQ(fitted.layer, (LayerQuantization{true, 1, 0.25F}));
    EXPECT_EQ(fitted.bias, std::vector<float>{-1});
    LayerErrors of_no_size = errors(fine, fine);
    of_no_size.result_square = bad;
    EXPECT_EQ(choose_quantization(of_no_size, {}).layer.error, 1);

    LayerErrors by_channel = errors(worse, fine);
    by_channel.result_squares = {8};
    EXPECT_EQ(error_by_channel(by_channel, false), 1);
    EXPECT_EQ(error_by_channel(by_channel, true), 0.25);
    by_channel.result_squares = {bad};
    EXPECT_EQ(error_by_channel(by_channel, true), 1);
  }
  LayerErrors silent = errors(fine, fine);
  for (const double square : {0.0, 1e-300}) {
    silent.result_square = square;
    EXPECT_EQ(choose_quantization(silent, {}).layer.error, 1) << square;
  }
}

TEST(ChooseQuantization, NamesWhatIsNoUse) {
  EXPECT_EQ(parse_fit_choice("--x", "on"), FitChoice::kOn);
  EXPECT_THAT(error_of([] { parse_fit_choice("--x", "maybe"); }),
              testing::HasSubstr("--x maybe: there are on, off and auto"));
}

// |x| is 2/sqrt(2 pi) in the mean; weights of 63.4 steps lose 0.4 of a step each.
TEST(LayerErrors, AreThoseOfAKnownRounding) {
  const Graph graph = parse_graph(R"G(graph g(x: f32[1,2,16,16])
  const w: f32[2,2,1,1] = {1.27, 0.634, 1.27, -0.006}
  const b: f32[2,1,1] = {1, 2}
  a = Pointwise(x) program="(f32)->(f32) abs($0)"
  c = Conv(a, w; b) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1] epilogue="(f32,f32)->(f32) add($0,$1)"
  d = Conv(a, w; b) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1] epilogue="(f32,f32)->(f32) max(add($0,$1),0f32)"
  return c, d
)G");
  CalibrationTable table;
  table.tensors["a"] = {0, 5, 0, 5, "minmax"};
  const auto samples = std::make_shared<NormalSamples>(40, Dims{1, 2, 16, 16});
  const auto measured = measure_layer_errors(graph, table, false, {}, samples, {});
  ASSERT_EQ(measured.size(), 2u);
  const LayerErrors& c = measured.at("c");
  EXPECT_TRUE(c.takes_bias);
  EXPECT_FALSE(measured.at("d").takes_bias);
  const double mean = std::sqrt(2 / std::acos(-1.0));
  for (const auto& half : c.largest.means) {
    EXPECT_NEAR(half[0], -0.004 * mean, 0.0003);
    EXPECT_NEAR(half[1], -0.004 * mean, 0.0003);
  }
  // 0.004^2 of the second moment 1, and two roundings of a by 5/255.
  const double step = 5.0 / 255, rounding = step * step / 12;
  EXPECT_NEAR(c.largest.squares[0], 16e-6 + rounding * (1.27 * 1.27 + 0.63 * 0.63), 10e-6);
  EXPECT_LE(error_of(c.fitted), error_of(c.largest));
  EXPECT_GT(c.result_square, 4);
}

// A channel's error counts by its own magnitude, and as all of it at most.
TEST(ChooseQuantization, ErrorsByChannelDoNotDependOnFactors) {
  LayerErrors errors;
  errors.fitted.squares = {1, 200, 3, 0};
  errors.result_squares = {100, 100, 0, 5};
  EXPECT_DOUBLE_EQ(error_by_channel(errors, true), (0.01 + 1 + 1 + 0) / 4);
  errors.fitted.squares[0] *= 1024;
  errors.result_squares[0] *= 1024;
  EXPECT_DOUBLE_EQ(error_by_channel(errors, true), (0.01 + 1 + 1 + 0) / 4);
}

}  // namespace
}  // namespace anneal
