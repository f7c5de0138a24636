// Recurrent layers of whole engines: no step of them on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/engine/run/make_engine.h"
#include "anneal/tests/cuda/gpu_engine.h"

namespace anneal::testing {
namespace {

using ::testing::Contains;

// Two directions whose input's product is a launch of its own, then a GRU whose steps are launches.
constexpr std::string_view kSpeech = R"txt(
graph speech(x: f32[T,3,12], lengths: i32[3], h0: f32[2,3,20])
  const w: f32[2,80,12] = random(1)
  const r: f32[2,80,20] = random(2)
  const b: f32[2,160] = random(3)
  const v: f32[1,450,20] = random(4)
  const s: f32[1,450,150] = random(5)
  y, h, c = Recurrent(x, w, r, b, lengths, h0) direction=bidirectional
  f = Slice(y, i64{0}, i64{1}, i64{1}, i64{1})
  t = SizeTensor() elements=[T,3,20]
  z = Reshape(f, t)
  g, e = Recurrent(z, v, s) kind=gru
  return y as states, h as last, c as cells, g as words, e as end
)txt";

Tensor lengths(std::vector<int32_t> values) {
  return Tensor::of<int32_t>(DataType::kI32, {static_cast<int64_t>(values.size())}, values);
}

TEST(GpuRecurrent, RunsOnTheDeviceAtEachSize) {
  const auto engine = gpu_engine(kSpeech);
  std::vector<std::string> kernels;
  for (const Step& step : plan_of(*engine).steps) {
    kernels.push_back(step.kernel);
    EXPECT_FALSE(step.kernel.starts_with("cpu.")) << step.kernel;
  }
  EXPECT_THAT(kernels, Contains("cuda.recurrent.steps").Times(2));
  ExecutionContext context(engine);
  // The third run of a size replays its graph, with other lengths.
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    const auto of = [&](int64_t steps, std::vector<int32_t> numbers) {
      return std::vector<Tensor>{random_f32({steps, 3, 12}, seed), lengths(std::move(numbers)),
                                 random_f32({2, 3, 20}, seed + 9)};
    };
    const auto number = static_cast<int32_t>(seed);
    const std::vector<Tensor> five = of(5, {5, number, 0}), one = of(1, {1, number % 2, 1});
    expect_near(run(context, *engine, five), reference(kSpeech, five));
    expect_near(run(context, *engine, one), reference(kSpeech, one));
  }
}

// The CPU ends such a run with an error; a kernel cannot, and stays inside its tensors.
TEST(GpuRecurrent, LengthsBeyondTheStepsAreTheNearest) {
  const auto engine = gpu_engine(kSpeech);
  ExecutionContext context(engine);
  std::vector<Tensor> inputs = {random_f32({4, 3, 12}, 1), lengths({-7, 2, 1'000'000}),
                                random_f32({2, 3, 20}, 2)};
  const auto got = run(context, *engine, inputs);
  inputs[1] = lengths({0, 2, 4});
  expect_near(got, reference(kSpeech, inputs));
}

}  // namespace
}  // namespace anneal::testing
