// A network of 8-bit integers on a GPU: every layer on a kernel of the device, every result the
// bits of the CPU's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <set>

#include "anneal/engine/run/make_engine.h"
#include "anneal/tests/cuda/gpu_engine.h"

namespace anneal::testing {
namespace {

using ::testing::Contains;
using ::testing::IsSupersetOf;
using ::testing::Not;

// Of 3 channels; depthwise; of 12 and 16; a residual; a curve; each rounded to 8 bits by scales and
// zero points of its own. Each layer produces numbers beyond the range of 8 bits.
constexpr std::string_view kIntegerNet = R"txt(
graph integer_net(x: f32[2,3,9,7])
  const s_x: f32[] = {0.02}
  const z_x: u8[] = {121}
  const w1: i8[12,3,3,3] = random(1)
  const b1: i32[12,1,1] = random(2)
  const s1: f32[12,1,1] = {0.011,0.02,0.013,0.017,0.019,0.023,0.012,0.014,0.015,0.016,0.018,0.01}
  const w2: u8[12,1,3,3] = random(3)
  const z2: u8[12] = {4,2,0,9,8,1,3,255,5,6,7,2}
  const s2: f32[1,1] = {0.0301}
  const w3: i8[16,12,3,3] = random(4)
  const w4: i8[16,16,1,1] = random(5)
  const z4: i8[16] = {1,-2,3,-4,5,-6,7,-8,9,-10,11,-128,127,0,1,2}
  const w5: i8[256,20] = random(6)
  const z5: i8[20] = {0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0}
  const none: i8[] = {0}
  const half: i8[] = {-7}
  const s_y: f32[20] = {1,2,3,4,5,6,7,8,9,10,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1.1}
  q = Quantize(x, s_x, z_x) dtype=u8
  c1 = Conv(q, w1, z_x, none) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  r1 = Pointwise(c1, b1, s1) program="(i32,i32,f32)->(u8) saturate_u8(add(rint(mul(f32(add($0,$1)),$2)),100f32))"
  c2 = Conv(r1, w2, z_x, z2) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1] groups=12
  r2 = Pointwise(c2, s2) program="(i32,f32)->(i8) saturate_i8(rint(mul(f32($0),$1)))"
  c3 = Conv(r2, w3, half, none) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  r3 = Pointwise(c3) program="(i32)->(u8) saturate_u8(add(rint(mul(f32($0),0.031f32)),128f32))"
  c4 = Conv(r3, w4, z_x, z4) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  r4 = Pointwise(c4, r3) program="(i32,u8)->(i8) saturate_i8(rint(add(mul(f32($0),0.0057f32),mul(f32($1),0.25f32))))"
  p = Pool(r4) kind=max kernel=[2,2] strides=[2,2] pads_begin=[0,0] pads_end=[0,1] dilations=[1,1]
  t = Pointwise(p) program="(i8)->(u8) saturate_u8(rint(mul(sigmoid(mul(f32($0),0.05f32)),255f32)))"
  f = Reshape(t, i64{2,256})
  m = MatMul(f, w5, z_x, z5)
  d = Dequantize(m, s_y) axis=1
  return t as curve, r3 as middle, m as sums, d as y
)txt";

std::vector<std::byte> bytes_of(const ConstTensorView& view) {
  const auto size = static_cast<int64_t>(size_of(view.dtype));
  std::vector<std::byte> bytes(static_cast<size_t>(count(view.dims) * size));
  for (int64_t i = 0; i < count(view.dims); ++i) {
    int64_t rest = i, at = 0;
    for (int axis = view.dims.rank() - 1; axis >= 0; --axis) {
      at += rest % view.dims[axis] * view.strides[axis];
      rest /= view.dims[axis];
    }
    std::memcpy(bytes.data() + i * size, view.data + at * size, static_cast<size_t>(size));
  }
  return bytes;
}

std::vector<std::vector<std::byte>> outputs_of(ExecutionContext& context, const Engine& engine,
                                               const Tensor& x) {
  context.set_input("x", x.view());
  context.run();
  std::vector<std::vector<std::byte>> outputs;
  for (const TensorInfo& port : engine.outputs())
    outputs.push_back(bytes_of(context.output(port.name)));
  return outputs;
}

