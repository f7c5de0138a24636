// Sizes that values decide, on the device: the host waits for a count, and what follows is launched
// for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "anneal/core/new_tensor.h"
#include "anneal/engine/run/debug.h"
#include "anneal/engine/run/engine_state.h"
#include "anneal/tests/cuda/gpu_engine.h"
#include "anneal/tests/engine/graphs.h"
#include "anneal/tests/error_of.h"

namespace anneal::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Kernels of the CPU, without those that only say sizes.
std::vector<std::string> kernels_on_host(const Plan& plan) {
  std::vector<std::string> names;
  for (const Step& step : plan.steps)
    if (step.device + 1u == plan.devices.size() && step.kernel != "sizes")
      names.push_back(step.kernel);
  return names;
}

bool is_late_on_device(const Plan& plan, const Slot& slot) {
  return slot.storage == Storage::kDataDependent && slot.device + 1u != plan.devices.size();
}

void expect_same(ExecutionContext& context, const Engine& engine, std::string_view text,
                 const std::vector<Tensor>& inputs) {
  expect_near(run(context, engine, inputs), reference(text, inputs));
}

TEST(GpuLate, SizesOfAnInputsValues) {
  const auto engine = gpu_engine(kLateNet);
  EXPECT_THAT(kernels_on_host(plan_of(*engine)), IsEmpty());
  ExecutionContext context(engine);
  for (const int64_t rows : {2, 5, 5, 0, 64, 1})
    expect_same(context, *engine, kLateNet, {random_f32({3}, 1), tensor_i64({rows, 3})});
}

// Steps before the selection are recorded, those behind it are not. Its sizes shrink and grow.
TEST(GpuLate, ASelectionAndWhatFollows) {
  const auto engine = gpu_engine(kMasked);
  const Plan& plan = plan_of(*engine);
  EXPECT_THAT(plan.steps, Contains(::testing::Field(&Step::kernel, "cuda.nonzero.groups")));
  EXPECT_GE(std::ranges::count_if(plan.slots,
                                  [&](const Slot& slot) { return is_late_on_device(plan, slot); }),
            6);
  ExecutionContext context(engine, {.threads = 2});
  for (const int64_t rows : {3, 14, 14, 14, 64, 3, 3, 25})
    for (uint32_t seed = 1; seed < 4; ++seed)
      expect_same(context, *engine, kMasked,
                  {random_f32({rows, 5}, seed), tensor_i64({seed}), tensor_i64({2})});
  const Tensor none = allocate_tensor(DataType::kF32, {4, 5}).tensor;
  expect_same(context, *engine, kMasked, {none, tensor_i64({0}), tensor_i64({0})});
  EXPECT_THAT(error_of([&] {
                static_cast<void>(run(context, *engine, {none, tensor_i64({3}), tensor_i64({0})}));
              }),
              HasSubstr("while running step \"best\""));
  expect_same(context, *engine, kMasked, {random_f32({4, 5}, 1), tensor_i64({1}), tensor_i64({0})});
}

TEST(GpuLate, StepsAreWatchedAndTimedOneByOne) {
  const auto engine = gpu_engine(kMasked);
  const DebugOptions debug{.synchronous_steps = true};
  ExecutionContext context(engine, {.debug = &debug});
  const std::vector<Tensor> inputs = {random_f32({9, 5}, 1), tensor_i64({2}), tensor_i64({1})};
  size_t seen = 0;
  observe(context, [&](const Observation& value) {
    seen += value.name == "values" && !value.step.empty() ? 1 : 0;
  });
  expect_same(context, *engine, kMasked, inputs);
  EXPECT_GE(seen, 1u);
  observe(context, {});
  EXPECT_FALSE(context.profile().empty());
}

TEST(GpuLate, Detections) {
  const auto engine = gpu_engine(kDetections);
  EXPECT_THAT(kernels_on_host(plan_of(*engine)), IsEmpty());
  ExecutionContext context(engine);
  const auto limits = [](int64_t most, float overlap) {
    return std::pair(Tensor::of<int64_t>(DataType::kI64, {}, std::vector<int64_t>{most}),
                     Tensor::of<float>(DataType::kF32, {}, std::vector<float>{overlap}));
  };
  for (uint32_t seed = 1; seed < 4; ++seed)
    for (const int64_t most : {10, 0, 100}) {
      const auto [count, overlap] = limits(most, 0.3F);
      expect_same(context, *engine, kDetections,
                  {random_f32({1, 40, 4}, seed), random_f32({1, 2, 40}, 7), count, overlap});
    }
  const auto [count, wrong] = limits(3, NAN);
  EXPECT_THAT(error_of([&] {
                static_cast<void>(
                    run(context, *engine,
                        {random_f32({1, 40, 4}, 1), random_f32({1, 2, 40}, 7), count, wrong}));
              }),
              HasSubstr("IoU threshold"));
}

// The place from which a late value is cut is computed on the device: its copy must have arrived
// before sizes are found from it.
TEST(GpuLate, AValueOfTheDeviceDecidesSizes) {
  constexpr std::string_view kCut = R"txt(
size N in 1..64 opt 8
graph cut(x: f32[N])
  found = NonZero(x)
  flat = Reshape(found, i64{-1})
  rows = Gather(x, flat) axis=0
  doubled = Pointwise(rows) program="(f32)->(f32) mul($0,2f32)"
  peak = ArgReduce(x) axis=0 largest=true keepdims=true
  rest = Slice(doubled, peak, i64{1000}, i64{0}, i64{1})
  y = Pointwise(rest) program="(f32)->(f32) add($0,1f32)"
  return y
)txt";
  const auto engine = gpu_engine(kCut);
  EXPECT_THAT(kernels_on_host(plan_of(*engine)), IsEmpty());
  ExecutionContext context(engine);
  for (const int64_t rows : {5, 64, 5, 17, 17, 17})
    for (uint32_t seed = 1; seed < 4; ++seed)
      expect_same(context, *engine, kCut, {random_f32({rows}, seed)});
}

TEST(GpuLate, ARangeFromWhereARunSays) {
  constexpr std::string_view kCounted = R"txt(
graph counted(start: f32[], limit: f32[], step: f32[], x: f32[4])
  r = Range(start, limit, step)
  column = Reshape(r, i64{-1,1})
  y = Pointwise(column, x) program="(f32,f32)->(f32) mul($0,$1)"
  return y
)txt";
  const auto engine = gpu_engine(kCounted);
  EXPECT_THAT(kernels_on_host(plan_of(*engine)), IsEmpty());
  ExecutionContext context(engine);
  const auto number = [](float value) {
    return Tensor::of<float>(DataType::kF32, {}, std::vector<float>{value});
  };
  for (const float limit : {7.0F, 1.0F, 90.0F, 7.0F})
    expect_same(context, *engine, kCounted,
                {number(0.5F), number(limit), number(0.7F), random_f32({4}, 1)});
}

// Late buffers are memory of the context, on the device as on the host.
TEST(GpuLate, MemoryIsCounted) {
  const auto engine = gpu_engine(kLateNet);
  ExecutionContext context(engine);
  run(context, *engine, {random_f32({3}, 1), tensor_i64({64, 3})});
  EXPECT_GE(EngineInternals::memory(context).late, 3 * 64 * 3 * sizeof(float));
}

}  // namespace
}  // namespace anneal::testing
