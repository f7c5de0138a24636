// Kernels of a step timed on the emulated device, whose times mean nothing: streams, recordings,
// operands, and the comparison of results.
#include "anneal/engine/builder/timing/gpu_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/engine/builder/timing/plan_code.h"
#include "anneal/kernels/cuda/backend.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/error_of.h"

namespace anneal::testing {
namespace {

constexpr std::string_view kProduct = R"txt(
graph product(x: f32[5,12])
  const w: f32[12,8] = random(1)
  y = MatMul(x, w)
  return y
)txt";

// Writes nothing.
struct IdleKernel final : Kernel {
  void launch(const LaunchArgs&) const override {}
};

TEST(GpuBench, KernelsAreTimedAndCompared) {
  GraphBuildOptions options;
  options.targets = {"emulated"};
  const EngineFile file = build_text(kProduct, options);
  const Plan& plan = file.plans[0];
  const auto product = std::ranges::find(plan.steps, "cuda.matmul.simt", &Step::kernel);
  ASSERT_NE(product, plan.steps.end());
  const TimedStep step(file, plan, *product);
  EXPECT_THAT(step.weights[1], ::testing::NotNull());
  const auto device = cuda_backend().open("emulated");
  EXPECT_EQ(step.text(*device), "MatMul (f32[5,12]{12,1}, const f32[12,8]) -> f32[5,8]{8,1}");
  Request request = step.request(*device);
  const KernelEntry& entry = *find_kernel(cuda_backend(), "cuda.matmul.simt");
  const std::vector<Tactic> tactics = entry.tactics(request);
  ASSERT_GT(tactics.size(), 1u);
  std::vector<std::unique_ptr<Kernel>> kernels;
  for (const Tactic& tactic : std::span(tactics).first(2)) {
    request.tactic = tactic;
    kernels.push_back(*entry.make(request));
  }
  device->prepare_code({});
  GpuBench bench(step, *device);
  for (const auto& kernel : kernels) bench.add(*kernel);
  const IdleKernel idle;
  bench.add(idle);
  EXPECT_GT(bench.microseconds(0), 0);
  EXPECT_EQ(bench.difference(1), "");
  EXPECT_NE(bench.difference(2), "");
}

// A refit where a library is missing: the tactic refuses, as the library's kernel would.
TEST(PlanCode, AKernelThatRefusesLeavesTheRunnerUp) {
  GraphBuildOptions options;
  options.targets = {"emulated"};
  EngineFile file = build_text(kProduct, options);
  Plan& plan = file.plans[0];
  const auto product = std::ranges::find(plan.steps, "cuda.matmul.simt", &Step::kernel);
  ASSERT_NE(product, plan.steps.end());
  const Tactic good = product->tactic, refused = {std::byte{1}};
  product->tactic = refused;
  const auto code = [&] {
    const auto device = cuda_backend().open("emulated");
    return code_of_steps(file, plan, *device, {});
  };
  EXPECT_THAT(error_of(code), ::testing::HasSubstr("runs on cuda.matmul.simt in the engine, which "
                                                   "refuses it here"));
  product->runner_up = "cuda.matmul.simt";
  product->runner_up_tactic = good;
  EXPECT_NO_THROW(code());
  EXPECT_EQ(product->tactic, refused);
}

TEST(GpuBench, OperandsTakeTurnsWithMoreThanTheCache) {
  GraphBuildOptions options;
  options.targets = {"emulated"};
  const EngineFile file = build_text(kProduct, options);
  const Plan& plan = file.plans[0];
  const auto product = std::ranges::find(plan.steps, "cuda.matmul.simt", &Step::kernel);
  const TimedStep step(file, plan, *product);
  const auto device = cuda_backend().open("emulated");
  const auto stream = device->make_stream();
  const size_t bytes = sizeof(float) * (5 * 12 + 12 * 8 + 5 * 8);
  EXPECT_EQ(GpuOperands(step, *device, *stream, 0).sets().size(), 1u);
  EXPECT_EQ(GpuOperands(step, *device, *stream, 3 * bytes).sets().size(), 7u);
  GpuOperands small(step, *device, *stream, 100 * bytes);
  EXPECT_EQ(small.sets().size(), GpuOperands::kMostSets);
  EXPECT_NE(small.sets()[0].inputs[1].data, small.sets()[1].inputs[1].data);
  EXPECT_NO_THROW(small.leave_the_cache(*stream));
  stream->wait();
}

}  // namespace
}  // namespace anneal::testing
