// Engines with 16 bits from f32 models: the CPU's, which rounds f32 where a GPU would store 16
// bits, stands for the GPU's.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/float16.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/tests/cuda/gpu_engine.h"

namespace anneal::testing {
namespace {

struct HalfCase {
  std::string name, text;
  // Of tensors, as a calibration table has them: largest magnitudes.
  std::map<std::string, float> ranges = {};
};
void PrintTo(const HalfCase& each, std::ostream* out) { *out << each.name; }

// The identity as weights, so that a port of f32 shows what is stored in 16 bits before it.
std::string eye(int size, std::string_view dims) {
  std::string values;
  for (int i = 0; i < size * size; ++i)
    values += fmt::format("{}{}", i == 0 ? "" : ", ", i % (size + 1) == 0 ? 1 : 0);
  return fmt::format("const eye: f32[{}] = {{{}}}", dims, values);
}

std::vector<HalfCase> cases() {
  const std::string conv = "strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]";
  const std::string same = "strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]";
  const std::string pool = "kernel=[2,2] strides=[2,2] pads_begin=[0,0] pads_end=[0,0]";
  const std::string relu = R"txt(program="(f32,f32)->(f32) max(add($0,$1),0f32)")txt";
  return {
      {"conv_and_residual",
       fmt::format(R"txt(
graph conv_and_residual(x: f32[1,8,9,7])
  const w: f32[16,8,3,3] = random(1)
  const b: f32[16,1,1] = random(2)
  const v: f32[16,16,3,3] = random(3)
  {eye}
  c = Conv(x, w) {same}
  r = Pointwise(c, b) {relu}
  d = Conv(r, v) {same}
  s = Pointwise(d, r) {relu}
  y = Conv(s, eye) {conv}
  return y
)txt",
                   fmt::arg("eye", eye(16, "16,16,1,1")), fmt::arg("same", same),
                   fmt::arg("relu", relu), fmt::arg("conv", conv))},
      {"depthwise", fmt::format(R"txt(
graph depthwise(x: f32[2,12,9,7])
  const w: f32[12,1,3,3] = random(1)
  const b: f32[12,1,1] = random(2)
  const v: f32[16,12,1,1] = random(3)
  const u: f32[16,1,5,5] = random(4)
  {eye}
  c = Conv(x, w) {same} groups=12
  r = Pointwise(c, b) {relu}
  d = Conv(r, v) {conv}
  k = Pointwise(d) program="(f32)->(f32) min(max($0,0f32),6f32)"
  e = Conv(k, u) strides=[2,2] pads_begin=[2,2] pads_end=[2,2] dilations=[1,1] groups=16
  y = Conv(e, eye) {conv}
  return y
)txt",
                                fmt::arg("eye", eye(16, "16,16,1,1")), fmt::arg("same", same),
                                fmt::arg("relu", relu), fmt::arg("conv", conv))},
      {"norm_and_softmax",
       fmt::format(R"txt(
graph norm_and_softmax(x: f32[5,24])
  const w: f32[24,32] = random(1)
  const scale: f32[32] = random(2)
  const v: f32[32,16] = random(3)
  {}
  a = MatMul(x, w)
  n = Normalize(a) axes=[1]
  m = Pointwise(n, scale) program="(f32,f32)->(f32) mul($0,$1)"
  s = MatMul(m, v)
  p = Softmax(s) axis=0
  y = MatMul(p, eye)
  return y
)txt",
                   eye(16, "16,16")),
       {{"x", 4}, {"a", 30}, {"n", 5}, {"m", 12}, {"s", 40}, {"p", 1}}},
      {"attention", fmt::format(R"txt(
graph attention(x: f32[2,10,16])
  const w_q: f32[16,16] = random(1)
  const w_k: f32[16,16] = random(2)
  const w_v: f32[16,16] = random(3)
  {}
  q = MatMul(x, w_q)
  k = MatMul(x, w_k)
  v = MatMul(x, w_v)
  q4 = Reshape(q, i64{{2,10,2,8}})
  k4 = Reshape(k, i64{{2,10,2,8}})
  v4 = Reshape(v, i64{{2,10,2,8}})
  q_heads = Transpose(q4) permutation=[0,2,1,3]
  k_heads = Transpose(k4) permutation=[0,2,3,1]
  v_heads = Transpose(v4) permutation=[0,2,1,3]
  s = MatMul(q_heads, k_heads)
  t = Pointwise(s) program="(f32)->(f32) mul($0,0.1f32)"
  p = Softmax(t) axis=3
  a = MatMul(p, v_heads)
  b = Transpose(a) permutation=[0,2,1,3]
  c = Reshape(b, i64{{2,10,16}})
  y = MatMul(c, eye)
  return y
)txt",
                                eye(16, "16,16"))},
      {"concat", fmt::format(R"txt(
graph concat(x: f32[1,16,9,7])
  const w: f32[8,16,1,1] = random(1)
  const v: f32[8,16,3,3] = random(2)
  const u: f32[32,32,1,1] = random(3)
  {}
  a = Conv(x, w) {conv}
  b = Conv(x, v) {same}
  k = Concat(a, b, x) axis=1
  c = Conv(k, u) {conv}
  r = Pointwise(c) program="(f32)->(f32) tanh(mul($0,0.1f32))"
  y = Conv(r, eye) {conv}
  return y
)txt",
                             eye(32, "32,32,1,1"), fmt::arg("same", same), fmt::arg("conv", conv))},
      {"pooling", fmt::format(R"txt(
graph pooling(x: f32[1,8,12,12])
  const w: f32[16,8,3,3] = random(1)
  const v: f32[16,16,1,1] = random(2)
  {}
  a = Conv(x, w) {same}
  m = Pool(a) kind=max {pool} dilations=[1,1]
  b = Conv(m, v) {conv}
  n = Pool(b) kind=average {pool} dilations=[1,1]
  y = Conv(n, eye) {conv}
  return y
)txt",
                              eye(16, "16,16,1,1"), fmt::arg("same", same), fmt::arg("conv", conv),
                              fmt::arg("pool", pool))},
  };
}

