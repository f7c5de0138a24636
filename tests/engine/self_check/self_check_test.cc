// What a build of lower precision runs to compare itself with f32, and what it tells.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/engine/builder/f32_build.h"
#include "anneal/tests/engine/self_check/planted_fault.h"

namespace anneal::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const PrecisionOptions kF16{.types = {Precision::kF16}}, kBF16{.types = {Precision::kBF16}};

constexpr std::string_view kTwoProducts = R"txt(
graph two(x: f32[4,64])
  const w: f32[64,32] = random(1)
  const v: f32[32,16] = random(2)
  a = MatMul(x, w)
  y = MatMul(a, v)
  return y
)txt";

constexpr std::string_view kFourier = R"txt(
graph fourier(x: f32[64,3])
  const b: f32[3,32] = random(1)
  const v: f32[32,16] = random(2)
  a = MatMul(x, b) epilogue="(f32)->(f32) sin(mul($0,6.2831855f32))"
  y = MatMul(a, v)
  return y
)txt";

// Positions from 0 to 5000, queries and keys.
std::vector<Tensor> rotary_inputs(const Dims& positions_dims) {
  std::vector<int64_t> positions(24);
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int64_t>(i * 217);
  return {Tensor::of<int64_t>(DataType::kI64, positions_dims, positions),
          random_f32({1, 24, 16}, 4), random_f32({1, 24, 16}, 5)};
}

void expect_right(const PlantedFault& model) {
  const CheckedBuild made = built(model);
  EXPECT_TRUE(made.check.is_compared);
  EXPECT_LT(loss(made.file, model), 0.02) << made.check.outcome;
  EXPECT_EQ(made.check.warning, "");
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
  expect_right(
      {.text = kText, .precision = kBF16, .inputs = rotary_inputs({1, 24, 1}), .draws = true});
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
  for (const PrecisionOptions& precision : {kF16, kBF16})
    expect_right({.text = kText,
                  .precision = precision,
                  .inputs = rotary_inputs({1, 1, 24}),
                  .draws = true});
}

// A plan that overflows at the end of what its inputs may be, and only there.
void expect_found(std::string_view text, const PrecisionOptions& precision) {
  const CheckedBuild made = built({.text = text, .precision = precision, .draws = true});
  EXPECT_TRUE(made.check.is_compared) << made.check.outcome;
  EXPECT_THAT(made.check.back_to_f32, Not(IsEmpty())) << made.check.outcome;
  EXPECT_EQ(made.check.warning, "");
}

TEST(SelfCheck, IndicesThatAreComputedAreDrawnToTheEndOfTheTable) {
  expect_found(R"txt(
graph shifted(p: i64[1,6])
  const t: f32[4,2] = {1, 1, 1, 1, 1, 1, 900, 900}
  const w: f32[2,2] = {1, 2, 3, 4}
  moved = Pointwise(p) program="(i64)->(i64) add($0,2i64)"
  g = Gather(t, moved) axis=0
  s = Pointwise(g) program="(f32)->(f32) mul($0,$0)"
  y = MatMul(s, w)
  return y
)txt",
               with_table(kF16, {"g", "s"}));
}

TEST(SelfCheck, SizesThatFitEachOtherAreDrawn) {
  expect_found(R"txt(
size T in 1..16 opt 4
size P in 1..16 opt 4
size M in 1..32 opt 4
graph decoder(new: f32[1,T,8], past: f32[1,P,8], mask: i64[1,M])
  const w: f32[8,8] = random(1)
  k = Concat(past, new) axis=1
  m = Reshape(mask, i64{1,-1,1})
  b = Pointwise(k, m) program="(f32,i64)->(f32) mul($0,mul(f32($1),90000f32))"
  y = MatMul(b, w)
  return y
)txt",
               with_table(kF16, {"b", "k"}));
}

// Normal numbers have no logarithm as often as not.
TEST(SelfCheck, NumbersAreDrawnOfWhichF32MakesNumbers) {
  expect_found(R"txt(
graph logs(x: f32[8,64])
  const w: f32[64,32] = random(1)
  const v: f32[32,16] = random(2)
  r = Pointwise(x) program="(f32)->(f32) log($0)"
  a = MatMul(r, w)
  p = Pointwise(a) program="(f32)->(f32) pow($0,6f32)"
  y = MatMul(p, v)
  return y
)txt",
               with_table(kF16, {"r", "a", "p"}));
}

// Uniform inputs would go far beyond the ranges behind the first product.
TEST(SelfCheck, DrawnInputsOf8BitsStayWithinTheRangesOfSamples) {
  PrecisionOptions precision{.types = {Precision::kI8}};
  CalibrationTable made;
  made.tensors["x"] = {.min = -4, .max = 4, .seen_min = -4, .seen_max = 4};
  made.tensors["a"] = {.min = -30, .max = 30, .seen_min = -30, .seen_max = 30};
  precision.ranges = std::make_shared<const CalibrationTable>(std::move(made));
  const CheckedBuild checked = built({.text = kTwoProducts, .precision = precision, .draws = true});
  EXPECT_TRUE(checked.check.is_compared);
  EXPECT_THAT(checked.check.back_to_f32, IsEmpty()) << checked.check.outcome;
}

