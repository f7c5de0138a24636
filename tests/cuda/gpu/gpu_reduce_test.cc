// Reductions of rows whose length the build does not know.
#include <gtest/gtest.h>

#include <vector>

#include "anneal/tests/cuda/gpu_engine.h"

namespace anneal::testing {
namespace {

constexpr float kValue = 1.4285001F;

Tensor equal_numbers(const Dims& dims) {
  return Tensor::of<float>(DataType::kF32, dims,
                           std::vector<float>(static_cast<size_t>(count(dims)), kValue));
}

// One thread would add thousands of equal numbers one by one, and round each sum in the same
// direction.
void expect_mean(std::string_view text, const std::vector<Dims>& dims) {
  const auto engine = gpu_engine(text);
  ExecutionContext context(engine);
  std::vector<Tensor> inputs;
  for (const Dims& each : dims) inputs.push_back(equal_numbers(each));
  const auto got = run(context, *engine, inputs);
  for (const float mean : got.at("y")) EXPECT_NEAR(mean, kValue, 2e-6 * kValue) << text;
}

TEST(GpuReduce, LongRowsOfAnUnknownLengthAreSharedByThreads) {
  expect_mean(
      "graph open(x: f32[2,L])\n"
      "  y = Reduce(x, i64{1}) kind=mean keepdims=false\n"
      "  return y\n",
      {{2, 3000}});
  expect_mean(
      "graph sum_of_sizes(p: f32[2,P], x: f32[2,L])\n"
      "  a = Concat(p, x) axis=1\n"
      "  y = Reduce(a, i64{1}) kind=mean keepdims=false\n"
      "  return y\n",
      {{2, 5}, {2, 3000}});
  expect_mean(
      "size L in 1..4000 opt 2\n"
      "graph two_axes(x: f32[2,L,4])\n"
      "  y = Reduce(x, i64{1,2}) kind=mean keepdims=false\n"
      "  return y\n",
      {{2, 900, 4}});
}

}  // namespace
}  // namespace anneal::testing
