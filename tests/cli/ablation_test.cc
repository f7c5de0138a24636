// The parts of an ablation: families of passes, builds, traffic, turns, and its forms.
#include "anneal/cli/ablation/ablation.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "anneal/cli/ablation/pass_families.h"
#include "anneal/cli/measure/turns.h"
#include "anneal/engine/onnx/roofline/plan_work.h"
#include "anneal/optimizer/pipeline/pipeline.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/engine/graphs.h"

namespace anneal {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(PassFamilies, HaveEachPassOnce) {
  std::map<std::string_view, int> families;
  for (const PassFamily& family : pass_families())
    for (const std::string_view pass : family.passes) ++families[pass];
  for (const Pass& pass : default_pipeline()) {
    EXPECT_EQ(families[pass.name], 1) << "cli/ablation/pass_families.cc: " << pass.name;
    families.erase(pass.name);
  }
  for (const auto& [pass, count] : families) ADD_FAILURE() << "there is no pass " << pass;
}

EngineSource source_for(const std::string& target) {
  EngineSource source{.path = "m.onnx", .target = target};
  source.build.timing_cache = "times";
  return source;
}

std::vector<std::string> names_of(const AblationVariants& made) {
  std::vector<std::string> names;
  for (const AblationVariant& variant : made.variants) names.push_back(variant.name);
  return names;
}

std::vector<std::string> left_out_of(const AblationVariants& made) {
  std::vector<std::string> names;
  for (const LeftOutFamily& family : made.left_out) names.push_back(family.name);
  return names;
}

TEST(AblationVariants, AddOneFamilyAtATime) {
  const AblationVariants made = ablation_variants(source_for("sm_90"));
  EXPECT_THAT(names_of(made),
              ElementsAre("nothing", "kernel choice", "constant folding and layout",
                          "vertical fusion", "horizontal fusion", "concat and slice elimination",
                          "8 and 16 bits of the model", "kernel times", "f16"));
  EXPECT_THAT(left_out_of(made), ElementsAre("int8"));
  size_t passes = 0;
  for (size_t i = 0; i < made.variants.size(); ++i) {
    const AblationVariant& variant = made.variants[i];
    EXPECT_EQ(variant.without.kernel_choice, i == 0) << variant.name;
    EXPECT_EQ(variant.without.layouts, i < 2) << variant.name;
    EXPECT_EQ(variant.without.placement, i < 5) << variant.name;
    EXPECT_EQ(variant.source.build.time_kernels, i >= 7) << variant.name;
    EXPECT_EQ(variant.source.build.precision.reduces(), i == 8) << variant.name;
    passes += variant.passes.size();
  }
  EXPECT_EQ(passes, default_pipeline().size());
}

// The flags of the last row are those of a build: no pass is named that they do not name.
TEST(AblationVariants, EndWithWhatTheFlagsSay) {
  EngineSource source = source_for("sm_90");
  source.build.exact = true;
  source.build.skip_passes = {"merge_siblings"};
  source.build.precision.types = {Precision::kF16, Precision::kBF16};
  const AblationVariants made = ablation_variants(source);
  const AblationVariant& last = made.variants.back();
  EXPECT_EQ(last.name, "f16 and bf16");
  EXPECT_EQ(last.without, BuilderParts{});
  EXPECT_EQ(last.source.build.skip_passes, source.build.skip_passes);
  EXPECT_TRUE(last.source.build.only_passes.empty());
  EXPECT_EQ(last.source.build.precision.types, source.build.precision.types);
  EXPECT_TRUE(last.source.build.time_kernels);
  EXPECT_THAT(left_out_of(made), ElementsAre("horizontal fusion", "int8"));
}

TEST(AblationVariants, SayWhatTheTargetLacks) {
  EngineSource source = source_for("cpu:avx2");
  source.build.optimization_level = 0;
  EXPECT_THAT(left_out_of(ablation_variants(source)),
              ElementsAre("kernel times", "16 bits", "int8"));
  source.build.precision.types = {Precision::kBF16};
  const AblationVariants asked = ablation_variants(source);
  EXPECT_EQ(names_of(asked).back(), "bf16");
  EXPECT_THAT(left_out_of(ablation_variants(source_for("emulated"))),
              ElementsAre("kernel times", "int8"));
}

double moved_by(std::string_view text, const std::vector<Dims>& dims) {
  GraphBuildOptions options;
  options.passes.skip = {std::string(kAllPasses)};
  const EngineFile file = testing::build_text(text, options);
  return roofline_plan(file.plans[0], file.weights, dims).moved_bytes();
}

TEST(MovedBytes, AreThoseOfAllOperands) {
  // x and w are read, y is written.
  EXPECT_EQ(moved_by("graph g(x: f32[3,5])\n"
                     "  const w: f32[5,7] = random(1)\n"
                     "  y = MatMul(x, w)\n"
                     "  return y\n",
                     {{3, 5}}),
            4 * (15 + 35 + 21));
  // An operand that is read twice counts once; the size is that of the run.
  EXPECT_EQ(moved_by("graph g(x: f32[N,4])\n"
                     "  y = Pointwise(x, x) program=\"(f32,f32)->(f32) add($0,$1)\"\n"
                     "  return y\n",
                     {{6, 4}}),
            4 * (24 + 24));
  // Of a view, only the elements that are read.
  EXPECT_EQ(moved_by("graph g(x: f32[8,4])\n"
                     "  s = Slice(x, i64{2}, i64{5}, i64{0}, i64{1})\n"
                     "  y = Pointwise(s) program=\"(f32)->(f32) exp($0)\"\n"
                     "  return y\n",
                     {{8, 4}}),
            4 * (12 + 12));
}

TEST(Turns, RunEachContextAsOftenAsAsked) {
  const auto engine = testing::engine_of(testing::build_text(testing::kConvNet));
  const Tensor input = testing::random_f32({1, 3, 9, 7}, 1);
  std::vector<std::unique_ptr<ExecutionContext>> contexts;
  for (int i = 0; i < 3; ++i) {
    contexts.push_back(std::make_unique<ExecutionContext>(engine, ContextOptions{.threads = 1}));
    contexts.back()->set_input(engine->inputs()[0].name, input.view());
  }
  for (const int runs : {1, 3, 7}) {
    const Turns turns = measure_in_turns(
        contexts, {.warmup = {1, 0}, .measured = {runs, 0}, .counts_waiting = runs == 1},
        [](std::string_view) {});
    ASSERT_EQ(turns.milliseconds.size(), 3U);
    for (const std::vector<double>& times : turns.milliseconds)
      EXPECT_EQ(times.size(), static_cast<size_t>(runs));
    ASSERT_EQ(turns.round_medians.size(), 3U);
    for (size_t i = 0; i < 3; ++i) {
      const std::vector<double>& medians = turns.round_medians[i];
      EXPECT_EQ(medians.size(), static_cast<size_t>(std::min(runs, 5)));
      EXPECT_GE(std::ranges::min(medians), std::ranges::min(turns.milliseconds[i]));
      EXPECT_LE(std::ranges::max(medians), std::ranges::max(turns.milliseconds[i]));
    }
  }
  const Turns timed = measure_in_turns(contexts, {.warmup = {0, 0}, .measured = {std::nullopt, 0}},
                                       [](std::string_view) {});
  for (const std::vector<double>& times : timed.milliseconds)
    EXPECT_EQ(times.size(), static_cast<size_t>(timed.rounds));
}

Ablation measured(std::vector<double> milliseconds) {
  Ablation ablation{.file = "a<b.onnx", .target = "cpu", .machine = "a machine"};
  ablation.threads = ablation.rounds = 1;
  ablation.load = MachineLoad{};
  for (const double each : milliseconds) {
    AblationRow& row = ablation.rows.emplace_back();
    row.name = fmt::format("row{}", ablation.rows.size());
    row.steps = 3;
    row.moved_bytes = static_cast<uint64_t>(1e6 * each);
    row.activation_bytes = 512;
    row.milliseconds = std::vector<double>(9, each);
    row.milliseconds.push_back(100 * each);
  }
  ablation.left_out = {{"int8", "no ranges"}};
  return ablation;
}

TEST(AblationForms, CompareEachRowWithTheOneAboveAndTheFirst) {
  const Ablation ablation = measured({8, 4, 5, 2});
  const std::string text = ablation_text(ablation);
  EXPECT_THAT(text, HasSubstr("6 ms of 8 ms saved, ~4.00x as fast"));
  EXPECT_THAT(text, HasSubstr("left out: int8: no ranges"));
  const Json json = ablation_json(ablation);
  EXPECT_EQ(json["rows"][0]["speedup_over_last"], 1.0);
  EXPECT_EQ(json["rows"][2]["speedup_over_last"], 0.8);
  EXPECT_EQ(json["rows"][3]["speedup_over_first"], 4.0);
  EXPECT_EQ(json["rows"][3]["latency_milliseconds"]["median"], 2.0);
  double product = 1;
  for (const Json& row : json["rows"]) product *= row["speedup_over_last"].get<double>();
  EXPECT_DOUBLE_EQ(product, 4);
  EXPECT_EQ(json["left_out"][0]["why"], "no ranges");
}

// Five rounds about a median, a tenth of a percent apart.
std::vector<double> rounds_about(double median) {
  return {0.999 * median, median, 1.001 * median, median, median};
}

TEST(AblationForms, SayWhichGainsAreNoise) {
  Ablation ablation = measured({8, 8.01, 4});
  for (AblationRow& row : ablation.rows) row.round_medians = rounds_about(row.milliseconds[0]);
  EXPECT_TRUE(is_within_noise(ablation.rows[0], ablation.rows[1]));
  EXPECT_FALSE(is_within_noise(ablation.rows[1], ablation.rows[2]));
  const Json json = ablation_json(ablation);
  EXPECT_TRUE(json["rows"][0]["within_noise"].is_null());
  EXPECT_EQ(json["rows"][1]["within_noise"], true);
  EXPECT_EQ(json["rows"][2]["within_noise"], false);
  EXPECT_TRUE(json["rows"][0]["within_noise_in_all"].is_null());
  EXPECT_EQ(json["rows"][1]["within_noise_in_all"], true);
  EXPECT_EQ(json["rows"][2]["within_noise_in_all"], false);
  EXPECT_EQ(json["rows"][2]["round_medians"].size(), 5U);
  EXPECT_THAT(ablation_text(ablation), ContainsRegex("~1.00x +~1.00x"));
  EXPECT_THAT(ablation_text(ablation), ContainsRegex(" 2.00x +2.00x"));
  EXPECT_THAT(ablation_svg(ablation), HasSubstr(", noise"));
}

TEST(AblationForms, AGainNeedsRoundsThatAreApart) {
  const auto is_noise = [](double a, std::vector<double> rounds_a, double b,
                           std::vector<double> rounds_b) {
    AblationRow first, second;
    first.milliseconds = {a};
    second.milliseconds = {b};
    first.round_medians = std::move(rounds_a);
    second.round_medians = std::move(rounds_b);
    return is_within_noise(first, second);
  };
  EXPECT_FALSE(is_noise(8, {8, 8, 8, 8}, 4, {4, 4, 4, 4}));
  EXPECT_FALSE(is_noise(4, {4, 4, 4, 4}, 8, {8, 8, 8, 8})) << "a loss counts as well";
  EXPECT_TRUE(is_noise(8, {8, 8, 8}, 4, {4, 4, 4})) << "too few rounds";
  EXPECT_TRUE(is_noise(8, {8, 8, 8, 8, 4.1}, 4, {4, 4, 4, 4.2, 4})) << "the rounds overlap";
  EXPECT_TRUE(is_noise(8, {8, 8, 8, 8}, 7.9, {7.9, 7.9, 7.9, 7.9})) << "1.3 %";
  EXPECT_FALSE(is_noise(8, {8, 8, 8, 8}, 7.8, {7.8, 7.8, 7.8, 7.8})) << "2.6 %";
}

TEST(AblationForms, WithoutTimesTheBytesAreDrawn) {
  Ablation ablation = measured({8, 4});
  ablation.load.reset();
  for (AblationRow& row : ablation.rows) row.milliseconds.clear();
  EXPECT_THAT(ablation_text(ablation), HasSubstr("the device has no times"));
  EXPECT_THAT(ablation_text(ablation), Not(HasSubstr("latency")));
  EXPECT_TRUE(ablation_json(ablation)["rows"][1]["latency_milliseconds"].is_null());
  const std::string svg = ablation_svg(ablation);
  EXPECT_THAT(svg, HasSubstr("bytes moved"));
  EXPECT_THAT(svg, HasSubstr("4 MB, 2 times less"));
}

TEST(AblationForms, ThePictureHasABarForEachRow) {
  const std::string svg = ablation_svg(measured({8, 4, 5}));
  EXPECT_THAT(svg, HasSubstr("a&lt;b.onnx"));
  EXPECT_THAT(svg, HasSubstr("+1 ms (+25.0 %)"));
  EXPECT_THAT(svg, HasSubstr("5 ms, 1.6 times as fast"));
  EXPECT_THAT(svg, Not(HasSubstr("logarithmic")));
  size_t bars = 0;
  for (size_t at = svg.find("<rect x="); at != std::string::npos; at = svg.find("<rect x=", at + 1))
    ++bars;
  EXPECT_EQ(bars, 4U);
}

// Beyond a factor of 8 lengths are factors; no number is missing even where times are 0.
TEST(AblationForms, AWideRangeHasALogarithmicAxis) {
  EXPECT_THAT(ablation_svg(measured({100, 4})), HasSubstr("The axis is logarithmic."));
  for (const std::vector<double>& times : {std::vector<double>{0, 0}, {1, 0}, {1e-9, 1e9}}) {
    const std::string svg = ablation_svg(measured(times));
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_THAT(svg, Not(HasSubstr("inf")));
    EXPECT_LT(svg.size(), 20000U);
  }
}

}  // namespace
}  // namespace anneal
