// The records of layers that stay f32, and refusals before anything is built.
#include "anneal/optimizer/precision/quantizable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>

#include "anneal/graph/text/text.h"
#include "anneal/optimizer/pipeline/pipeline.h"
#include "anneal/optimizer/precision/fingerprint.h"
#include "anneal/tests/error_of.h"

namespace anneal {
namespace {

Graph network() {
  return parse_graph(R"G(graph g(x: f32[1,2,4,4], m: f32[2,2])
  const w: f32[2,3,2,2] = random(1)
  const k: f32[2,2] = {1, 2, 3, 4}
  t = ConvTranspose(x, w) strides=[2,2] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1] output_padding=[0,0]
  a = MatMul(m, k)
  b = MatMul(a, m)
  c = MatMul(k, b)
  return t, c
)G");
}

std::vector<PassRecord> records_of(Graph graph, const PrecisionOptions& precision) {
  PassOptions options;
  options.precision = precision;
  const auto passes = default_pipeline();
  const auto pass = std::ranges::find(passes, "insert_quantize", &Pass::name);
  return run_pipeline(graph, passes.subspan(static_cast<size_t>(pass - passes.begin()), 1),
                      options);
}

TEST(Quantizable, EveryProductThatStaysF32IsToldWithItsReason) {
  PrecisionOptions precision;
  precision.types = {Precision::kI8};
  std::vector<std::string> told;
  for (const PassRecord& record : records_of(network(), precision)) {
    EXPECT_TRUE(record.refused);
    told.push_back(record.subject + " " + record.text);
  }
  EXPECT_THAT(told, testing::ElementsAre(
                        "t stays float: there is no transposed convolution in 8 bits",
                        "a stays float: the calibration table has no range for its input \"m\"",
                        "b stays float: both operands are computed",
                        "c stays float: its constant is on the left"));
}

TEST(Quantizable, ALayerWhoseErrorIsTooLargeStaysF32UnlessItIsAskedFor) {
  auto table = std::make_shared<CalibrationTable>();
  table->tensors["m"] = {-1, 1, -1, 1, "minmax"};
  table->layers["a"] = {.error_by_ranges = 0.02F, .error = 0.01F};
  PrecisionOptions precision;
  precision.types = {Precision::kI8};
  precision.ranges = std::shared_ptr<const CalibrationTable>(table);
  const auto told_of_a = [&] {
    for (const PassRecord& record : records_of(network(), precision))
      if (record.subject == "a") return record.text;
    return std::string();
  };
  EXPECT_THAT(told_of_a(), testing::StartsWith("stays float: its error in 8 bits would be 0.01"));
  precision.max_layer_error = 0.1F;
  EXPECT_THAT(told_of_a(), testing::StartsWith("is int8"));
  precision.max_layer_error = 0.001F;
  precision.layers = {{"a", Precision::kI8}};
  EXPECT_THAT(told_of_a(), testing::StartsWith("is int8, as requested"));
}

TEST(Quantizable, WhatReadersNeedDecidesToo) {
  auto table = std::make_shared<CalibrationTable>();
  table->tensors["x"] = {-1, 1, -1, 1, "minmax"};
  PrecisionOptions precision;
  precision.types = {Precision::kI8};
  precision.ranges = std::shared_ptr<const CalibrationTable>(table);
  std::string told;
  const Graph graph = parse_graph(R"G(graph g(x: f32[4,2])
  const w: f32[2,1] = {1, 256}
  const b: f32[2,8] = random(1)
  a = MatMul(x, w)
  i = Pointwise(a) program="(f32)->(i64) i64($0)"
  f = MatMul(x, b)
  s = Pointwise(f) program="(f32)->(f32) sin($0)"
  r = MatMul(x, b)
  z = Pointwise(x) program="(f32)->(f32) cos(mul($0,20f32))"
  return i, s, r, z
)G");
  for (const PassRecord& record : records_of(graph.clone(), precision))
    told += record.subject + " " + record.text + "\n";
  EXPECT_THAT(told, testing::HasSubstr("a stays float: layer \"i\" makes integers of \"a\", which "
                                       "must be exact"));
  EXPECT_THAT(told, testing::HasSubstr("f stays float: layer \"s\" takes the sine of \"f\""));
  EXPECT_THAT(told, testing::HasSubstr("r is int8"));
  EXPECT_THAT(told, testing::HasSubstr("x is in 8 bits for products alone: layer \"z\" takes the "
                                       "cosine of"));
}

TEST(CheckPrecision, RefusesPatternsThatMatchNothing) {
  PassOptions options;
  options.precision.layers = {{"a|b", Precision::kF32}, {"conv.*", Precision::kF16}};
  EXPECT_THAT(error_of([&] { check_precision(options, network()); }),
              testing::HasSubstr("\"conv.*\" matches no layer"));
  options.precision.layers.pop_back();
  check_precision(options, network());
}

TEST(CheckPrecision, RefusesLowPrecisionAndExactResultsAtOnce) {
  PassOptions options;
  options.exact = true;
  check_precision(options, network());
  options.precision.layers = {{"a", Precision::kF32}};
  check_precision(options, network());
  options.precision.types = {Precision::kBF16};
  EXPECT_THAT(error_of([&] { check_precision(options, network()); }),
              testing::HasSubstr("request only one"));
}

TEST(CheckPrecision, RefusesTablesThatDoNotFitTheBuild) {
  auto table = std::make_shared<CalibrationTable>();
  table->fingerprint = fingerprint(network(), 1);
  table->tensors["m"] = {-1, 1, -1, 1, "minmax"};
  table->layers["a/product"] = {};
  PassOptions options;
  options.precision.types = {Precision::kI8};
  options.precision.ranges = std::shared_ptr<const CalibrationTable>(table);
  check_precision(options, network());
  options.precision.symmetric = true;
  EXPECT_THAT(error_of([&] { check_precision(options, network()); }),
              testing::HasSubstr("was made without --symmetric"));
  options.precision.symmetric = false;
  table->biases["xyzzy"] = {1};
  EXPECT_THAT(error_of([&] { check_precision(options, network()); }),
              testing::HasSubstr("a line for layer \"xyzzy\", which the model does not have"));
}

// Lists of sizes are no weights; other weights, or products, make another model.
TEST(Fingerprint, DoesNotDependOnSizes) {
  const auto model = [](const char* sizes, const char* weight) {
    return fingerprint(
        parse_graph(fmt::format("graph g(x: f32[12])\n  const k: f32[2,2] = {{1, 2, 3, {1}}}\n  r "
                                "= Reshape(x, i64{{{0}}})\n"
                                "  y = MatMul(r, k)\n  return y\n",
                                sizes, weight)),
        1);
  };
  EXPECT_EQ(model("6,2", "4"), model("3,2,2", "4"));
  EXPECT_NE(model("6,2", "4"), model("6,2", "5"));
}

}  // namespace
}  // namespace anneal
