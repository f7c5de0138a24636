// Planted faults of precision that a build finds by comparing itself with f32, and what it must not
// take for one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "anneal/engine/builder/checked_build.h"
#include "anneal/tests/engine/build_and_run.h"

namespace anneal::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Inputs = std::vector<Tensor>;

Tensor filled(const Dims& dims, float from, float to) {
  const auto elements = static_cast<size_t>(count(dims));
  std::vector<float> values(elements);
  for (size_t i = 0; i < elements; ++i)
    values[i] = from + (to - from) * static_cast<float>(i) / static_cast<float>(elements);
  return Tensor::of<float>(DataType::kF32, dims, values);
}

// A table as a lie: every value that is named stays within 1.
std::shared_ptr<const CalibrationTable> table(const std::vector<std::string>& values,
                                              float most = 1) {
  CalibrationTable made;
  for (const std::string& value : values)
    made.tensors[value] = {.min = -most, .max = most, .seen_min = -most, .seen_max = most};
  return std::make_shared<const CalibrationTable>(std::move(made));
}

struct Planted {
  std::string_view text;
  PrecisionOptions precision;
  Inputs inputs;        // a sample, at which the plan is judged as well
  bool draws = false;   // the check does not see the sample
  double wrong = 0.05;  // what the plan loses at least without the check
  double right = 0.02;  // and at most with it
};

GraphBuildOptions options_of(const PrecisionOptions& precision) {
  GraphBuildOptions options;
  options.targets = {"cpu:avx2"};
  options.passes.precision = precision;
  return options;
}

CheckedBuild built(const Planted& planted, bool check = true) {
  SelfCheckOptions options{.run = check};
  if (!planted.draws) options.samples = {planted.inputs};
  return build_checked(parse_graph(planted.text), options_of(planted.precision), options);
}

// Of the first output: the largest difference from f32, as a share of the largest magnitude.
double loss(const EngineFile& file, const Planted& planted) {
  const auto engine = engine_of(file);
  ExecutionContext context(engine);
  const auto got = run(context, *engine, planted.inputs);
  const auto f32 = engine_of(build_text(planted.text, options_of({})));
  ExecutionContext exact(f32);
  const auto expected = run(exact, *f32, planted.inputs);
  const std::string name = f32->outputs()[0].name;
  double most = 0, worst = 0;
  for (size_t i = 0; i < expected.at(name).size(); ++i) {
    const double want = expected.at(name)[i], is = got.at(name)[i];
    most = std::max(most, std::abs(want));
    worst = std::max(worst, std::isfinite(is) ? std::abs(is - want) : INFINITY);
  }
  return worst / most;
}

void expect_mended(const Planted& planted) {
  EXPECT_GT(loss(built(planted, false).file, planted), planted.wrong);
  const CheckedBuild made = built(planted);
  EXPECT_LT(loss(made.file, planted), planted.right) << made.check.outcome;
  EXPECT_THAT(made.check.back_to_f32, Not(IsEmpty())) << made.check.outcome;
  EXPECT_EQ(made.check.warning, "");
  const auto& decisions = made.file.plans.at(0).decisions;
  EXPECT_TRUE(std::ranges::any_of(decisions, [](const Decision& decision) {
    return decision.stage == kSelfCheck && decision.text.starts_with("goes back to f32: ");
  }));
}

const PrecisionOptions kF16{.f16 = true}, kBF16{.bf16 = true};

PrecisionOptions with_table(PrecisionOptions options,
                            std::shared_ptr<const CalibrationTable> ranges) {
  options.ranges = std::move(ranges);
  return options;
}

constexpr std::string_view kTwoProducts = R"txt(
graph two(x: f32[4,64])
  const w: f32[64,32] = random(1)
  const v: f32[32,16] = random(2)
  a = MatMul(x, w)
  y = MatMul(a, v)
  return y
)txt";

TEST(SelfCheck, ProductOfALargeInputOverflows) {
  expect_mended({kTwoProducts, with_table(kF16, table({"a", "x"})), {filled({4, 64}, 0, 3e4)}});
}

TEST(SelfCheck, TableOfAnIntegerPlanIsTooNarrow) {
  PrecisionOptions int8{.int8 = true};
  expect_mended({kTwoProducts, with_table(int8, table({"a", "x"}, 2)), {random_f32({4, 64}, 1)}});
}

TEST(SelfCheck, TableOfAnIntegerPlanIsTooWide) {
  PrecisionOptions int8{.int8 = true};
  expect_mended({kTwoProducts, with_table(int8, table({"a", "x"}, 900)), {random_f32({4, 64}, 1)}});
}

