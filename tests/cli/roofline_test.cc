// Bounds, shares and advice of made-up steps on made-up ceilings, whose numbers are round.
#include "anneal/cli/roofline/roofline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/cli/roofline/advice.h"

namespace anneal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// 1 byte of memory takes as long as 10 operations in f32, or 40 of bytes.
RooflineCeilings round_ceilings() {
  RooflineCeilings made;
  made.device = "a CPU";
  made.isa = "full";
  made.threads = 1;
  made.date = "2026-11-26 15:20 UTC";
  made.levels = {{"L2", 1'000'000, 1e11, 5e10}, {"memory", 0, 1e10, 1e10}};
  made.rates = {{ProductType::kF32, 1e11}, {ProductType::kInt8, 4e11}};
  made.start_seconds = 1e-6;
  return made;
}

RooflineStep step(std::string name, double products, double weight_bytes, double activation_bytes) {
  RooflineStep made;
  made.name = std::move(name);
  made.kernel = "kernel";
  made.role = StepRole::kProduct;
  made.products = products;
  made.weight_bytes = weight_bytes;
  made.activation_bytes = activation_bytes;
  return made;
}

// times: of the steps, in microseconds; empty: not measured.
Roofline roofline_of(std::vector<RooflineStep> steps, const std::vector<double>& times,
                     int64_t batch = 0, double touched = 1e9) {
  RooflinePlan plan;
  plan.target = "cpu";
  plan.isa = "full";
  plan.batch = batch;
  plan.touched_bytes = touched;
  plan.steps = std::move(steps);
  ProfileTable table;
  std::vector<CountedStep> counted;
  for (size_t i = 0; i < times.size(); ++i)
    counted.push_back({{plan.steps[i].name, plan.steps[i].kernel, times[i]}});
  if (!times.empty()) table.add(counted);
  return make_roofline(std::move(plan), round_ceilings(), times.empty() ? nullptr : &table);
}

TEST(Roofline, TheLongerOfTrafficAndArithmeticIsTheBound) {
  RooflineStep bytes = step("int8", 4e8, 0, 2e6);
  bytes.type = ProductType::kInt8;
  const Roofline roofline =
      roofline_of({step("arithmetic", 1e9, 1e6, 1e6), step("memory", 1e6, 1e7, 1e6),
                   step("cache", 1e4, 0, 9e5), step("overhead", 10, 10, 10), bytes},
                  {20000, 2000, 18, 5, 1000});
  const auto& rows = roofline.rows;
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[0].bound_text, "f32 arithmetic");
  EXPECT_DOUBLE_EQ(rows[0].least_time(), 1e4);
  EXPECT_EQ(rows[1].bound_text, "memory");
  EXPECT_DOUBLE_EQ(rows[1].weight_time, 1000);
  EXPECT_DOUBLE_EQ(rows[1].activation_time, 100);
  EXPECT_EQ(rows[2].bound_text, "L2");
  EXPECT_DOUBLE_EQ(rows[2].least_time(), 9);
  EXPECT_EQ(rows[3].bound_text, "overhead");
  EXPECT_EQ(rows[4].bound_text, "int8 arithmetic");
  EXPECT_DOUBLE_EQ(rows[4].least_time(), 1000);
  EXPECT_DOUBLE_EQ(roofline.share_of(rows[0]), 20000.0 / 23023);
}

TEST(Roofline, WeightsOfARunThatFitComeFromTheCache) {
  const RooflineStep one = step("product", 1e4, 5e5, 0);
  EXPECT_EQ(roofline_of({one}, {100}, 0, 9e5).rows[0].bound_text, "L2");
  EXPECT_EQ(roofline_of({one}, {100}, 0, 2e6).rows[0].bound_text, "memory");
}

TEST(Roofline, EpiloguesAreInF32) {
  RooflineStep one = step("conv", 4e8, 0, 0);
  one.type = ProductType::kInt8;
  one.others = 1e8;
  EXPECT_DOUBLE_EQ(roofline_of({one}, {}).rows[0].arithmetic_time, 1000 + 1000);
}

TEST(Roofline, StepsOfBodiesCountAsOftenAsTheyRan) {
  RooflineStep body = step("in a body", 1e9, 0, 0);
  body.in_body = true;
  body.runs = 64;
  RooflinePlan plan;
  plan.isa = "full";
  plan.steps = {step("outer", 1e9, 0, 0), body, step("other branch", 1e9, 0, 0)};
  ProfileTable table;
  table.add({{{"outer", "k", 1, 2}}, {{"in a body", "k", 1, 3}}, {{"other branch", "k", 0, 0}}});
  const Roofline roofline = make_roofline(plan, round_ceilings(), &table);
  ASSERT_EQ(roofline.rows.size(), 2u) << "the other branch did not run";
  EXPECT_EQ(roofline.rows[0].operations, 1e9) << "two parts of one batch";
  EXPECT_EQ(roofline.rows[1].operations, 3e9);
  EXPECT_EQ(make_roofline(plan, round_ceilings(), nullptr).rows[1].operations, 64e9);
}

