// What is measured is what was asked for; the numbers about it are right.
#include "anneal/cli/measure/measure.h"
#include "anneal/engine/run/make_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/cli/measure/profile_table.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/engine/graphs.h"

namespace anneal {
namespace {

using ::testing::HasSubstr;

void say_nothing(std::string_view) {}

TEST(Amount, IsRunsOrATime) {
  const struct {
    std::string_view text;
    std::optional<int> runs;
    double seconds;
  } cases[] = {{"10", 10, 0},
               {"0", 0, 0},
               {"200ms", std::nullopt, 0.2},
               {"1.5s", std::nullopt, 1.5},
               {"0s", std::nullopt, 0}};
  for (const auto& test : cases) {
    const Amount amount = parse_amount(test.text, "--warmup");
    EXPECT_EQ(amount.runs, test.runs) << test.text;
    EXPECT_DOUBLE_EQ(amount.seconds, test.seconds) << test.text;
  }
  for (const std::string_view wrong :
       {"", "x", "1.5", "-1", "-1s", "10 ms", "10m", "1e99", "1e99s", "nan", "infs", "3s3"})
    EXPECT_THROW(parse_amount(wrong, "--warmup"), Error) << wrong;
}

TEST(Latency, OfRuns) {
  std::vector<double> runs;
  for (int i = 100; i > 0; --i) runs.push_back(i);
  const Latency latency = latency_of(runs);
  EXPECT_EQ(latency.min, 1);
  EXPECT_EQ(latency.mean, 50.5);
  EXPECT_EQ(latency.median, 50.5);
  EXPECT_EQ(latency.p90, 90);
  EXPECT_EQ(latency.p95, 95);
  EXPECT_EQ(latency.p99, 99);
  EXPECT_EQ(latency.max, 100);
}

TEST(Measure, RunsAsOftenAsAskedOnEveryContext) {
  const auto engine = testing::engine_of(testing::build_text(testing::kConvNet));
  const std::vector<Tensor> inputs = {testing::random_f32({1, 3, 9, 7}, 1)};
  for (const int contexts : {1, 4}) {
    MeasureOptions options{.warmup = {2, 0}, .measured = {7, 0}, .threads = 1};
    options.contexts = contexts;
    const Measurement measured = measure(engine, inputs, options, say_nothing);
    EXPECT_EQ(measured.milliseconds.size(), static_cast<size_t>(7 * contexts));
    EXPECT_EQ(measured.warmup_runs, 2 * contexts);
    EXPECT_GT(measured.first_milliseconds, 0);
    EXPECT_GT(measured.seconds, 0);
    EXPECT_EQ(measured.arena_bytes, plan_of(*engine).arena_bytes.at(0));
    EXPECT_GE(measured.context_bytes, measured.arena_bytes);
    EXPECT_GE(measured.load.cores, 1);
  }
}

TEST(Measure, ATimeIsAtLeastAFewRuns) {
  const auto engine = testing::engine_of(testing::build_text(testing::kConvNet));
  const std::vector<Tensor> inputs = {testing::random_f32({1, 3, 9, 7}, 1)};
  const Measurement measured = measure(
      engine, inputs, {.warmup = {0, 0}, .measured = {std::nullopt, 0}, .threads = 1}, say_nothing);
  EXPECT_EQ(measured.milliseconds.size(), static_cast<size_t>(kFewestRuns));
}

TEST(Measure, AnErrorOfARunIsThrown) {
  const auto engine = testing::engine_of(testing::build_text(testing::kDynamicNet));
  const std::vector<Tensor> inputs = {testing::random_f32({2, 6}, 1),
                                      testing::random_f32({3, 6}, 1)};
  EXPECT_THROW(
      measure(engine, inputs, {.warmup = {0, 0}, .measured = {1, 0}, .contexts = 3}, say_nothing),
      Error);
}

TEST(ProcessFacts, MemoryAndLoad) {
  const ResidentMemory memory = resident_memory();
  EXPECT_GT(memory.now, 0u);
  EXPECT_GE(memory.peak, memory.now / 2);
  const MachineLoad quiet = load_between({10, 1}, {14, 4.5}, 2, 0);
  EXPECT_NEAR(quiet.other_cores, std::min(0.25, static_cast<double>(quiet.cores)), 1e-9);
  EXPECT_EQ(load_between({10, 1}, {11, 4}, 2, 0).other_cores, 0) << "clocks of two kinds";
  EXPECT_FALSE(load_between({10, 1}, {13, 4}, 2, 0.01).busy());
  EXPECT_TRUE(load_between({10, 1}, {13, 4}, 2, 0.05).busy());
  EXPECT_TRUE(load_between({10, 1}, {10 + 2.0 * quiet.cores, 1}, 2, 0).busy());
}

TEST(ProfileTable, IsTheMeanOfItsRunsWithTheLongestStepFirst) {
  ProfileTable table;
  EXPECT_EQ(table.text(), "#  step  kernel  us  %\n\nkernel  us  %\n");
  table.add({{"a", "k1", 10}, {"b", "k2", 50}, {"c", "k1", 20}});
  table.add({{"a", "k1", 20}, {"b", "k2", 70}, {"c", "k1", 30}});
  EXPECT_EQ(table.text(),
            "#  step  kernel    us     %\n"
            "2  b     k2      60.0  60.0\n"
            "3  c     k1      25.0  25.0\n"
            "1  a     k1      15.0  15.0\n"
            "\n"
            "kernel    us     %\n"
            "k2      60.0  60.0\n"
            "k1      40.0  40.0\n");
}

TEST(ProfileTable, TheTypicalTimeIsNoMean) {
  ProfileTable table;
  for (const double time : {10.0, 11.0, 900.0}) table.add({{{"a", "k", time, 2}}});
  ASSERT_EQ(table.typical().size(), 1u);
  EXPECT_EQ(table.typical()[0].microseconds, 11);
  EXPECT_EQ(table.typical()[0].times, 2);
}

}  // namespace
}  // namespace anneal