TEST(SelfCheck, SumOverAnOpenAxisOverflowsAtTheLargestSize) {
  constexpr std::string_view kText = R"txt(
size N in 1..200000 opt 64
graph sums(x: f32[N,8])
  const v: f32[8,16] = random(2)
  a = MatMul(x, x) transpose_a=true
  y = MatMul(a, v)
  return y
)txt";
  expect_mended({.text = kText,
                 .precision = with_table(kF16, table({"a", "x"})),
                 .inputs = {random_f32({200000, 8}, 3)},
                 .draws = true});
}

TEST(SelfCheck, SumCancels) {
  constexpr std::string_view kText = R"txt(
graph cancels(x: f32[8,64])
  const w: f32[64,32] = random(1)
  const v: f32[32,16] = random(2)
  a = MatMul(x, w) epilogue="(f32)->(f32) add($0,5000f32)"
  m = Reduce(a, i64{1}) kind=mean
  d = Pointwise(a, m) program="(f32,f32)->(f32) sub($0,$1)"
  y = MatMul(d, v)
  return y
)txt";
  expect_mended({kText, with_table(kF16, table({"a"}, 6000)), {random_f32({8, 64}, 1)}});
  expect_mended({kText, kBF16, {random_f32({8, 64}, 1)}, false, 0.5});
}

constexpr std::string_view kFourier = R"txt(
graph fourier(x: f32[64,3])
  const b: f32[3,32] = random(1)
  const v: f32[32,16] = random(2)
  a = MatMul(x, b) epilogue="(f32)->(f32) sin(mul($0,6.2831855f32))"
  y = MatMul(a, v)
  return y
)txt";

// By the table angles are small; without it a build keeps them in f32 before any check.
TEST(SelfCheck, SineOfLargeNumbers) {
  for (const PrecisionOptions& each : {kF16, kBF16})
    expect_mended({kFourier, with_table(each, table({"x"}, 0.001F)), {filled({64, 3}, 0, 300)}});
}

TEST(SelfCheck, RotaryPositionsAreDrawn) {
  constexpr std::string_view kText = R"txt(
graph rotary(p: i64[1,24,1], q: f32[1,24,16], k: f32[1,24,16])
  const f: f32[1,1,16] = {1, 0.9, 0.8, 0.7, 0.61, 0.52, 0.43, 0.34, 0.25, 0.16, 0.07, 0.04, 0.03, 0.02, 0.01, 0.001}
  pf = Pointwise(p) program="(i64)->(f32) f32($0)"
  a = MatMul(pf, f)
  c = Pointwise(a) program="(f32)->(f32) cos($0)"
  s = Pointwise(a) program="(f32)->(f32) sin($0)"
  qr = Pointwise(q, c, s) program="(f32,f32,f32)->(f32) add(mul($0,$1),mul($0,$2))"
  kr = Pointwise(k, c, s) program="(f32,f32,f32)->(f32) add(mul($0,$1),mul($0,$2))"
  y = MatMul(qr, kr) transpose_b=true
  return y
)txt";
  std::vector<int64_t> positions(24);
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int64_t>(i * 217);
  const Planted planted{.text = kText,
                        .precision = kBF16,
                        .inputs = {Tensor::of<int64_t>(DataType::kI64, {1, 24, 1}, positions),
                                   random_f32({1, 24, 16}, 4), random_f32({1, 24, 16}, 5)},
                        .draws = true};
  const CheckedBuild made = built(planted);
  EXPECT_LT(loss(made.file, planted), 0.02) << made.check.outcome;
  EXPECT_EQ(made.check.warning, "");
}

// As Hugging Face's exports have it: angles are moved between their product and the sine.
TEST(SelfCheck, RotaryAnglesThatAreMoved) {
  constexpr std::string_view kText = R"txt(
size S
graph rotary(p: i64[1,1,S], q: f32[1,S,16], k: f32[1,S,16])
  const f: f32[1,8,1] = {1, 0.7, 0.5, 0.35, 0.25, 0.07, 0.03, 0.001}
  pf = Pointwise(p) program="(i64)->(f32) f32($0)"
  a = MatMul(f, pf)
  t = Transpose(a) permutation=[0,2,1]
  tt = Concat(t, t) axis=2
  c = Pointwise(tt) program="(f32)->(f32) cos($0)"
  s = Pointwise(tt) program="(f32)->(f32) sin($0)"
  qr = Pointwise(q, c, s) program="(f32,f32,f32)->(f32) add(mul($0,$1),mul($0,$2))"
  kr = Pointwise(k, c, s) program="(f32,f32,f32)->(f32) add(mul($0,$1),mul($0,$2))"
  y = MatMul(qr, kr) transpose_b=true
  return y
)txt";
  std::vector<int64_t> positions(24);
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int64_t>(i * 217);
  for (const PrecisionOptions& precision : {kF16, kBF16}) {
    const Planted planted{.text = kText,
                          .precision = precision,
                          .inputs = {Tensor::of<int64_t>(DataType::kI64, {1, 1, 24}, positions),
                                     random_f32({1, 24, 16}, 4), random_f32({1, 24, 16}, 5)},
                          .draws = true};
    const CheckedBuild made = built(planted);
    EXPECT_LT(loss(made.file, planted), 0.02) << made.check.outcome;
    EXPECT_EQ(made.check.warning, "");
  }
}

