// Calibration of small networks, and the engines that are built by its tables.
#include "anneal/engine/tune/calibration/calibrate.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "anneal/engine/builder/builder.h"
#include "anneal/engine/data/elements.h"
#include "anneal/engine/plan.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/graph/text/text.h"
#include "anneal/optimizer/evaluate.h"
#include "anneal/tests/error_of.h"
#include "anneal/tests/tune/normal_samples.h"

namespace anneal {
namespace {

Graph network() {
  return parse_graph(R"G(graph g(x: f32[1,3,8,8])
  const w: f32[4,3,3,3] = random(1)
  const v: f32[4,4,1,1] = random(2)
  const s: f32[4,1,1] = {0.5, 2, 1, -1}
  const f: f32[16,5] = random(3)
  a = Conv(x, w) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  n = Pointwise(a, s) program="(f32,f32)->(f32) mul($0,$1)"
  r = Pointwise(n) program="(f32)->(f32) max($0,0f32)"
  b = Conv(r, v) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  d = Pointwise(b, r) program="(f32,f32)->(f32) max(add($0,$1),0f32)"
  p = Pool(d) kernel=[4,4] strides=[4,4] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  t = Reshape(p, i64{1,16})
  y = MatMul(t, f)
  return y
)G");
}

Tensor result_of(const Graph& graph, const GraphBuildOptions& options, const Tensor& x) {
  ExecutionContext context(make_engine(build(graph.clone(), options), {.device = "cpu"}));
  context.set_input("x", x.view());
  context.run();
  return dense_copy(context.output("y"));
}

TEST(Calibrate, FindsTheRangesOfWhatConvolutionsAndProductsRead) {
  const auto samples = std::make_shared<NormalSamples>(20, Dims{1, 3, 8, 8});
  Progress told;
  BuildOptions options;
  options.calibration.method = RangeMethod::kMinMax;
  options.progress = [&](const Progress& at) {
    told = at;
    return true;
  };
  const CalibrationTable table = calibrate(network(), samples, options).table;
  EXPECT_EQ(told.share, 1);
  EXPECT_EQ(told.what, "calibrating: 20 of 20 samples");
  EXPECT_EQ(table.samples, 20);
  // What the three read (a Reshape of the pooling), the pooling, what it reads, and the result.
  ASSERT_EQ(table.tensors.size(), 6u);
  EXPECT_EQ(table.tensors.at("y").seen_min, table.tensors.at("y").min);
  EXPECT_EQ(table.tensors.at("d").seen_min, 0);
  float low = 0, high = 0;
  for (int64_t i = 0; i < 20; ++i) {
    const Tensor x = samples->read(i)[0].tensor;
    for (const float value : x.as<float>()) {
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  EXPECT_EQ(table.tensors.at("x").min, low);
  EXPECT_EQ(table.tensors.at("x").max, high);
  EXPECT_EQ(table.tensors.at("r").min, 0);
  EXPECT_GT(table.tensors.at("r").max, 5);
}

// a and b lie between each other's elements, in the memory of the concat.
TEST(Calibrate, SeesPartsOfAConcatByThemselves) {
  const Graph graph = parse_graph(R"G(graph g(x: f32[1,3,8,8])
  const w: f32[16,3,3,3] = random(1)
  const v: f32[16,3,1,1] = random(2)
  const u: f32[4,32,1,1] = random(3)
  const t: f32[4,16,1,1] = random(4)
  a = Conv(x, w) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  b = Conv(x, v) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  k = Concat(a, b) axis=1
  c = Conv(k, u) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  d = Conv(a, t) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  y = Pointwise(c, d) program="(f32,f32)->(f32) add($0,$1)"
  return y
)G");
  const auto samples = std::make_shared<NormalSamples>(3, Dims{1, 3, 8, 8});
  BuildOptions options;
  options.calibration.method = RangeMethod::kMinMax;
  const CalibrationTable table = calibrate(graph, samples, options).table;
  Graph parts = graph.clone();
  for (const char* const name : {"a", "b"}) parts.mark_output(parts.find_value(name), name);
  for (const size_t output : {size_t{1}, size_t{2}}) {
    float low = 0, high = 0;
    for (int64_t i = 0; i < 3; ++i) {
      const std::vector<Tensor> inputs = {samples->read(i)[0].tensor};
      const Tensor part = evaluate(parts, inputs)[output];
      for (const float value : part.as<float>()) {
        low = std::min(low, value);
        high = std::max(high, value);
      }
    }
    const TensorRange& seen = table.tensors.at(parts.outputs()[output].name);
    EXPECT_NEAR(seen.seen_min, low, 1e-4);
    EXPECT_NEAR(seen.seen_max, high, 1e-4);
  }
}

TEST(Calibrate, FeedsBatchesToAModelOfAFixedBatch) {
  const auto samples = std::make_shared<NormalSamples>(10, Dims{1, 2});
  const auto model = [](int64_t batch) {
    return parse_graph(fmt::format(
        "graph g(x: f32[{},2])\n  const w: f32[2,2] = {{1, 2, 3, -4}}\n  y = MatMul(x, w)\n"
        "  return y\n",
        batch));
  };
  BuildOptions options;
  options.calibration.method = RangeMethod::kMinMax;
  const CalibrationTable one = calibrate(model(1), samples, options).table;
  const CalibrationTable four = calibrate(model(4), samples, options).table;
  EXPECT_EQ(four.samples, 10);
  EXPECT_EQ(four.tensors, one.tensors);
  EXPECT_EQ(four.layers.at("y").fits_weights, one.layers.at("y").fits_weights);
}

TEST(Calibrate, TellsOfDeadChannels) {
  const Graph model = parse_graph(
      "graph g(x: f32[4,2])\n  const w: f32[2,3] = {1, -0.0, 3, -4, 0, 1}\n"
      "  const v: f32[3,2] = random(1)\n  a = MatMul(x, w)\n"
      "  r = Pointwise(a) program=\"(f32)->(f32) max($0,0f32)\"\n  y = MatMul(r, v)\n  return y\n");
  const auto samples = std::make_shared<NormalSamples>(12, Dims{4, 2});
  EXPECT_THAT(
      calibrate(model, samples, {}).warnings,
      testing::ElementsAre(testing::HasSubstr("most of all \"r\" with 1 of its 3 channels")));
}

// The else branch never runs: its layers stay f32, and the report says so.
TEST(Calibrate, FindsRangesInBranches) {
  const Graph model = parse_graph(R"G(graph g(x: f32[2,2])
  const zero: f32[] = {0}
  body then(x1: f32[2,2])
    const w: f32[2,2] = {1, 2, 3, -4}
    r = Pointwise(x1) program="(f32)->(f32) mul($0,$0)"
    y1 = MatMul(r, w)
    return y1
  end
  body else(x1: f32[2,2])
    const v: f32[2,2] = {1, 2, 3, -4}
    s = Pointwise(x1) program="(f32)->(f32) tanh($0)"
    y2 = MatMul(s, v)
    return y2
  end
  m = Reduce(x, i64{0,1}) kind=max keepdims=false
  c = Pointwise(m, zero) program="(f32,f32)->(bool) lt($1,add($0,100f32))"
  y = If(c, x)
  return y
)G");
  const auto samples = std::make_shared<NormalSamples>(20, Dims{2, 2});
  const Calibration found = calibrate(model, samples, {});
  ASSERT_TRUE(found.table.tensors.contains("r"));
  EXPECT_EQ(found.table.tensors.at("r").min, 0);
  EXPECT_GT(found.table.tensors.at("r").max, 1);
  EXPECT_FALSE(found.table.tensors.contains("s"));
  EXPECT_THAT(found.warnings, testing::ElementsAre(testing::HasSubstr(
                                  "\"s\", in a branch or a loop, was computed for no sample")));
  GraphBuildOptions options;
  options.passes.precision.types = {Precision::kI8};
  options.passes.precision.ranges = std::make_shared<const CalibrationTable>(found.table);
  int64_t in_integers = 0;
  const EngineFile file = build(model.clone(), options);
  for (const Plan& body : file.plans[0].bodies)
    for (const Step& step : body.steps)
      if (std::holds_alternative<MatMul>(step.op))
        in_integers += body.slots[step.inputs[0]].type.dtype == DataType::kU8 ? 1 : 0;
  EXPECT_EQ(in_integers, 1);
}

// A model's outputs may be named as what is measured would be.
TEST(Calibrate, TakesOutputsOfAnyName) {
  const Graph model = parse_graph(R"G(graph g(x: f32[1,3,8,8])
  const w: f32[4,3,3,3] = random(1)
  const v: f32[4,4,1,1] = random(2)
  c = Conv(x, w) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  r = Pointwise(c) program="(f32)->(f32) max($0,0f32)"
  y = Conv(r, v) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  return y, x as "c/measured", r as "c/largest/mean", x as "r/most"
)G");
  BuildOptions options;
  options.calibration.equalize = FitChoice::kOn;
  const auto samples = std::make_shared<NormalSamples>(5, Dims{1, 3, 8, 8});
  EXPECT_EQ(calibrate(model, samples, options).table.layers.size(), 2u);
}

// Squares of what the convolution gives are beyond f32.
TEST(Calibrate, ALayerWhoseErrorCannotBeMeasuredStaysF32) {
  const Graph model = parse_graph(R"G(graph g(x: f32[4,2])
  const w: f32[2,3] = {1e25, 2e25, 3e25, -4e25, 0.5e25, 1e25}
  const v: f32[3,2] = random(1)
  a = MatMul(x, w)
  t = Pointwise(a) program="(f32)->(f32) tanh($0)"
  y = MatMul(t, v)
  return y
)G");
  for (const FitChoice use : {FitChoice::kOn, FitChoice::kAuto}) {
    BuildOptions calibration;
    calibration.calibration.fit_weights = calibration.calibration.correct_bias =
        calibration.calibration.equalize = use;
    const CalibrationTable table =
        calibrate(model, std::make_shared<NormalSamples>(40, Dims{4, 2}), calibration).table;
    EXPECT_EQ(table.layers.at("a").error, 1);
    EXPECT_FALSE(table.biases.contains("a"));
    EXPECT_LT(table.layers.at("y").error, 1e-3);
    EXPECT_EQ(parse_calibration_table(to_string(table)), table);
    GraphBuildOptions options;
    options.passes.precision.types = {Precision::kI8};
    options.passes.precision.ranges = std::make_shared<const CalibrationTable>(table);
    const EngineFile file = build(model.clone(), options);
    for (const Step& step : file.plans[0].steps)
      if (std::holds_alternative<MatMul>(step.op)) {
        const DataType dtype = file.plans[0].slots[step.inputs[0]].type.dtype;
        EXPECT_EQ(dtype == DataType::kF32, step.name == "a") << step.name;
      }
  }
}

// What a loop carries from one iteration to the next, and is given before the first.
TEST(Calibrate, FindsRangesOfTheStateOfLoops) {
  const Graph model = parse_graph(R"G(graph g(x: f32[2,2])
  const count: i64[] = {3}
  const go: bool[] = {true}
  body step(i: i64[], c: bool[], s: f32[2,2])
    const w: f32[2,2] = {2, 0, 0, 2}
    p = MatMul(s, w)
    return c, p
  end
  y = Loop(count, go, x) body=0 carried=1
  return y
)G");
  const auto samples = std::make_shared<NormalSamples>(20, Dims{2, 2});
  BuildOptions options;
  options.calibration.method = RangeMethod::kMinMax;
  const Calibration found = calibrate(model, samples, options);
  EXPECT_THAT(found.warnings, testing::IsEmpty());
  float most = 0;
  for (int64_t i = 0; i < 20; ++i) {
    const Tensor x = samples->read(i)[0].tensor;
    for (const float value : x.as<float>()) most = std::max(most, value);
  }
  ASSERT_TRUE(found.table.tensors.contains("s"));
  EXPECT_EQ(found.table.tensors.at("s").max, 4 * most);
}

// The body's number would be 1000 if its bits were those of an f32.
TEST(Calibrate, TakesNoNumberOfAnotherTypeForAFloat) {
  const Graph model = parse_graph(R"G(graph g(x: f32[2,2])
  const w: f32[2,2] = {1, 2, 3, -4}
  const n: i64[] = {1148846080}
  const count: i64[] = {1}
  const go: bool[] = {true}
  body step(i: i64[], c: bool[], r: i64[])
    t = Pointwise(r) program="(i64)->(i64) add($0,1i64)"
    return c, t
  end
  r = Pointwise(x) program="(f32)->(f32) max($0,0f32)"
  y = MatMul(r, w)
  k = Loop(count, go, n) body=0 carried=1
  return y, k
)G");
  const auto samples = std::make_shared<NormalSamples>(5, Dims{2, 2});
  EXPECT_LT(calibrate(model, samples, {}).table.tensors.at("r").seen_max, 100);
}

TEST(Calibrate, NamesTheBatchWithABadValue) {
  const auto samples = std::make_shared<NormalSamples>(10, Dims{1, 2}, 6);
  const Graph model = parse_graph(
      "graph g(x: f32[4,2])\n  const w: f32[2,2] = {1, 2, 3, -4}\n  y = MatMul(x, w)\n"
      "  return y\n");
  EXPECT_THAT(error_of([&] { calibrate(model, samples, {}); }),
              testing::HasSubstr("samples \"sample 4\" to \"sample 7\": tensor \"x\""));
}

TEST(Calibrate, WantsAPercentile) {
  BuildOptions options;
  options.calibration.percentile = std::nan("");
  const auto samples = std::make_shared<NormalSamples>(1, Dims{1, 3, 8, 8});
  EXPECT_THAT(error_of([&] { calibrate(network(), samples, options); }),
              testing::HasSubstr("percentile is nan"));
}

TEST(Calibrate, TheSameForAnyNumberOfThreads) {
  const auto samples = std::make_shared<NormalSamples>(5, Dims{1, 3, 8, 8});
  BuildOptions one, two;
  one.threads = 1;
  two.threads = 2;
  EXPECT_EQ(calibrate(network(), samples, one).table, calibrate(network(), samples, two).table);
}

TEST(Calibrate, AnEngineByTheTableRunsInIntegersAndIsNear) {
  const auto samples = std::make_shared<NormalSamples>(50, Dims{1, 3, 8, 8});
  for (const bool symmetric : {false, true}) {
    BuildOptions calibration;
    calibration.precision.symmetric = symmetric;
    GraphBuildOptions options, quantized;
    quantized.passes.precision.types = {Precision::kI8};
    quantized.passes.precision.symmetric = symmetric;
    quantized.passes.precision.ranges =
        std::make_shared<const CalibrationTable>(calibrate(network(), samples, calibration).table);
    const EngineFile file = build(network(), quantized);
    int64_t products = 0;
    for (const Step& step : file.plans[0].steps)
      if (std::holds_alternative<Conv>(step.op) || std::holds_alternative<MatMul>(step.op)) {
        const DataType dtype = file.plans[0].slots[step.inputs[0]].type.dtype;
        EXPECT_EQ(size_of(dtype), 1u) << step.name;
        ++products;
      }
    EXPECT_EQ(products, 3);
    double error = 0, signal = 0;
    for (int64_t i = 50; i < 60; ++i) {
      const Tensor x = samples->read(i)[0].tensor;
      const Tensor want = result_of(network(), options, x);
      const Tensor got = result_of(network(), quantized, x);
      for (int64_t k = 0; k < want.count(); ++k) {
        const double value = want.as<float>()[static_cast<size_t>(k)];
        const double difference = value - got.as<float>()[static_cast<size_t>(k)];
        error += difference * difference;
        signal += value * value;
      }
    }
    EXPECT_LT(error, 0.001 * signal) << (symmetric ? "symmetric" : "asymmetric");
  }
}

TEST(Calibrate, NamesSampleAndTensorOfWhatIsNotFinite) {
  const auto samples = std::make_shared<NormalSamples>(5, Dims{1, 3, 8, 8}, 3);
  EXPECT_THAT(error_of([&] { calibrate(network(), samples, {}); }),
              testing::AllOf(testing::HasSubstr("sample \"sample 3\""),
                             testing::HasSubstr("tensor \"x\"")));
}

TEST(Calibrate, NamesTheSampleWhoseShapeDoesNotFit) {
  const auto samples = make_dataset(3, [](int64_t i) -> std::vector<SampleTensor> {
    return NormalSamples(1, {1, 3, 8, i == 2 ? 4 : 8}).read(0);
  });
  EXPECT_THAT(
      error_of([&] { calibrate(network(), samples, {}); }),
      testing::AllOf(testing::StartsWith("invalid_argument: "), testing::HasSubstr("sample \"2\""),
                     testing::HasSubstr("\"x\""), testing::HasSubstr("[1,3,8,4]")));
}

TEST(Calibrate, RefusesWhatHasNothingToCalibrate) {
  const Graph graph = parse_graph(
      "graph g(x: f32[2])\n  y = Pointwise(x) program=\"(f32)->(f32) neg($0)\"\n  return y\n");
  EXPECT_THAT(error_of([&] { calibrate(graph, std::make_shared<NormalSamples>(2, Dims{2}), {}); }),
              testing::HasSubstr("nothing to calibrate"));
  EXPECT_THAT(error_of([&] {
                calibrate(network(), std::make_shared<NormalSamples>(0, Dims{1, 3, 8, 8}), {});
              }),
              testing::HasSubstr("no samples"));
}

TEST(Calibrate, TellsOfWhatIsAlwaysZero) {
  const Graph graph = parse_graph(R"G(graph g(x: f32[1,3])
  const w: f32[3,3] = random(1)
  z = Pointwise(x) program="(f32)->(f32) min(max($0,0f32),0f32)"
  y = MatMul(z, w)
  return y
)G");
  const Calibration found = calibrate(graph, std::make_shared<NormalSamples>(3, Dims{1, 3}), {});
  ASSERT_EQ(found.warnings.size(), 1u);
  EXPECT_THAT(found.warnings[0], testing::HasSubstr("\"z\" was 0"));
  GraphBuildOptions options;
  options.passes.precision.types = {Precision::kI8};
  options.passes.precision.ranges = std::make_shared<const CalibrationTable>(found.table);
  const Tensor x = NormalSamples(1, Dims{1, 3}).read(0)[0].tensor;
  const Tensor y = result_of(graph, options, x);
  for (const float value : y.as<float>()) EXPECT_EQ(value, 0);
}

}  // namespace
}  // namespace anneal
