// Magnitudes of channels where layers disagree about which axis those are.
#include "anneal/engine/tune/calibration/channel_magnitudes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "anneal/engine/tune/calibration/calibrate.h"
#include "anneal/graph/text/text.h"
#include "anneal/tests/tune/normal_samples.h"

namespace anneal {
namespace {

// A product's columns are its channels, and a convolution's are the rows of the same b, of which
// the third is large.
Graph product_then_convolution() {
  return parse_graph(R"G(graph g(x: f32[1,5,8])
  const rows: f32[5,1] = {1, 1, 64, 1, 1}
  const w: f32[8,6] = random(1)
  const v: f32[6,7] = random(2)
  const u: f32[4,5,1] = random(3)
  s = Pointwise(x, rows) program="(f32,f32)->(f32) mul(tanh($0),$1)"
  a = MatMul(s, w)
  r = Pointwise(a) program="(f32)->(f32) max($0,0f32)"
  b = MatMul(r, v)
  y = Conv(b, u) strides=[1] pads_begin=[0] pads_end=[0] dilations=[1]
  return y
)G");
}

TEST(ChannelMagnitudes, AreThoseOfEachAxis) {
  const Graph graph = product_then_convolution();
  const ValueId s = graph.find_value("s");
  ChannelMagnitudes measured(graph);
  for (const int axis : {2, 1, 2}) measured.add(s, axis);
  measured.run({}, std::make_shared<NormalSamples>(10, Dims{1, 5, 8}), {});
  const Magnitudes& columns = measured.of(s, 2);
  EXPECT_EQ(columns.least.size(), 8u);
  for (const double most : columns.most) EXPECT_GT(most, 32);
  const Magnitudes& rows = measured.of(s, 1);
  ASSERT_EQ(rows.most.size(), 5u);
  for (size_t row = 0; row < 5; ++row) {
    const double factor = row == 2 ? 64 : 1;
    EXPECT_GT(rows.most[row], 0.9 * factor);
    EXPECT_LT(rows.most[row], factor);
    EXPECT_LT(rows.least[row], -0.9 * factor);
    EXPECT_NEAR(rows.square[row], 0.4 * factor * factor, 0.15 * factor * factor);
  }
}

TEST(ChannelMagnitudes, OfTheReadersAxisMakeItsExponents) {
  BuildOptions options;
  options.calibration.equalize = FitChoice::kOn;
  const auto samples = std::make_shared<NormalSamples>(40, Dims{1, 5, 8});
  const auto exponents = calibrate(product_then_convolution(), samples, options).table.exponents;
  ASSERT_TRUE(exponents.contains("b"));
  const std::vector<int>& of_rows = exponents.at("b");
  ASSERT_EQ(of_rows.size(), 5u);
  for (size_t row = 0; row < 5; ++row)
    if (row == 2)
      EXPECT_LE(of_rows[row], -3);
    else
      EXPECT_LE(std::abs(of_rows[row]), 1) << row;
}

}  // namespace
}  // namespace anneal
