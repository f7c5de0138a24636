// A depthwise network some of whose channels were widened: 8 bits lose it, and equalizing brings it
// back, without changing a bit of what it answers in f32.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "anneal/engine/builder/builder.h"
#include "anneal/engine/data/elements.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/engine/tune/calibration/calibrate.h"
#include "anneal/graph/text/text.h"
#include "anneal/optimizer/analysis/cross_layer_equalization.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/pipeline/pipeline.h"
#include "anneal/optimizer/programs/scale_equivariance.h"
#include "anneal/tests/tune/normal_samples.h"

namespace anneal {
namespace {

constexpr const char* kStem = R"G(graph g(x: f32[1,3,12,12])
  const w: f32[16,3,3,3] = random(1)
  const b: f32[16,1,1] = random(2)
  const d: f32[16,1,3,3] = random(3)
  const e: f32[16,1,1] = random(4)
  const p: f32[8,16,1,1] = random(5)
  c1 = Conv(x, w; b) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1] epilogue="(f32,f32)->(f32) add($0,$1)"
)G";
constexpr const char* kRelus = R"G(
  r1 = Pointwise(c1) program="(f32)->(f32) max($0,0f32)"
  c2 = Conv(r1, d; e) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1] groups=16 epilogue="(f32,f32)->(f32) add($0,$1)"
  r2 = Pointwise(c2) program="(f32)->(f32) max($0,0f32)"
  y = Conv(r2, p) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  return y
)G";
constexpr const char* kClips = R"G(
  r1 = Pointwise(c1) program="(f32)->(f32) min(max($0,0f32),6f32)"
  c2 = Conv(r1, d; e) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1] groups=16 epilogue="(f32,f32)->(f32) add($0,$1)"
  r2 = Pointwise(c2) program="(f32)->(f32) min(max($0,0f32),6f32)"
  y = Conv(r2, p) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  return y
)G";

// Multiplies some channels of what the convolutions before an activation give.
Graph widened(const Graph& network) {
  Graph graph = network.clone();
  for (const char* tensor : {"c1", "c2"}) {
    const auto channels = scalable_channels(graph, producer(graph, graph.find_value(tensor)));
    EXPECT_TRUE(channels.has_value());
    std::vector<int> exponents(16);
    exponents[3] = 5, exponents[8] = 3, exponents[tensor[1] == '1' ? 11 : 12] = 6;
    EXPECT_TRUE(scale_channels(graph, *channels, exponents));
  }
  verify(graph);
  return graph;
}

std::vector<Tensor> results(const Graph& graph, const PrecisionOptions& precision,
                            const NormalSamples& samples) {
  GraphBuildOptions options;
  options.passes.precision = precision;
  ExecutionContext context(make_engine(build(graph.clone(), options), {.device = "cpu"}));
  std::vector<Tensor> found;
  for (int64_t i = 40; i < 50; ++i) {
    const Tensor x = samples.read(i)[0].tensor;
    context.set_input("x", x.view());
    context.run();
    found.push_back(dense_copy(context.output("y")));
  }
  return found;
}

double error(const std::vector<Tensor>& want, const std::vector<Tensor>& got) {
  double errors = 0, squares = 0;
  for (size_t i = 0; i < want.size(); ++i)
    for (size_t k = 0; k < want[i].as<float>().size(); ++k) {
      const double exact = want[i].as<float>()[k], difference = got[i].as<float>()[k] - exact;
      errors += difference * difference;
      squares += exact * exact;
    }
  return errors / squares;
}

class Equalize : public testing::TestWithParam<const char*> {
 protected:
  const Graph network_ = parse_graph(std::string(kStem) + GetParam());
  const std::shared_ptr<NormalSamples> samples_ =
      std::make_shared<NormalSamples>(40, Dims{1, 3, 12, 12});

  std::shared_ptr<const CalibrationTable> table(const Graph& graph, FitChoice equalized) const {
    BuildOptions options;
    options.calibration.equalize = equalized;
    return std::make_shared<const CalibrationTable>(calibrate(graph, samples_, options).table);
  }
  double int8_error(const Graph& graph, const std::shared_ptr<const CalibrationTable>& table) {
    return error(results(graph, {}, *samples_),
                 results(graph, {.types = {Precision::kI8}, .max_layer_error = 1, .ranges = table},
                         *samples_));
  }
};

TEST_P(Equalize, WideningChangesNoBit) {
  const auto want = results(network_, {}, *samples_),
             got = results(widened(network_), {}, *samples_);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(want[i] == got[i]);
}

TEST_P(Equalize, BringsBackWhatWideningTakes) {
  const Graph wide = widened(network_);
  const double before = int8_error(network_, table(network_, FitChoice::kOff));
  const double lost = int8_error(wide, table(wide, FitChoice::kOff));
  const auto equalized = table(wide, FitChoice::kAuto);
  EXPECT_EQ(equalized->exponents.size(), 2u);
  const double found = int8_error(wide, equalized);
  EXPECT_GT(lost, 20 * before);
  EXPECT_LT(found, 1.5 * before);
}

TEST_P(Equalize, WhatIsEqualizedStaysAsItIs) {
  Graph graph = widened(network_);
  PassOptions options;
  options.precision.ranges = table(graph, FitChoice::kAuto);
  options.only = {"equalize_channels"};
  run_pipeline(graph, default_pipeline(), options);
  EXPECT_TRUE(table(graph, FitChoice::kAuto)->exponents.empty());
}

