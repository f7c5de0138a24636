// A plan that names oneDNN's kernels loads and runs where there is no oneDNN.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "anneal/core/isa.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/kernels/cpu/onednn/onednn.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/engine/graphs.h"

namespace anneal::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kTwoConvolutions = R"txt(
graph two_convolutions(x: f32[1,3,9,7])
  const w: f32[8,3,3,3] = random(1)
  const v: f32[5,8,3,3] = random(2)
  c = Conv(x, w) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  r = Pointwise(c) program="(f32)->(f32) max($0,0f32)"
  d = Conv(r, v) strides=[2,2] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  return d as y
)txt";

// As if it had been built where oneDNN takes every convolution and product it can.
EngineFile built_with_onednn(std::string_view text) {
  EngineFile file = build_text(text);
  for (Step& step : file.plans.at(0).steps) {
    if (std::holds_alternative<Conv>(step.op)) step.kernel = "cpu.conv.onednn";
    if (std::holds_alternative<MatMul>(step.op)) step.kernel = "cpu.matmul.onednn";
  }
  return file;
}

TEST(OneDnnPlan, LoadsWithAndWithoutTheLibrary) {
  const auto engine = engine_of(built_with_onednn(kTwoConvolutions));
  const std::string why = cpu::onednn::why_unavailable(current_isa());
  if (why.empty()) {
    EXPECT_THAT(engine->load_warnings(), ::testing::IsEmpty());
  } else {
    ASSERT_EQ(engine->load_warnings().size(), 2);
    for (const std::string& remark : engine->load_warnings())
      EXPECT_THAT(remark, AllOf(HasSubstr("instead of cpu.conv.onednn"), HasSubstr(why)));
  }
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = {random_f32({1, 3, 9, 7}, 3)};
  const auto got = run(context, *engine, inputs);
  for (const auto& [name, values] : reference(kTwoConvolutions, inputs))
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(got.at(name)[i], values[i], 1e-4f * (1 + std::abs(values[i]))) << name;
}

TEST(OneDnnPlan, PostOpsAddResiduals) {
  const std::string why = cpu::onednn::why_unavailable(current_isa());
  if (!why.empty()) GTEST_SKIP() << "no oneDNN: " << why;
  const std::string net = R"txt(graph g(x: f32[2,8,9,7])
  const w: f32[8,8,3,3] = random(1)
  const v: f32[8,8,3,3] = random(2)
  const u: f32[8,8,3,3] = random(3)
  const b: f32[8,1,1] = random(4)
  c = Conv(x, w; b) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1] epilogue="(f32,f32)->(f32) add($0,$1)"
  d = Conv(c, v; b, c) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1] epilogue="(f32,f32,f32)->(f32) add(add($0,$1),$2)"
  e = Conv(c, u; b, d) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1] epilogue="(f32,f32,f32)->(f32) add(add($0,$1),$2)"
  f = Conv(e, u; b, c) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1] epilogue="(f32,f32,f32)->(f32) add(add($0,$1),$2)"
  return f as y
)txt";
  EngineFile file = build_text(net);
  for (Step& step : file.plans.at(0).steps)
    if (step.name == "d" || step.name == "e") step.kernel = "cpu.conv.onednn_post_ops";
  const auto engine = engine_of(file);
  EXPECT_THAT(engine->load_warnings(), ::testing::IsEmpty());
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = {random_f32({2, 8, 9, 7}, 3)};
  const auto got = run(context, *engine, inputs);
  for (const auto& [name, values] : reference(net, inputs)) {
    float largest = 0;
    for (const float value : values) largest = std::max(largest, std::abs(value));
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(got.at(name)[i], values[i], 1e-5f * largest) << name;
  }
}

// A product whose rows are counted while running is not for oneDNN, whoever wrote the plan.
TEST(OneDnnPlan, WhatItRefusesRunsOnAnotherKernel) {
  const auto engine = engine_of(built_with_onednn(kDynamicNet));
  ASSERT_EQ(engine->load_warnings().size(), 1);
  EXPECT_THAT(engine->load_warnings()[0], HasSubstr("instead of cpu.matmul.onednn: sizes"));
}

}  // namespace
}  // namespace anneal::testing
