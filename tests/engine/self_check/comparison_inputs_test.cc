// What the self-check draws, and what it says where that does not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/engine/builder/inputs/drawn_inputs.h"
#include "anneal/tests/engine/self_check/planted_fault.h"

namespace anneal::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const PrecisionOptions kF16{.types = {Precision::kF16}};

TEST(ComparisonInputs, InputsOfWhichF32MakesNoNumbersAreLeftOut) {
  const CheckedBuild made = built({.text = R"txt(
graph blind(x: f32[8,64])
  const w: f32[64,32] = random(1)
  r = Pointwise(x) program="(f32)->(f32) log(sub(-1f32,mul($0,$0)))"
  y = MatMul(r, w)
  return y
)txt",
                                   .precision = kF16,
                                   .draws = true});
  EXPECT_FALSE(made.check.is_compared);
  EXPECT_THAT(made.check.outcome, HasSubstr("f32 gives no numbers"));
}

TEST(SelfCheck, NothingToJudgeIsSaid) {
  const CheckedBuild made = built({.text = R"txt(
graph nothing(x: f32[0,64])
  const w: f32[64,32] = random(1)
  y = MatMul(x, w)
  return y
)txt",
                                   .precision = kF16,
                                   .draws = true});
  EXPECT_FALSE(made.check.is_compared);
  EXPECT_THAT(made.check.outcome, HasSubstr("no result has elements"));
}

// The model refuses what is drawn at first, because no range of "p" shows.
constexpr std::string_view kWindow = R"txt(
size N in 1..16 opt 16
graph window(x: f32[2,N], p: i64[])
  const k: f32[8,64] = random(1)
  const v: f32[64,8] = random(2)
  st = Reshape(p, i64{1})
  en = Pointwise(st) program="(i64)->(i64) add($0,8i64)"
  xs: f32[2,W] = Slice(x, st, en, i64{1}, i64{1})
  h = MatMul(xs, k)
  q = Pointwise(h) program="(f32)->(f32) pow(mul($0,100f32),6f32)"
  y = MatMul(q, v)
  return y
)txt";

TEST(ComparisonInputs, WhatIsRefusedIsDrawnAgainAndFindingsStay) {
  const CheckedBuild made =
      built({.text = kWindow, .precision = with_table(kF16, {"h", "q"}), .draws = true});
  EXPECT_TRUE(made.check.is_compared) << made.check.outcome;
  EXPECT_THAT(layers_back(made), Contains("y")) << made.check.outcome;
  EXPECT_EQ(made.check.warning, "");
  // A window of 8 in one element.
  EXPECT_THAT(made.check.outcome, HasSubstr("left out: drawn inputs of the smallest sizes"));
}

TEST(ComparisonInputs, MoreIterationsAreDrawn) {
  constexpr std::string_view kText = R"txt(
graph grows(x: f32[4,4], t: i64[])
  const go: bool[] = {true}
  body again(i: i64[], c: bool[], h: f32[4,4])
    const w: f32[4,4] = {0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4}
    n = MatMul(h, w)
    return c, n
  end
  y = Loop(t, go, x) body=0 carried=1 counted=true
  return y
)txt";
  const CheckedBuild made =
      built({.text = kText, .precision = with_table(kF16, {"x", "h", "n"}), .draws = true});
  EXPECT_THAT(layers_back(made), Contains("n")) << made.check.outcome;
  EXPECT_THAT(made.check.outcome, HasSubstr("was not finite before"));
}

TEST(ComparisonInputs, OpenScansAreLong) {
  const auto engine = engine_of(build_text(R"txt(
graph scans(h0: f32[4], x: f32[S,B,4])
  body each(h: f32[4], e: f32[B,4])
    t = Reduce(e, i64{0}) kind=sum keepdims=false
    n = Pointwise(h, t) program="(f32,f32)->(f32) add($0,$1)"
    return n, n as seen
  end
  last, seen = Scan(h0, x) body=0 carried=1 axes=[0] reverse=[0] output_axes=[0] output_reverse=[0]
  return last, seen
)txt"));
  const auto dims = choose_input_dims(plan_of(*engine), weights_of(*engine), SizeChoice::kLarger);
  EXPECT_EQ(dims.at(1)[0], 32);
}

constexpr std::string_view kFiveProducts = R"txt(
graph chain(x: f32[4,64])
  const w: f32[64,64] = random(1)
  a = MatMul(x, w)
  b = MatMul(a, w)
  c = MatMul(b, w)
  d = MatMul(c, w)
  y = MatMul(d, w)
  return y
)txt";

// The caller requested f16 for every layer.
TEST(SelfCheck, LayersThatWereAskedForDoNotGoBack) {
  PrecisionOptions asked = with_table(kF16, {"x", "a", "b", "c", "d"});
  asked.layers = {{".*", Precision::kF16}};
  const CheckedBuild made =
      built({.text = kFiveProducts, .precision = asked, .inputs = {ramp({4, 64}, 0, 3e4)}});
  EXPECT_THAT(layers_back(made), IsEmpty()) << made.check.outcome;
  EXPECT_THAT(made.check.warning, HasSubstr("which --layer-precision .*=f16 requests"));
}

// The first one stays as it was asked for.
TEST(SelfCheck, LayersInF32AreNotNamed) {
  PrecisionOptions asked = with_table(kF16, {"x", "a", "b"});
  asked.layers = {{"a", Precision::kF32}};
  const CheckedBuild made =
      built({.text = kFiveProducts, .precision = asked, .inputs = {ramp({4, 64}, 0, 3e4)}});
  EXPECT_THAT(layers_back(made), Not(Contains("a"))) << made.check.outcome;
  EXPECT_THAT(layers_back(made), Contains("b")) << made.check.outcome;
}

// All of its numbers times `factor`.
CalibrationTable table_with(const std::string& value, float factor) {
  CalibrationTable made;
  const auto add = [&](const std::string& name, float most) {
    const float by = name == value ? factor : 1;
    made.tensors[name] = {
        .min = -by * most, .max = by * most, .seen_min = -by * most, .seen_max = by * most};
  };
  add("x", 4), add("a", 40), add("b", 320), add("c", 2560), add("d", 20000);
  return made;
}

TEST(SelfCheck, AWrongRangeOfAnInputIsTold) {
  for (const float factor : {30.0F, 0.05F}) {
    PrecisionOptions precision{.types = {Precision::kI8}};
    precision.ranges = std::make_shared<const CalibrationTable>(table_with("x", factor));
    const CheckedBuild made = built({.text = kFiveProducts, .precision = precision, .draws = true});
    EXPECT_THAT(layers_back(made), IsEmpty()) << made.check.outcome;
    EXPECT_THAT(made.check.warning, AllOf(HasSubstr("the calibration table does not fit the model"),
                                          HasSubstr("Check the range of \"x\"")))
        << made.check.outcome;
  }
}

TEST(SelfCheck, ARangeThatFitsIsNotTold) {
  PrecisionOptions precision{.types = {Precision::kI8}};
  precision.ranges = std::make_shared<const CalibrationTable>(table_with("", 1));
  const CheckedBuild made = built({.text = kFiveProducts, .precision = precision, .draws = true});
  EXPECT_EQ(made.check.warning, "");
  EXPECT_THAT(made.check.outcome, Not(HasSubstr("does not fit")));
}

}  // namespace
}  // namespace anneal::testing