TEST(SelfCheck, F32GoesOnFromTheGraphThatBothHaveInCommon) {
  for (const PrecisionOptions& precision :
       {kF16, kBF16, with_table({.types = {Precision::kI8}}, {"x", "a"})}) {
    const GraphBuildOptions options = options_of(precision);
    F32Build f32(options, options.targets[0]);
    const Graph model = parse_graph(kTwoProducts);
    build(model.clone(), f32.watched());
    EngineFile shared = f32.build(model), alone = build(model.clone(), options_of({}));
    for (EngineFile* file : {&shared, &alone}) file->plans[0].decisions.clear();
    EXPECT_EQ(save(shared), save(alone));
  }
}

// Which finds nothing that one layer explains, so that it says so.
TEST(SelfCheck, WarnsOfADifferenceThatRemains) {
  PrecisionOptions asked{.types = {Precision::kBF16}};
  asked.layers = {{"a|y", Precision::kBF16}};
  const CheckedBuild made =
      built({.text = kFourier, .precision = asked, .inputs = {ramp({64, 3}, 0, 300)}});
  EXPECT_THAT(made.check.warning, HasSubstr("most of it arises in layer \"a\", which "
                                            "--layer-precision a|y=bf16 requests"));
  EXPECT_THAT(made.check.back_to_f32, IsEmpty());
}

TEST(SelfCheck, OrdinaryNetworksStayAsTheyAre) {
  for (const PrecisionOptions& precision : {kF16, kBF16}) {
    const PlantedFault planted{
        .text = kTwoProducts, .precision = precision, .inputs = {random_f32({4, 64}, 1)}};
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
  const CheckedBuild made =
      built({.text = kText, .precision = kBF16, .inputs = {random_f32({8, 64}, 1)}});
  EXPECT_TRUE(made.check.is_compared);
  EXPECT_EQ(made.check.warning, "");
  EXPECT_THAT(made.check.outcome, HasSubstr("\"y\", which follows from it, is off by"));
}

TEST(SelfCheck, LeavesOutWhatNeedsTooMuchWork) {
  SelfCheckOptions options{.most_work = 100};
  const CheckedBuild made = build_checked(parse_graph(kTwoProducts), options_of(kF16), options);
  EXPECT_FALSE(made.check.is_compared);
  EXPECT_THAT(made.check.outcome, HasSubstr("multiply-adds"));
}

// Elementwise steps are hardly work, but drawing takes its time.
TEST(SelfCheck, LeavesOutWhatIsTooMuchToDraw) {
  constexpr std::string_view kText = R"txt(
graph large(x: f32[1,2147483647])
  y = Pointwise(x) program="(f32)->(f32) max($0,0f32)"
  return y
)txt";
  const CheckedBuild made =
      build_checked(parse_graph(kText), options_of(kF16), SelfCheckOptions{.run = true});
  EXPECT_THAT(made.check.outcome, HasSubstr("2147483647 elements are too many to draw"));
}

TEST(SelfCheck, IsForLowerPrecisions) {
  const CheckedBuild made = build_checked(parse_graph(kTwoProducts), options_of({}), {});
  EXPECT_EQ(made.check.outcome, "");
}

// Each sum is within f16 for ordinary numbers, and beyond it for pixels.
TEST(SelfCheck, PixelsAreDrawnForOverflow) {
  std::string text =
      "graph residual(x: f32[4,4])\n"
      "  const w: f32[4,4] = {1, 1, 0, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0}\n";
  std::string before = "x";
  for (int i = 0; i < 8; ++i) {
    const std::string made = "a" + std::to_string(i);
    text += "  m" + made + " = MatMul(" + before + ", w)\n  " + made + " = Pointwise(m" + made +
            ", " + before + ") program=\"(f32,f32)->(f32) add(max($0,0f32),$1)\"\n";
    before = made;
  }
  text += "  return " + before + "\n";
  const PlantedFault model{
      .text = text, .precision = kF16, .inputs = {ramp({4, 4}, 0, 255)}, .draws = true};
  EXPECT_TRUE(std::isinf(loss(built(model, false).file, model)));
  expect_right(model);
}

// Each of the two alone leaves 71 % of the difference.
TEST(SelfCheck, TwoOperandsOfADifferenceGoBackTogether) {
  constexpr std::string_view kText = R"txt(
graph difference(x: f32[8,64])
  const w: f32[64,32] = random(1)
  const n: f32[64,32] = random(2)
  const e: f32[] = {0.001}
  s = Pointwise(n, e) program="(f32,f32)->(f32) mul($0,$1)"
  v = Pointwise(w, s) program="(f32,f32)->(f32) add($0,$1)"
  a = MatMul(x, w)
  b = MatMul(x, v)
  y = Pointwise(a, b) program="(f32,f32)->(f32) mul(sub($0,$1),1000f32)"
  return y
)txt";
  const PlantedFault model{
      .text = kText, .precision = kBF16, .inputs = {random_f32({8, 64}, 3)}, .draws = true};
  EXPECT_GT(loss(built(model, false).file, model), 0.3);
  expect_right(model);
}

}  // namespace
}  // namespace anneal::testing
