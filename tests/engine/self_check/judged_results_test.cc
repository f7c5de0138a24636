// Which results the self-check judges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/tests/engine/self_check/planted_fault.h"

namespace anneal::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

const PrecisionOptions kF16{.types = {Precision::kF16}}, kBF16{.types = {Precision::kBF16}};

// The sine of large numbers in bf16, as was asked for, and a result that is no float.
CheckedBuild with_result(std::string_view program) {
  std::string text = R"txt(
graph results(x: f32[64,3])
  const b: f32[3,32] = random(1)
  y = MatMul(x, b) epilogue="PROGRAM"
  return y
)txt";
  text.replace(text.find("PROGRAM"), 7, program);
  PrecisionOptions asked = kBF16;
  asked.layers = {{"y", Precision::kBF16}};
  return built({.text = text, .precision = asked, .inputs = {ramp({64, 3}, 0, 300)}});
}

TEST(JudgedResults, ComparisonsInsideOfAProductAreCounted) {
  const CheckedBuild made = with_result("(f32)->(bool) lt(sin(mul($0,6.2831855f32)),0f32)");
  EXPECT_THAT(made.check.warning, HasSubstr("of the elements of \"y\" differ"))
      << made.check.outcome;
}

TEST(JudgedResults, IntegersOf8BitsAreCounted) {
  const CheckedBuild made =
      with_result("(f32)->(u8) round_u8(u32(mul(add(sin(mul($0,6.2831855f32)),1f32),100f32)))");
  EXPECT_THAT(made.check.warning, HasSubstr("of the elements of \"y\" differ"))
      << made.check.outcome;
}

// A step of 8 bits is a rounding.
TEST(JudgedResults, NeighboursOf8BitsAreEqual) {
  const CheckedBuild made =
      with_result("(f32)->(u8) round_u8(u32(mul(add(sin(mul($0,0.001f32)),1f32),10f32)))");
  EXPECT_TRUE(made.check.is_compared);
  EXPECT_EQ(made.check.warning, "");
}

TEST(JudgedResults, OverflowBehindAnotherOrderIsFound) {
  PrecisionOptions precision = with_table(kF16, {"s", "p"});
  precision.layers = {{"a", Precision::kF16}};
  const CheckedBuild made = built({.text = R"txt(
graph sorts(x: f32[8,64])
  const w: f32[64,512] = random(1)
  const v: f32[512,8] = random(2)
  a = MatMul(x, w)
  s, i = TopK(a, i64{512}) axis=1
  p = Pointwise(s) program="(f32)->(f32) pow($0,4f32)"
  y = MatMul(p, v)
  return y, i
)txt",
                                   .precision = precision,
                                   .inputs = {random_f32({8, 64}, 1)}});
  EXPECT_THAT(layers_back(made), Contains("y")) << made.check.outcome;
  EXPECT_THAT(made.check.outcome, HasSubstr("was not finite before"));
}

// In f32 the sum cancels to 0 and has no magnitude of its own. Behind 16 bits it is their rounding.
constexpr std::string_view kCancels = R"txt(
graph cancels(x: f32[8,64])
  const w: f32[64,32] = random(1)
  const m: f32[] = {-1}
  const u: f32[32,8] = random(2)
  v = Pointwise(w, m) program="(f32,f32)->(f32) mul($0,$1)"
  a = MatMul(x, w)
  s = MatMul(x, v)
  y = Pointwise(s, a) program="(f32,f32)->(f32) add($0,$1)"
  q = MatMul(a, u)
  return y, q
)txt";

TEST(JudgedResults, ASumThatCancelsInF32IsFound) {
  const PlantedFault model{
      .text = kCancels, .precision = kBF16, .inputs = {random_f32({8, 64}, 1)}};
  const auto largest = [&](bool check) {
    const auto engine = engine_of(built(model, check).file);
    ExecutionContext context(engine);
    float most = 0;
    const auto results = run(context, *engine, model.inputs);
    for (const float each : results.at("y")) most = std::max(most, std::abs(each));
    return most;
  };
  EXPECT_GT(largest(false), 1e-3F);
  EXPECT_EQ(largest(true), 0) << built(model).check.outcome;
}

}  // namespace
}  // namespace anneal::testing