EngineFile build_case(const HalfCase& each, DataType half, const std::string& target) {
  GraphBuildOptions options;
  options.targets = {target};
  options.allow_fallback = false;
  options.passes.precision.types = {half == DataType::kF16 ? Precision::kF16 : Precision::kBF16};
  if (!each.ranges.empty()) {
    CalibrationTable table;
    for (const auto& [tensor, most] : each.ranges)
      table.tensors[tensor] = {-most, most, -most, most, "by hand"};
    options.passes.precision.ranges = std::make_shared<const CalibrationTable>(std::move(table));
  }
  return build_text(each.text, options);
}

std::vector<float> run_on(const EngineFile& file, const std::string& device, const Tensor& x) {
  const auto engine = load_on(file, device);
  ExecutionContext context(engine);
  return run(context, *engine, {x}).at("y");
}

// The values that steps give with 16 bits as their types, but for copies in another layout.
std::set<std::string> of_16_bits(const Plan& plan) {
  std::set<std::string> names;
  for (const Step& step : plan.steps)
    for (const uint32_t output : step.outputs)
      if (is_half(plan.slots[output].type.dtype)) names.insert(plan.slots[output].name);
  std::erase_if(names, [](const std::string& name) { return name.ends_with("/layout"); });
  return names;
}

bool moves_only(const Step& step) {
  const auto* pool = std::get_if<Pool>(&step.op);
  return step.epilogues.empty() &&
         ((pool && pool->kind == PoolKind::kMax) || std::holds_alternative<Transpose>(step.op) ||
          std::holds_alternative<Concat>(step.op) || std::holds_alternative<Reshape>(step.op));
}

// The values of f32 that steps round to 16 bits, or move from such.
std::set<std::string> rounded(const Plan& plan) {
  std::set<std::string> names;
  const auto slot_name = [&](uint32_t slot) { return plan.slots[slot].name; };
  for (const Step& step : plan.steps) {
    if (moves_only(step) && names.contains(slot_name(step.inputs[0])))
      names.insert(slot_name(step.outputs[0]));
    std::vector<Program> programs = step.epilogues;
    if (const auto* pointwise = std::get_if<Pointwise>(&step.op)) programs = {pointwise->program};
    size_t output = 0;
    for (const Program& program : programs)
      for (const Program::Result& result : program.results()) {
        const Instruction& last = program.code()[result.reg];
        if (last.opcode == Opcode::kRound) names.insert(slot_name(step.outputs[output]));
        ++output;
      }
  }
  return names;
}