TEST(Roofline, WithoutCeilingsWorkRemains) {
  RooflinePlan plan;
  plan.target = "cpu:full";
  plan.steps = {step("conv", 1e6, 100, 100)};
  const Roofline roofline = make_roofline(plan, std::nullopt, nullptr);
  EXPECT_EQ(roofline.rows[0].bound, Bound::kNotKnown);
  EXPECT_THAT(roofline_text(roofline), HasSubstr("none: this CPU does not have what cpu:full"));
  const Json json = roofline_json(roofline);
  EXPECT_TRUE(json["ceilings"].is_null());
  EXPECT_EQ(json["steps"][0]["operations"], 1e6);
  EXPECT_FALSE(json["steps"][0].contains("bound"));
}

TEST(Roofline, AsJson) {
  RooflineStep unknown = step("late", 0, 0, 0);
  unknown.is_known = false;
  const Json json =
      roofline_json(roofline_of({step("fc", 1e6, 1e7, 1e6), unknown}, {4400, 100}, 3));
  EXPECT_EQ(json["batch"], 3);
  EXPECT_EQ(json["ceilings"]["operations_per_second"]["int8"], 4e11);
  const Json& fc = json["steps"][0];
  EXPECT_EQ(fc["bound"], "memory");
  EXPECT_DOUBLE_EQ(fc["roof_microseconds"], 1100);
  EXPECT_DOUBLE_EQ(fc["share_of_roof"], 0.25);
  EXPECT_DOUBLE_EQ(fc["operations_per_byte"], 1e6 / 1.1e7);
  EXPECT_FALSE(json["steps"][1].contains("operations"));
  EXPECT_EQ(json["total"]["microseconds"], 4500);
}

std::vector<std::string> advice_kinds(const Roofline& roofline) {
  std::vector<std::string> kinds;
  for (const Advice& advice : advice_of(roofline)) kinds.push_back(advice.kind);
  return kinds;
}

TEST(RooflineAdvice, ChannelsThatDoNotFillRegisters) {
  RooflineStep conv = step("conv", 1e9, 0, 0);
  conv.depth = 3;
  conv.columns = 24;
  const auto advice = advice_of(roofline_of({conv}, {20000}));
  ASSERT_EQ(advice.size(), 1u);
  EXPECT_EQ(advice[0].kind, "pad");
  EXPECT_THAT(advice[0].text, HasSubstr("24 output channels as 32: 25 %"));
  EXPECT_THAT(advice[0].text, Not(HasSubstr("input channels")));
  EXPECT_DOUBLE_EQ(advice[0].figures["padding_share"], 0.25);

  conv.type = ProductType::kInt8;  // four terms for each lane
  EXPECT_THAT(advice_of(roofline_of({conv}, {20000}))[0].text, HasSubstr("3 input channels as 4"));
  conv.depth = 64;
  conv.columns = 32;
  EXPECT_TRUE(advice_of(roofline_of({conv}, {20000})).empty());
  conv.columns = 63;
  EXPECT_TRUE(advice_of(roofline_of({conv}, {20000})).empty()) << "a small part";
  conv.columns = 24;
  EXPECT_TRUE(advice_of(roofline_of({conv, step("all", 1e9, 0, 0)}, {1, 20000})).empty())
      << "little time";
}

TEST(RooflineAdvice, TensorCoresTakeEightOrSixteen) {
  RooflineStep conv = step("conv", 1e12, 0, 0);
  conv.type = ProductType::kF16;
  conv.depth = 12;
  conv.columns = 16;
  RooflinePlan plan;
  plan.is_cpu = false;
  plan.steps = {conv};
  const auto advice = advice_of(make_roofline(plan, round_ceilings(), nullptr));
  ASSERT_EQ(advice.size(), 1u);
  EXPECT_THAT(advice[0].text, HasSubstr("12 input channels as 16: 25 %"));
  plan.steps[0].type = ProductType::kF32;  // without tensor cores
  EXPECT_TRUE(advice_of(make_roofline(plan, round_ceilings(), nullptr)).empty());
}

