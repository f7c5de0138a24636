// Kernels, tactics and runners-up of an engine's GPU in a plan that is built again.
#include "anneal/engine/builder/replay/gpu_choices.h"

#include <gtest/gtest.h>

#include "anneal/engine/builder/replay/kernel_chooser.h"
#include "anneal/graph/op/ops.h"

namespace anneal::testing {
namespace {

Plan plan_of(const std::string& kernel, std::byte tactic) {
  Plan plan;
  plan.name = "net";
  plan.devices = {"sm_90", "cpu"};
  plan.steps.push_back({.name = "a", .kernel = kernel, .op = MatMul{}, .tactic = {tactic}});
  plan.steps.push_back(
      {.name = "host", .kernel = "cpu.matmul.reference", .device = 1, .op = MatMul{}});
  return plan;
}

TEST(GpuChoices, KernelTacticAndRunnerUpAreTaken) {
  Plan recorded = plan_of("cuda.matmul.simt", std::byte{1});
  recorded.steps[0].runner_up = "cuda.matmul.mma";
  recorded.steps[0].runner_up_tactic = {std::byte{2}};
  recorded.steps[1].kernel = "cpu.matmul.other";
  recorded.decisions = {{std::string(kTiming), "a", "of a"},
                        {std::string(kTiming), "host", "of the host"},
                        {std::string(kTiming), "net", "of the plan"},
                        {"layout", "a", "another stage"}};
  Plan plan = plan_of("cuda.matmul.mma", std::byte{9});
  plan.name = "renamed";
  take_gpu_choices(recorded, plan);
  EXPECT_EQ(plan.steps[0].kernel, "cuda.matmul.simt");
  EXPECT_EQ(plan.steps[0].tactic, Tactic{std::byte{1}});
  EXPECT_EQ(plan.steps[0].runner_up, "cuda.matmul.mma");
  EXPECT_EQ(plan.steps[0].runner_up_tactic, Tactic{std::byte{2}});
  EXPECT_EQ(plan.steps[1].kernel, "cpu.matmul.reference");  // the chooser's
  ASSERT_EQ(plan.decisions.size(), 2u);
  EXPECT_EQ(plan.decisions[0].text, "of a");
  EXPECT_EQ(plan.decisions[1].subject, "renamed");
}

// A table of 256 values follows from the program, which other weights may change.
TEST(GpuChoices, ATacticThatFollowsFromTheLayerIsMadeAnew) {
  Plan recorded = plan_of("cuda.softmax.rows", std::byte{1}),
       plan = plan_of("cuda.softmax.rows", std::byte{9});
  for (Plan* each : {&recorded, &plan}) each->steps[0].op = Softmax{};
  take_gpu_choices(recorded, plan);
  EXPECT_EQ(plan.steps[0].tactic, Tactic{std::byte{9}});
}

}  // namespace
}  // namespace anneal::testing