float unit_in_the_last_place(float magnitude, DataType half) {
  const int digits = half == DataType::kF16 ? 10 : 7;
  return std::ldexp(1.0f, std::ilogb(magnitude) - digits);
}

class GpuHalf : public ::testing::TestWithParam<std::tuple<HalfCase, DataType>> {
 protected:
  const HalfCase& given() const { return std::get<0>(GetParam()); }
  DataType half() const { return std::get<1>(GetParam()); }
};

TEST_P(GpuHalf, TheCpuRoundsWhatTheGpuStoresIn16Bits) {
  const EngineFile gpu = build_case(given(), half(), test_target());
  const EngineFile cpu = build_case(given(), half(), "cpu:baseline");
  EXPECT_EQ(rounded(cpu.plans[0]), of_16_bits(gpu.plans[0]));
  EXPECT_GE(of_16_bits(gpu.plans[0]).size(), 3u);
}

class GpuBf16 : public ::testing::TestWithParam<HalfCase> {};

TEST_P(GpuBf16, ACpuThatComputesInItStoresWhatTheGpuDoes) {
  if (!cpu_computes_bf16(*cpu_backend().open("cpu"))) GTEST_SKIP() << "this CPU computes in f32";
  const EngineFile gpu = build_case(GetParam(), DataType::kBF16, test_target());
  const EngineFile cpu = build_case(GetParam(), DataType::kBF16, "cpu");
  EXPECT_EQ(of_16_bits(cpu.plans[0]), of_16_bits(gpu.plans[0]));
}

// Both add up in f32, in different orders: sums differ by some 2^-24 of what was added up. Where
// such a sum lies within that of the middle between two numbers of 16 bits, the two are rounded
// apart, by a unit in the last place; one sum in some 2^10 does (bf16: 2^13), and each that reads
// such a number is moved by a share of a unit, so that a few in a hundred of the next layer's
// differ. A unit, where terms cancel out, is that of the terms: of a sixteenth of the largest
// result.
TEST_P(GpuHalf, ResultsAreEqualButForAUnitNowAndThen) {
  const Graph graph = parse_graph(given().text);
  Dims dims;
  for (const Size size : graph.value(graph.inputs()[0]).type().shape) dims.push_back(size.value());
  const EngineFile gpu_file = build_case(given(), half(), test_target());
  const EngineFile cpu_file = build_case(given(), half(), "cpu");
  for (uint32_t seed = 1; seed <= 2; ++seed) {
    const Tensor x = random_f32(dims, seed);
    const std::vector<float> gpu = run_on(gpu_file, test_device(), x);
    const std::vector<float> cpu = run_on(cpu_file, "cpu", x);
    ASSERT_EQ(gpu.size(), cpu.size());
    float most = 0;
    for (const float value : cpu) most = std::max(most, std::abs(value));
    size_t differ = 0;
    for (size_t i = 0; i < cpu.size(); ++i) {
      differ += gpu[i] != cpu[i];
      const float magnitude = std::max({std::abs(cpu[i]), std::abs(gpu[i]), most / 16});
      EXPECT_NEAR(gpu[i], cpu[i], unit_in_the_last_place(magnitude, half())) << i;
    }
    EXPECT_LE(static_cast<double>(differ), 0.02 * static_cast<double>(cpu.size()));
  }
}

INSTANTIATE_TEST_SUITE_P(, GpuHalf,
                         ::testing::Combine(::testing::ValuesIn(cases()),
                                            ::testing::Values(DataType::kF16, DataType::kBF16)),
                         [](const auto& param) {
                           return fmt::format("{}_{}", std::get<0>(param.param).name,
                                              to_string(std::get<1>(param.param)));
                         });
INSTANTIATE_TEST_SUITE_P(, GpuBf16, ::testing::ValuesIn(cases()),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace anneal::testing
