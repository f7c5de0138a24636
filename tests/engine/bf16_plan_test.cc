// Plans of bf16: made where the CPU computes in it, run wherever they are loaded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "anneal/engine/run/make_engine.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/tests/engine/build_and_run.h"

namespace anneal::testing {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Not;

// An image, windows, groups, a pool, and products of two computed operands.
constexpr std::string_view kNet = R"txt(
graph net(x: f32[2,3,17,15])
  const w: f32[24,3,3,3] = random(1)
  const d: f32[24,1,3,3] = random(2)
  const v: f32[9,24,1,1] = random(3)
  const m: f32[72,40] = random(4)
  c = Conv(x, w) strides=[2,2] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  r = Pointwise(c) program="(f32)->(f32) max($0,0f32)"
  g = Conv(r, d) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1] groups=24
  p = Conv(g, v) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  l = Reshape(p, i64{2,9,72})
  q = MatMul(l, m)
  s = MatMul(q, q) transpose_b=true
  return s as y, q
)txt";

EngineFile built(const std::string& target) {
  GraphBuildOptions options;
  options.targets = {target};
  options.passes.precision.types = {Precision::kBF16};
  return build_text(kNet, options);
}

std::vector<DataType> slot_types(const EngineFile& file) {
  std::vector<DataType> types;
  for (const Slot& slot : file.plans.at(0).slots) types.push_back(slot.type.dtype);
  return types;
}

bool computes_bf16(const std::string& target) {
  return cpu_computes_bf16(*cpu_backend().open(target));
}

// Each value within some last places of bf16 of the largest: sums lose what their terms do.
void expect_near_f32(const Engine& engine, ExecutionContext& context) {
  const std::vector<Tensor> inputs = {random_f32({2, 3, 17, 15}, 5)};
  const auto got = run(context, engine, inputs);
  for (const auto& [name, values] : reference(kNet, inputs)) {
    float most = 0;
    for (const float value : values) most = std::max(most, std::abs(value));
    ASSERT_EQ(got.at(name).size(), values.size());
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(got.at(name)[i], values[i], most / 32) << name << " at " << i;
  }
}

TEST(Bf16Plan, StoresBf16WhereTheTargetComputesInIt) {
  EXPECT_FALSE(computes_bf16("cpu:baseline"));
  EXPECT_THAT(slot_types(built("cpu:baseline")), Not(Contains(DataType::kBF16)));
  const bool has = computes_bf16("cpu");
  EXPECT_EQ(std::ranges::count(slot_types(built("cpu")), DataType::kBF16) > 0, has);
}

TEST(Bf16Plan, GivesWhatF32Gives) {
  const auto engine = engine_of(built("cpu"));
  EXPECT_THAT(engine->load_warnings(), IsEmpty());
  ExecutionContext context(engine);
  expect_near_f32(*engine, context);
}

// Its kernels compute in f32 and round.
TEST(Bf16Plan, RunsWhereNothingComputesInBf16) {
  const EngineFile file = built("cpu");
  const auto bytes = std::make_shared<std::vector<std::byte>>(save(file));
  for (const char* device : {"cpu:baseline", "cpu:avx2", "cpu:avx512"}) {
    SCOPED_TRACE(device);
    std::shared_ptr<const Engine> engine;
    try {
      engine = make_engine(load_engine_file(*bytes, bytes), {.device = device});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDevice) << error.what();
      continue;  // this machine has less
    }
    ExecutionContext context(engine);
    expect_near_f32(*engine, context);
  }
}

TEST(Bf16Plan, EachTargetGetsTheTypesItComputesIn) {
  if (!computes_bf16("cpu")) GTEST_SKIP() << "this CPU does not compute in bf16";
  GraphBuildOptions options;
  options.targets = {"cpu:baseline", "cpu"};
  options.passes.precision.types = {Precision::kBF16};
  const EngineFile file = build_text(kNet, options);
  ASSERT_EQ(file.plans.size(), 2);
  const auto has_bf16 = [](const Plan& plan) {
    return std::ranges::any_of(plan.slots,
                               [](const Slot& slot) { return slot.type.dtype == DataType::kBF16; });
  };
  EXPECT_FALSE(has_bf16(file.plans[0]));
  EXPECT_TRUE(has_bf16(file.plans[1]));
}

}  // namespace
}  // namespace anneal::testing