// Of layers as they stand, and fused by the passes.
class GpuIntegers : public ::testing::TestWithParam<bool> {};

TEST_P(GpuIntegers, EveryLayerRunsOnTheDeviceWithTheBitsOfTheCpu) {
  GraphBuildOptions options;
  options.targets = {test_target()};
  options.allow_fallback = false;
  if (!GetParam()) options.passes.only = {"remove_identity"};
  const auto engine = load_on(build_text(kIntegerNet, options), test_device());
  const Plan& plan = plan_of(*engine);
  std::vector<std::string> kernels;
  for (const Step& step : plan.steps) {
    kernels.push_back(step.kernel);
    EXPECT_NE(step.device + 1u, plan.devices.size()) << step.kernel << " runs on the CPU";
  }
  EXPECT_THAT(kernels, IsSupersetOf({"cuda.conv.mma", "cuda.conv.depthwise", "cuda.pool.window",
                                     "cuda.pointwise.table", "cuda.matmul.mma"}));
  EXPECT_THAT(kernels, Not(Contains("cuda.conv.direct")));
  if (!GetParam()) {
    EXPECT_THAT(kernels, IsSupersetOf({"cuda.quantize.strided", "cuda.dequantize.strided"}));
  }

  const auto on_cpu = engine_of(build_text(kIntegerNet));
  ExecutionContext context(engine), cpu_context(on_cpu);
  const Graph graph = parse_graph(kIntegerNet);
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    const Tensor x = random_f32({2, 3, 9, 7}, seed);
    const auto got = outputs_of(context, *engine, x);
    const auto cpu = outputs_of(cpu_context, *on_cpu, x);
    const std::vector<Tensor> inputs = {x};
    const auto wanted = evaluate(graph, inputs);
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      const auto& name = graph.outputs()[i].name;
      EXPECT_EQ(got[i], bytes_of(wanted[i].view())) << name;
      EXPECT_EQ(cpu[i], bytes_of(wanted[i].view())) << name;
      const std::set<std::byte> distinct(got[i].begin(), got[i].end());
      EXPECT_GT(distinct.size(), 20u) << name;  // not all at the end of the range
    }
  }
}

// A quarter of the averages of four lie between two integers, where the order of a sum of floats
// would decide.
TEST(GpuIntegerAverages, AreTheBitsOfTheCpu) {
  constexpr std::string_view kNet = R"txt(
graph averages(x: f32[2,5,17,19])
  const s: f32[] = {0.1}
  const z: u8[] = {121}
  q = Quantize(x, s, z) dtype=u8
  d = Dequantize(q, s, z)
  a = Pool(d) kind=average kernel=[2,2] strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  b = Pool(d) kind=average kernel=[3,3] strides=[2,2] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  qa = Quantize(a, s, z) dtype=u8
  qb = Quantize(b, s, z) dtype=u8
  return qa as even, qb as padded
)txt";
  const auto engine = gpu_engine(kNet);
  const auto on_cpu = engine_of(build_text(kNet));
  GraphBuildOptions baseline;
  baseline.targets = {"cpu:baseline"};
  const auto on_baseline = make_engine(build_text(kNet, baseline), {.device = "cpu:baseline"});
  ExecutionContext context(engine), cpu_context(on_cpu), baseline_context(on_baseline);
  const Tensor x = random_f32({2, 5, 17, 19}, 1);
  const auto got = outputs_of(context, *engine, x);
  EXPECT_EQ(got, outputs_of(cpu_context, *on_cpu, x));
  EXPECT_EQ(got, outputs_of(baseline_context, *on_baseline, x));
  EXPECT_GT(std::set<std::byte>(got[0].begin(), got[0].end()).size(), 20u);
}

INSTANTIATE_TEST_SUITE_P(, GpuIntegers, ::testing::Bool(),
                         [](const auto& param) { return param.param ? "fused" : "as_they_stand"; });

}  // namespace
}  // namespace anneal::testing
