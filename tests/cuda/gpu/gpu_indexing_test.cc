// Gathers, scatters and ranges of whole engines: no step of them on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/engine/run/make_engine.h"
#include "anneal/tests/cuda/gpu_engine.h"

namespace anneal::testing {
namespace {

using ::testing::Contains;
using ::testing::IsSupersetOf;
using ::testing::Not;

// An embedding with an epilogue, its rows added up by bins, the last of several replaced in turn,
// and positions of open number.
constexpr std::string_view kWords = R"txt(
graph words(ids: i64[N], bins: i64[N,1], x: f32[N,16])
  const table: f32[30,16] = random(1)
  const base: f32[9,16] = random(2)
  e = Gather(table, ids) axis=0
  s = Pointwise(e, x) program="(f32,f32)->(f32) add($0,$1)"
  y = ScatterND(base, bins, s) reduction=add
  c = Expand(bins, i64{1,16})
  z = ScatterElements(base, c, s) axis=0
  g = GatherElements(s, c) axis=1
  h = GatherND(z, bins)
  n = SizeTensor() elements=[N] scalar=true
  r = Range(i64[]{0}, n, i64[]{1})
  f = Pointwise(r) program="(i64)->(f32) f32($0)"
  return s as words, y as sums, z as last, g as columns, h as chosen, f as positions
)txt";

Tensor column(std::vector<int64_t> values) {
  return Tensor::of<int64_t>(DataType::kI64, {static_cast<int64_t>(values.size()), 1}, values);
}

TEST(GpuIndexing, RunsOnTheDeviceAtEachSize) {
  const auto engine = gpu_engine(kWords);
  std::vector<std::string> kernels;
  for (const Step& step : plan_of(*engine).steps) {
    kernels.push_back(step.kernel);
    EXPECT_FALSE(step.kernel.starts_with("cpu.")) << step.kernel;
  }
  EXPECT_THAT(kernels, IsSupersetOf({"cuda.gather.indexed", "cuda.gather_elements.indexed",
                                     "cuda.gather_nd.indexed", "cuda.scatter_elements.lines",
                                     "cuda.scatter_nd.lines", "cuda.range.strided"}));
  ExecutionContext context(engine);
  // The third run of a size replays its graph, with other indices.
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    const int64_t shift = seed;
    const std::vector<Tensor> five = {tensor_i64({29, -30, 7 + shift, 7, -1}),
                                      column({3, -9, 3, 8 - shift, -6}), random_f32({5, 16}, seed)};
    expect_near(run(context, *engine, five), reference(kWords, five));
    const std::vector<Tensor> two = {tensor_i64({shift, -shift}), column({-2, 7}),
                                     random_f32({2, 16}, 9 + seed)};
    expect_near(run(context, *engine, two), reference(kWords, two));
  }
}

// Integers that only decide sizes are wanted on the host.
TEST(GpuIndexing, OfSizesRunsOnTheCpu) {
  constexpr std::string_view text = R"txt(
graph sizes(x: f32[N,6], which: i64[1])
  s = ShapeOf(x) start=0 end=2
  n = Gather(s, which) axis=0
  t = Concat(n, i64{-1}) axis=0
  y = Reshape(x, t)
  return y
)txt";
  const auto engine = gpu_engine(text);
  std::vector<std::string> kernels;
  for (const Step& step : plan_of(*engine).steps) kernels.push_back(step.kernel);
  EXPECT_THAT(kernels, Not(Contains("cuda.gather.indexed")));
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = {random_f32({4, 6}, 1), tensor_i64({1})};
  EXPECT_EQ(run(context, *engine, inputs), reference(text, inputs));
}

// A requirement of sizes is checked on the host, and nothing is copied for it.
TEST(GpuIndexing, OfRequiredSizesRunsOnTheCpu) {
  constexpr std::string_view text = R"txt(
graph required(x: f32[N,6])
  s = ShapeOf(x) start=0 end=1
  c = Pointwise(s) program="(i64)->(bool) lt($0,9i64)"
  ok = Require(c)
  y = Pointwise(x) program="(f32)->(f32) neg($0)"
  return y
)txt";
  const auto engine = gpu_engine(text);
  std::vector<std::string> kernels;
  for (const Step& step : plan_of(*engine).steps) kernels.push_back(step.kernel);
  EXPECT_THAT(kernels, Contains("cpu.require.reference"));
  EXPECT_THAT(kernels, Contains("transfer").Times(2)) << "x, and y";
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = {random_f32({4, 6}, 1)};
  EXPECT_EQ(run(context, *engine, inputs), reference(text, inputs));
}

}  // namespace
}  // namespace anneal::testing