TEST_P(Equalize, ATableThatEqualizesChangesNoBitInF32) {
  const Graph wide = widened(network_);
  const auto equalized = table(wide, FitChoice::kOn);
  ASSERT_FALSE(equalized->exponents.empty());
  const auto want = results(wide, {}, *samples_);
  const auto got = results(wide, {.ranges = equalized}, *samples_);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(want[i] == got[i]);
}

// SiLU answers nothing simple to f * x: what is read is multiplied by a layer of its own. Some
// channels are wide, and the depthwise convolution takes no less of the others.
TEST(EqualizeReads, MultipliesWhatAnyLayerMakes) {
  const Graph graph = parse_graph(std::string(kStem) + R"G(
  const wide: f32[16,1,1] = {1, 1, 1, 90, 1, 1, 1, 1, 50, 1, 1, 1, 1, 1, 1, 1}
  s1 = Pointwise(c1, wide) program="(f32,f32)->(f32) mul(mul($0,$1),sigmoid(mul($0,$1)))"
  c2 = Conv(s1, d; e) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1] groups=16 epilogue="(f32,f32)->(f32) add($0,$1)"
  r2 = Pointwise(c2) program="(f32)->(f32) tanh(mul($0,0.05f32))"
  t1 = Pointwise(s1) program="(f32)->(f32) tanh(mul($0,0.05f32))"
  y = Concat(r2, t1) axis=1
  return y
)G");
  const auto samples = std::make_shared<NormalSamples>(40, Dims{1, 3, 12, 12});
  std::map<FitChoice, std::shared_ptr<const CalibrationTable>> tables;
  std::map<FitChoice, double> errors;
  const auto exact = results(graph, {}, *samples);
  for (const FitChoice use : {FitChoice::kOff, FitChoice::kAuto}) {
    BuildOptions options;
    options.calibration.equalize = use;
    tables[use] =
        std::make_shared<const CalibrationTable>(calibrate(graph, samples, options).table);
    errors[use] = error(
        exact,
        results(graph, {.types = {Precision::kI8}, .max_layer_error = 1, .ranges = tables[use]},
                *samples));
  }
  EXPECT_TRUE(tables[FitChoice::kAuto]->exponents.contains("s1"));
  EXPECT_LT(errors[FitChoice::kAuto], errors[FitChoice::kOff] / 4);
  const auto got = results(graph, {.ranges = tables[FitChoice::kAuto]}, *samples);
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_TRUE(exact[i] == got[i]);
}

INSTANTIATE_TEST_SUITE_P(Activations, Equalize, testing::Values(kRelus, kClips),
                         [](const auto& info) { return info.index == 0 ? "relu" : "clip"; });

TEST(Homogeneous, OfPrograms) {
  struct Case {
    const char *before, *degrees, *after;  // 0, 1 or c for each input; after: null if there is none
  };
  const Case cases[] = {
      {"(f32)->(f32) max($0,0f32)", "1", "(f32)->(f32) max($0,0f32)"},
      {"(f32)->(f32) min(max($0,0f32),6f32)", "1", "(f32,f32)->(f32) min($1,max($0,0f32))"},
      {"(f32,f32)->(f32) add($0,$1)", "1c", "(f32,f32,f32)->(f32) add($0,$2)"},
      {"(f32,f32)->(f32) add($0,$1)", "11", "(f32,f32)->(f32) add($0,$1)"},
      {"(f32,f32)->(f32) add($0,$1)", "10", nullptr},
      {"(f32,f32)->(f32) mul($0,$1)", "10", "(f32,f32)->(f32) mul($0,$1)"},
      {"(f32,f32)->(f32) mul($0,$1)", "1c", "(f32,f32)->(f32) mul($0,$1)"},
      {"(f32,f32)->(f32) mul($0,$1)", "11", nullptr},
      {"(f32,f32)->(f32) div($0,$1)", "01", nullptr},
      {"(f32)->(f32) select(lt($0,0f32),mul($0,0.1f32),$0)", "1",
       "(f32)->(f32) select(lt($0,0f32),mul($0,0.1f32),$0)"},
      {"(f32)->(f32) select(lt($0,1f32),0f32,$0)", "1",
       "(f32,f32)->(f32) select(lt($0,$1),0f32,$0)"},
      {"(f32)->(f32) exp($0)", "1", nullptr},
      {"(f32)->(f32) round_f16($0)", "1", nullptr},
      {"(f32)->(f32) sign($0)", "1", nullptr},
      {"(f32,f32)->(f32) exp($1)", "10", nullptr},
      {"(f32)->(i32) i32($0)", "1", nullptr},
  };
  for (const Case& each : cases) {
    std::vector<InputDegree> degrees;
    for (const char c : std::string(each.degrees))
      degrees.push_back(c == '0'   ? InputDegree::kZero
                        : c == '1' ? InputDegree::kOne
                                   : InputDegree::kConstant);
    const auto made = homogeneous(parse_program(each.before), degrees);
    EXPECT_EQ(made.has_value(), each.after != nullptr) << each.before;
    if (made && each.after) {
      EXPECT_EQ(to_string(made->program), each.after);
    }
  }
}

}  // namespace
}  // namespace anneal
