// Reductions of rows whose length the build does not know.
#include <gtest/gtest.h>

#include <vector>

#include "anneal/tests/cuda/gpu_engine.h"

namespace anneal::testing {
namespace {

// One thread would add 3000 equal numbers one by one, and round each sum in the same direction.
TEST(GpuReduce, LongRowsOfAnUnknownLengthAreSharedByThreads) {
  constexpr std::string_view kMean = R"txt(
graph mean(x: f32[2,L])
  y = Reduce(x, i64{1}) kind=mean keepdims=false
  return y
)txt";
  const auto engine = gpu_engine(kMean);
  ExecutionContext context(engine);
  const float value = 1.4285001F;
  const Tensor x = Tensor::of<float>(DataType::kF32, {2, 3000}, std::vector<float>(6000, value));
  const auto got = run(context, *engine, {x});
  for (const float mean : got.at("y")) EXPECT_NEAR(mean, value, 2e-6 * value);
}

}  // namespace
}  // namespace anneal::testing
