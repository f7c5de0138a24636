// What counts as a difference from f32.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "anneal/engine/builder/self_check/plan_comparison.h"
#include "anneal/tests/engine/self_check/planted_fault.h"

namespace anneal::testing {
namespace {

constexpr double kBF16Unit = 0x1p-8;

EngineFile as_it_is(std::string_view text) {
  GraphBuildOptions options = options_of({});
  options.passes.skip = {std::string(kAllPasses)};
  return build_text(text, options);
}

Finding compared(std::string_view exact_text, std::string_view reduced_text) {
  const EngineFile exact_file = as_it_is(exact_text), reduced_file = as_it_is(reduced_text);
  WatchedEngine exact(exact_file, exact_file.plans[0], 1),
      reduced(reduced_file, reduced_file.plans[0], 1);
  const JudgedValues judged(exact.plan());
  PlanComparison comparison(exact, reduced, judged, kBF16Unit);
  return comparison.compare({ramp({64}, 1, 2)});
}

// The remainder of 1/3 is rounding.
constexpr std::string_view kRounding = R"txt(
graph noise(x: f32[64])
  s = Pointwise(x) program="(f32)->(f32) add($0,0.33333334f32)"
  y = Pointwise(s, x) program="(f32,f32)->(f32) sub(sub($0,$1),0.33333334f32)"
  return y
)txt";
constexpr std::string_view kZero = R"txt(
graph noise(x: f32[64])
  s = Pointwise(x) program="(f32)->(f32) add($0,0.33333334f32)"
  y = Pointwise(s, x) program="(f32,f32)->(f32) sub($0,add($1,0.33333334f32))"
  return y
)txt";
constexpr std::string_view kLossy = R"txt(
graph noise(x: f32[64])
  s = Pointwise(x) program="(f32)->(f32) add($0,0.334f32)"
  y = Pointwise(s, x) program="(f32,f32)->(f32) sub($0,add($1,0.33333334f32))"
  return y
)txt";

TEST(PlanComparison, RoundingOfF32IsNoDifference) {
  EXPECT_FALSE(compared(kRounding, kZero).is_bad());
  EXPECT_FALSE(compared(kZero, kRounding).is_bad());
}

TEST(PlanComparison, MoreThanThatIsOneAlsoWhereF32GivesZeros) {
  EXPECT_TRUE(compared(kRounding, kLossy).is_told());
  EXPECT_TRUE(compared(kZero, kLossy).is_told());
}

// However many steps there are, each with its rounding.
TEST(PlanComparison, HalfOfAResultIsTheMostThatRoundingExplains) {
  const auto scaled = [](double factor) {
    std::string text =
        "graph deep(x: f32[64])\n  s0 = Pointwise(x) program=\"(f32)->(f32) neg($0)\"\n";
    constexpr int kSteps = 400;
    for (int i = 1; i < kSteps; ++i)
      text += fmt::format("  s{} = Pointwise(s{}) program=\"(f32)->(f32) neg($0)\"\n", i, i - 1);
    return text +
           fmt::format("  y = Pointwise(s{}) program=\"(f32)->(f32) mul($0,{}f32)\"\n  return y\n",
                       kSteps - 1, factor);
  };
  EXPECT_FALSE(compared(scaled(2), scaled(1.25)).is_told());
  EXPECT_TRUE(compared(scaled(2), scaled(0.75)).is_told());
  EXPECT_EQ(compared(scaled(2), scaled(0.75)).most(), 0.5);
}

// Integers of 16 bits may be a step apart, as those of 8 bits may.
TEST(PlanComparison, OneStepOfQuantizedNumbersIsNoDifference) {
  const auto moved_by = [](std::string_view offset) {
    std::string text = R"txt(
graph steps(x: f32[64])
  q = Pointwise(x) program="(f32)->(TYPE) saturate_TYPE(rint(mul(add($0,OFFSET),1000f32)))"
  y = Pointwise(q) program="(TYPE)->(f32) mul(f32($0),0.001f32)"
  return q, y
)txt";
    for (const auto& [word, by] :
         {std::pair("TYPE", std::string_view("i16")), std::pair("OFFSET", offset)})
      for (size_t at; (at = text.find(word)) != text.npos;)
        text.replace(at, std::string_view(word).size(), by);
    return text;
  };
  EXPECT_FALSE(compared(moved_by("0f32"), moved_by("0.0003f32")).is_told());
  EXPECT_TRUE(compared(moved_by("0f32"), moved_by("0.03f32")).is_told());
}

// A few last places more, and the row is beyond the table.
constexpr std::string_view kRows = R"txt(
graph rows(x: f32[64])
  const t: f32[2] = {1, 3}
  f = Pointwise(x) program="(f32)->(f32) add(mul($0,0f32),1.9999999f32)"
  i = Pointwise(f) program="(f32)->(i64) i64($0)"
  r = Gather(t, i) axis=0
  y = Pointwise(r) program="(f32)->(f32) mul($0,FACTOR)"
  return y
)txt";

TEST(PlanComparison, ADifferenceStaysWhereMovedValuesAreRefused) {
  const auto times = [](std::string_view factor) {
    std::string text(kRows);
    return text.replace(text.find("FACTOR"), 6, factor);
  };
  EXPECT_TRUE(compared(times("1f32"), times("2f32")).is_told());
}

}  // namespace
}  // namespace anneal::testing