TEST(SelfCheck, ExponentialOfLargeNumbers) {
  constexpr std::string_view kText = R"txt(
graph exponentials(x: f32[8,64])
  const w: f32[64,32] = random(1)
  const v: f32[32,16] = random(2)
  a = MatMul(x, w)
  m = Reduce(a, i64{1}) kind=max
  e = Pointwise(a, m) program="(f32,f32)->(f32) exp(mul(sub($0,$1),0.5f32))"
  y = MatMul(e, v)
  return y, a
)txt";
  expect_mended({kText, with_table(kBF16, table({"x", "a"}, 0.001F)), {filled({8, 64}, -60, 60)}});
}

TEST(SelfCheck, IndicesAreMadeByAProduct) {
  constexpr std::string_view kText = R"txt(
graph indices(x: f32[200,4])
  const w: f32[4,1] = {100, 10, 1, 0.1}
  const t: f32[1000,8] = random(3)
  const v: f32[8,8] = random(4)
  i = MatMul(x, w) epilogue="(f32)->(i64) i64($0)"
  r = Reshape(i, i64{200})
  g = Gather(t, r) axis=0
  y = MatMul(g, v)
  return y
)txt";
  expect_mended({kText, with_table(kBF16, table({"x"}, 0)), {filled({200, 4}, 0, 8.9)}});
}

// Which finds nothing that one layer explains, so that it says so.
TEST(SelfCheck, WarnsOfADifferenceThatRemains) {
  PrecisionOptions asked{.bf16 = true};
  asked.layers = {{"a|y", Precision::kBF16}};
  const CheckedBuild made = built({kFourier, asked, {filled({64, 3}, 0, 300)}});
  EXPECT_THAT(made.check.warning, HasSubstr("most of it arises in layer \"a\""));
  EXPECT_THAT(made.check.back_to_f32, IsEmpty());
}

TEST(SelfCheck, OrdinaryNetworksStayAsTheyAre) {
  for (const PrecisionOptions& precision : {kF16, kBF16}) {
    const Planted planted{kTwoProducts, precision, {random_f32({4, 64}, 1)}};
    const CheckedBuild made = built(planted);
    EXPECT_TRUE(made.check.is_compared);
    EXPECT_EQ(made.check.warning, "");
    EXPECT_THAT(made.check.back_to_f32, IsEmpty());
    EXPECT_EQ(made.file.plans[0].steps.size(), built(planted, false).file.plans[0].steps.size());
    EXPECT_EQ(save(made.file), save(built(planted).file));
  }
}

TEST(SelfCheck, SelectionsAreJudgedByWhatTheyRead) {
  constexpr std::string_view kText = R"txt(
graph top(x: f32[8,64])
  const w: f32[64,512] = random(1)
  const v: f32[8,8] = random(2)
  a = MatMul(x, w)
  s, i = TopK(a, i64{8}) axis=1
  f = Pointwise(i) program="(i64)->(f32) f32($0)"
  y = MatMul(f, v)
  return y, i
)txt";
  const CheckedBuild made = built({kText, kBF16, {random_f32({8, 64}, 1)}});
  EXPECT_TRUE(made.check.is_compared);
  EXPECT_EQ(made.check.warning, "");
}

TEST(SelfCheck, LeavesOutWhatNeedsTooMuchWork) {
  SelfCheckOptions options{.most_work = 100};
  const CheckedBuild made = build_checked(parse_graph(kTwoProducts), options_of(kF16), options);
  EXPECT_FALSE(made.check.is_compared);
  EXPECT_THAT(made.check.outcome, HasSubstr("multiply-adds"));
}

TEST(SelfCheck, IsForLowerPrecisions) {
  const CheckedBuild made = build_checked(parse_graph(kTwoProducts), options_of({}), {});
  EXPECT_EQ(made.check.outcome, "");
}

}  // namespace
}  // namespace anneal::testing