TEST(RooflineAdvice, StepsToFuseWithTheirProducers) {
  RooflineStep copy = step("copy", 0, 0, 8e6);
  copy.role = StepRole::kMovement;
  copy.producer = 0;
  copy.producer_bytes = 4e6;
  copy.refusal = "the layer has two readers";
  const RooflineStep conv = step("conv", 1e9, 0, 4e6);
  const auto advice = advice_of(roofline_of({conv, copy}, {20000, 1000}));
  ASSERT_EQ(advice.size(), 1u);
  EXPECT_EQ(advice[0].kind, "fuse");
  EXPECT_EQ(advice[0].figures["producer"], "conv");
  EXPECT_EQ(advice[0].figures["saved_bytes"], 8e6);
  EXPECT_DOUBLE_EQ(advice[0].figures["saved_roof_microseconds"], 800);
  EXPECT_THAT(advice[0].text, HasSubstr("the optimizer: the layer has two readers"));
  copy.producer.reset();
  EXPECT_TRUE(advice_of(roofline_of({conv, copy}, {20000, 1000})).empty());
  copy.producer = 0;
  copy.others = 1e9;  // bound by arithmetic
  EXPECT_TRUE(advice_of(roofline_of({conv, copy}, {20000, 20000})).empty());
}

TEST(RooflineAdvice, TheBatchThatTurnsStepsComputeBound) {
  // A row takes 10 us of arithmetic and 2 us of activations; weights take 1000 us.
  const RooflineStep product = step("fc", 1e6, 1e7, 2e4);
  const auto advice = advice_of(roofline_of({product}, {3000}, 1));
  ASSERT_EQ(advice.size(), 1u);
  EXPECT_EQ(advice[0].kind, "batch");
  // Activations of a step that fit are those of the cache, of one row: 0.2 us; the memory's here,
  // since the step's weights are beyond it.
  EXPECT_EQ(advice[0].figures["compute_bound_batch"], 125);
  EXPECT_THAT(advice[0].text, HasSubstr("it turns compute-bound at batch 125 (now 1)"));
  EXPECT_THAT(advice_of(roofline_of({product}, {3000}))[0].text,
              HasSubstr("it turns compute-bound at 125 times this batch"));
  EXPECT_THAT(advice_of(roofline_of({step("fc", 1e4, 1e7, 1e6)}, {3000}, 1))[0].text,
              HasSubstr("no batch makes it compute-bound"));
  EXPECT_TRUE(advice_of(roofline_of({step("conv", 1e9, 1e6, 1e5)}, {20000}, 1)).empty());
}

TEST(RooflineAdvice, StepsWithLessWorkThanTheirStart) {
  const RooflineStep tiny = step("tiny", 1e4, 0, 10);  // 0.1 us of 1
  EXPECT_EQ(advice_kinds(roofline_of({tiny, tiny}, {5, 5})), std::vector<std::string>{"start"});
  EXPECT_THAT(advice_of(roofline_of({tiny, tiny}, {5, 5}))[0].text,
              HasSubstr("2 steps (100.0 % of the time) have less work than the start of a step "
                        "takes; a batch 10 times as large"));
  // Weights, 0.5 us, are read once for any batch; arithmetic, 0.01 us, grows with it.
  const RooflineStep weights = step("weights", 1e3, 5000, 10);
  EXPECT_THAT(advice_of(roofline_of({weights}, {5}))[0].text,
              HasSubstr("a batch 100 times as large"));
  EXPECT_TRUE(advice_kinds(roofline_of({tiny, step("conv", 1e9, 0, 0)}, {5, 20000})).empty());
}

TEST(Roofline, APictureHasItsStepsAndRoofs) {
  RooflineStep copy = step("copy", 0, 0, 8e6);
  copy.role = StepRole::kMovement;
  const std::string svg = roofline_picture(
      roofline_of({step("a <conv>", 1e9, 1e6, 1e6), step("fc", 1e6, 1e7, 1e6), copy},
                  {20000, 2000, 1000}),
      "net");
  EXPECT_THAT(svg, HasSubstr("a &lt;conv&gt;"));
  EXPECT_THAT(svg, HasSubstr("f32 arithmetic 100 Gop/s"));
  EXPECT_THAT(svg, HasSubstr("memory 10 GB/s"));
  EXPECT_THAT(svg, HasSubstr("L2 100 GB/s"));
  EXPECT_THAT(svg, HasSubstr("which take 4.3 %")) << "the copy";
  EXPECT_THAT(svg, Not(HasSubstr("int8"))) << "no step multiplies bytes";
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace anneal
