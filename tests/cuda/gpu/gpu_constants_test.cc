// Weights that an engine stores as kernels of a GPU read them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "anneal/engine/plan_check.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/tests/cuda/gpu_engine.h"
#include "anneal/tests/error_of.h"

namespace anneal::testing {
namespace {

using ::testing::HasSubstr;

// Two convolutions read w, one without conversion; a depthwise one reads d.
constexpr std::string_view kNet = R"txt(
graph stored(x: f32[2,16,9,7])
  const w: f16[16,16,3,3] = random(1)
  const d: f16[16,1,3,3] = random(2)
  a = Pointwise(x) program="(f32)->(f16) $0"
  c = Conv(a, w) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  e = Conv(c, d) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1] groups=16
  f = Conv(e, w) strides=[2,2] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  y = Pointwise(f) program="(f16)->(f32) mul($0,0.001f32)"
  z = Pointwise(w) program="(f16)->(f32) $0"
  return y, z
)txt";

EngineFile build_for_device(const std::vector<std::string>& others = {}) {
  GraphBuildOptions options;
  options.targets = {test_target()};
  options.targets.insert(options.targets.end(), others.begin(), others.end());
  options.passes.only = {"remove_identity"};  // z stays a layer
  return build_text(kNet, options);
}

const Slot& weights_of(const Plan& plan, const std::string& step) {
  for (const Step& each : plan.steps)
    if (each.name == step) return plan.slots[each.inputs[1]];
  throw std::runtime_error("no step " + step);
}

TEST(GpuConstants, LieAsTheirKernelsReadThem) {
  const EngineFile file = build_for_device({"cpu"});
  const Plan& plan = file.plans[0];
  const Slot &c = weights_of(plan, "c"), &e = weights_of(plan, "e"), &f = weights_of(plan, "f");
  EXPECT_EQ(c.strides, shape_of(Dims{144, 1, 48, 16}));
  EXPECT_EQ(f.offset, c.offset);
  EXPECT_EQ(e.strides, shape_of(Dims{1, 144, 48, 16}));
  EXPECT_EQ(e.type.shape, shape_of(Dims{16, 1, 3, 3}));
  // w twice, and d twice, for the CPU reads them row-major.
  EXPECT_EQ(file.weights.size(), 4u);
  const Slot& on_cpu = weights_of(file.plans[1], "c");
  EXPECT_EQ(on_cpu.strides, shape_of(Dims{144, 9, 3, 1}));
  const Tensor &w = file.weights[on_cpu.offset], &stored = file.weights[c.offset];
  EXPECT_EQ(stored.dims(), Dims{2304});
  for (size_t k = 0; k < 16; ++k)
    for (size_t channel = 0; channel < 16; ++channel)
      for (size_t tap = 0; tap < 9; ++tap)
        ASSERT_EQ(stored.as<uint16_t>()[(k * 9 + tap) * 16 + channel],
                  w.as<uint16_t>()[(k * 16 + channel) * 9 + tap]);
  EXPECT_THAT(to_string(plan), HasSubstr(", strides [144,1,48,16]\n"));
  EXPECT_THAT(to_string(plan),
              HasSubstr("\"w\" is stored with strides [144,1,48,16] for cuda.conv"));
}

TEST(GpuConstants, SurviveTheFileAndGiveWhatTheReferenceGives) {
  const auto bytes = std::make_shared<std::vector<std::byte>>(save(build_for_device()));
  const EngineFile loaded = load_engine_file(*bytes, bytes);
  EXPECT_EQ(save(loaded), *bytes);
  const auto engine = make_engine(load_engine_file(*bytes, bytes), {.device = test_device()});
  EXPECT_THAT(engine->load_warnings(), ::testing::IsEmpty());
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = {random_f32({2, 16, 9, 7}, 1)};
  const auto got = run(context, *engine, inputs), wanted = reference(kNet, inputs);
  for (const auto& [name, values] : wanted)
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(got.at(name)[i], values[i], 4e-3 * (1 + std::abs(values[i]))) << name << i;
}

// Pixels of three channels have places for four, which one copy fills.
TEST(GpuConstants, APictureIsReadByVectors) {
  constexpr std::string_view kPicture = R"txt(
graph picture(x: f32[2,3,13,15])
  const w: f16[16,3,7,7] = random(1)
  a = Pointwise(x) program="(f32)->(f16) $0"
  c = Conv(a, w) strides=[2,2] pads_begin=[3,3] pads_end=[3,3] dilations=[1,1]
  y = Pointwise(c) program="(f16)->(f32) $0"
  return y
)txt";
  const EngineFile file = build_for(kPicture, {test_target()});
  const Plan& plan = file.plans[0];
  const auto conv = std::ranges::find(plan.steps, "cuda.conv.mma", &Step::kernel);
  ASSERT_NE(conv, plan.steps.end());
  EXPECT_EQ(plan.slots[conv->inputs[0]].strides, shape_of(Dims{780, 1, 60, 4}));
  EXPECT_EQ(plan.slots[conv->inputs[1]].strides, shape_of(Dims{196, 1, 28, 4}));
  const auto engine = load_on(file, test_device());
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = {random_f32({2, 3, 13, 15}, 1)};
  const auto got = run(context, *engine, inputs), wanted = reference(kPicture, inputs);
  for (size_t i = 0; i < wanted.at("y").size(); ++i)
    ASSERT_NEAR(got.at("y")[i], wanted.at("y")[i], 1e-2 * (1 + std::abs(wanted.at("y")[i]))) << i;
}

TEST(GpuConstants, AreRefusedWhereStridesReachBeyondThem) {
  const auto refusal = [](auto change) {
    EngineFile file = build_for_device();
    Plan& plan = file.plans[0];
    for (Slot& slot : plan.slots)
      if (slot.storage == Storage::kWeight && !is_row_major_weight(slot, file.weights[slot.offset]))
        change(slot);
    return error_of([&] { check_plan(plan, file.weights); });
  };
  EXPECT_EQ(refusal([](Slot&) {}), "");
  EXPECT_THAT(refusal([](Slot& slot) { slot.strides[0] = slot.strides[0].value() + 1; }),
              HasSubstr("differ in type"));
  EXPECT_THAT(refusal([](Slot& slot) { slot.strides[3] = 1 << 20; }), HasSubstr("differ in type"));
  EXPECT_THAT(refusal([](Slot& slot) { slot.type.dtype = DataType::kI8; }),
              HasSubstr("differ in type"));
}

}  // namespace
}  // namespace anneal::testing
