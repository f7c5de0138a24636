// The operations and bytes of steps, against numbers that are counted by hand.
#include "anneal/engine/onnx/roofline/plan_work.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/engine/graphs.h"

namespace anneal::testing {
namespace {

// The work of a run on these inputs.
RooflinePlan work_of(std::string_view text, const std::vector<Tensor>& inputs) {
  const auto engine = engine_of(build_text(text));
  ExecutionContext context(engine, {.threads = 1});
  std::vector<Dims> dims;
  for (size_t i = 0; i < inputs.size(); ++i) {
    context.set_input(engine->inputs()[i].name, inputs[i].view());
    dims.push_back(inputs[i].dims());
  }
  context.run();
  return roofline_plan(*engine, context, dims);
}

const RooflineStep& step_with(const RooflinePlan& plan, StepRole role) {
  const auto found = std::ranges::find(plan.steps, role, &RooflineStep::role);
  EXPECT_NE(found, plan.steps.end());
  return *found;
}

TEST(PlanWork, AConvolutionWithItsEpilogue) {
  const RooflinePlan plan = work_of(R"txt(
graph net(x: f32[1,3,9,7])
  const w: f32[8,3,3,3] = random(1)
  const b: f32[8,1,1] = random(2)
  c = Conv(x, w) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  y = Pointwise(c, b) program="(f32,f32)->(f32) max(add($0,$1),0f32)"
  return y
)txt",
                                    {random_f32({1, 3, 9, 7}, 1)});
  ASSERT_EQ(plan.steps.size(), 1u);
  const RooflineStep& conv = plan.steps[0];
  EXPECT_EQ(conv.role, StepRole::kProduct);
  EXPECT_EQ(conv.type, ProductType::kF32);
  EXPECT_EQ(conv.products, 2.0 * 8 * 9 * 7 * 3 * 3 * 3);
  EXPECT_EQ(conv.others, 2.0 * 8 * 9 * 7);  // add and max
  EXPECT_EQ(conv.weight_bytes, 4.0 * (8 * 3 * 3 * 3 + 8));
  EXPECT_EQ(conv.activation_bytes, 4.0 * (3 * 9 * 7 + 8 * 9 * 7));
  EXPECT_EQ(conv.depth, 3);
  EXPECT_EQ(conv.columns, 8);
  EXPECT_EQ(plan.inputs, std::vector<std::string>{"x: f32[1,3,9,7]"});
  EXPECT_GE(plan.touched_bytes, conv.weight_bytes);
}

TEST(PlanWork, GroupsAndTransposedConvolutions) {
  const RooflinePlan groups = work_of(R"txt(
graph net(x: f32[1,6,5,5])
  const w: f32[6,1,3,3] = random(1)
  y = Conv(x, w) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1] groups=6
  return y
)txt",
                                      {random_f32({1, 6, 5, 5}, 1)});
  const RooflineStep& depthwise = step_with(groups, StepRole::kProduct);
  EXPECT_EQ(depthwise.products, 2.0 * 6 * 3 * 3 * 3 * 3);
  EXPECT_EQ(depthwise.columns, 0) << "groups fill no register with their channels";

  const RooflinePlan transposed = work_of(R"txt(
graph net(x: f32[1,4,5,5])
  const w: f32[4,3,2,2] = random(1)
  y = ConvTranspose(x, w) strides=[2,2] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1] output_padding=[0,0]
  return y
)txt",
                                          {random_f32({1, 4, 5, 5}, 1)});
  EXPECT_EQ(step_with(transposed, StepRole::kProduct).products, 2.0 * 4 * 5 * 5 * 3 * 2 * 2);
}

TEST(PlanWork, AProductAtTheSizesOfTheRun) {
  for (const int64_t n : {2, 5}) {
    const RooflinePlan plan = work_of(kDynamicNet, {random_f32({n, 6}, 1), random_f32({n, 6}, 2)});
    const auto rows = static_cast<double>(n);
    const RooflineStep& product = step_with(plan, StepRole::kProduct);
    EXPECT_EQ(product.products, 2 * (2 * rows) * 6 * 5);
    EXPECT_EQ(product.weight_bytes, 4.0 * 6 * 5);
    EXPECT_EQ(product.activation_bytes, 4 * (2 * rows * 6 + 2 * rows * 5));
    const RooflineStep& sum = step_with(plan, StepRole::kElementwise);
    EXPECT_EQ(sum.products, 0);
    EXPECT_EQ(sum.others, 2 * rows * 6);  // mul and add
    EXPECT_EQ(sum.weight_bytes, 0);
    EXPECT_EQ(sum.activation_bytes, 3 * 4 * rows * 6);
  }
}

TEST(PlanWork, IntegersAreMultipliedAsBytes) {
  const int8_t values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  const RooflinePlan plan = work_of(R"txt(
graph net(a: i8[2,4])
  const b: i8[4,3] = {1,2,3,4,5,6,7,8,9,1,2,3}
  y = MatMul(a, b)
  return y
)txt",
                                    {Tensor::of<int8_t>(DataType::kI8, {2, 4}, values)});
  const RooflineStep& product = step_with(plan, StepRole::kProduct);
  EXPECT_EQ(product.type, ProductType::kInt8);
  EXPECT_EQ(product.products, 2.0 * 2 * 3 * 4);
  EXPECT_EQ(product.weight_bytes, 4 * 3);
  EXPECT_EQ(product.activation_bytes, 2 * 4 + 4 * 2 * 3);  // sums are i32
}

TEST(PlanWork, AGatherReadsWhatItTakes) {
  const RooflinePlan plan = work_of(R"txt(
graph net(i: i64[3])
  const table: f32[1000,16] = random(1)
  y = Gather(table, i) axis=0
  return y
)txt",
                                    {tensor_i64({1, 2, 3})});
  const RooflineStep& gather = step_with(plan, StepRole::kMovement);
  EXPECT_EQ(gather.operations(), 0);
  EXPECT_EQ(gather.weight_bytes, 0);
  EXPECT_EQ(gather.activation_bytes, 2.0 * 4 * 3 * 16 + 8 * 3);
}

TEST(PlanWork, RecurrentLayersMultiplyBothWeightsInEachStep) {
  const RooflinePlan plan = work_of(R"txt(
graph net(x: f32[10,2,16])
  const w: f32[1,32,16] = random(1)
  const r: f32[1,32,32] = random(2)
  y, h = Recurrent(x, w, r) kind=rnn
  return y, h
)txt",
                                    {random_f32({10, 2, 16}, 1)});
  EXPECT_EQ(step_with(plan, StepRole::kProduct).products, 2.0 * 10 * 2 * 32 * (16 + 32));
}

TEST(PlanWork, LinearAttentionMultipliesTheStateOnceForEachProduct) {
  const RooflinePlan plan = work_of(R"txt(
graph net(q: f32[2,10,4,16], k: f32[2,10,2,16], v: f32[2,10,2,8], beta: f32[2,10,2])
  y, state = LinearAttention(q, k, v, _, _, beta)
  return y
)txt",
                                    {random_f32({2, 10, 4, 16}, 1), random_f32({2, 10, 2, 16}, 2),
                                     random_f32({2, 10, 2, 8}, 3), random_f32({2, 10, 2}, 4)});
  // What is recalled, what is written, and two readers.
  EXPECT_EQ(step_with(plan, StepRole::kProduct).products, 2.0 * 2 * 10 * 2 * 16 * 8 * (1 + 1 + 2));
  EXPECT_EQ(step_with(plan, StepRole::kProduct).operations(),
            2.0 * 2 * 10 * 2 * 16 * 8 * (1 + 1 + 2));

  const RooflinePlan decays = work_of(
      R"txt(
graph net(q: f32[1,3,2,16], v: f32[1,3,2,8], decay: f32[1,3,2,1])
  y, state = LinearAttention(q, q, v, _, decay)
  return y
)txt",
      {random_f32({1, 3, 2, 16}, 1), random_f32({1, 3, 2, 8}, 2), random_f32({1, 3, 2, 1}, 3)});
  const double updates = 3 * 2 * 16 * 8;
  EXPECT_EQ(step_with(decays, StepRole::kProduct).products, 2 * updates * 2);
  EXPECT_EQ(step_with(decays, StepRole::kProduct).operations(), 2 * updates * 2 + updates);
}

TEST(PlanWork, StepsOfBodiesFollowAndRunOften) {
  const std::string_view text = R"txt(
graph repeats(x: f32[8,8])
  const go: bool[] = {true}
  body again(i: i64[], c: bool[], h: f32[8,8])
    const w: f32[8,8] = random(1)
    n = MatMul(h, w)
    return c, n
  end
  y = Loop(i64[]{100}, go, x) body=0 carried=1 counted=true
  return y
)txt";
  const RooflinePlan plan = work_of(text, {random_f32({8, 8}, 1)});
  const RooflineStep& product = step_with(plan, StepRole::kProduct);
  EXPECT_TRUE(product.in_body);
  EXPECT_EQ(product.runs, 100);
  EXPECT_EQ(product.products, 2.0 * 8 * 8 * 8);

  const auto engine = engine_of(build_text(text));
  ExecutionContext context(engine, {.threads = 1});
  const Tensor x = random_f32({8, 8}, 1);
  context.set_input("x", x.view());
  const auto times = context.profile();
  ASSERT_EQ(times.size(), plan.steps.size());
  for (size_t i = 0; i < times.size(); ++i) EXPECT_EQ(times[i].step, plan.steps[i].name);
}

TEST(PlanWork, SizesThatDependOnValuesAreNotKnown) {
  const RooflinePlan plan = work_of(kLateNet, {random_f32({3}, 1), tensor_i64({4, 3})});
  EXPECT_TRUE(std::ranges::any_of(plan.steps, [](auto& step) { return !step.is_known; }));
  for (const RooflineStep& step : plan.steps) {
    if (step.is_known) continue;
    EXPECT_EQ(step.operations() + step.bytes(), 0) << step.name;
  }
}

TEST(PlanWork, TheProducerOfAnOperandThatNothingElseReads) {
  const RooflinePlan plan = work_of(R"txt(
graph net(x: f32[4,6])
  const axis: i64[] = {1}
  c = Cumulative(x, axis) kind=sum
  y = Transpose(c) permutation=[1,0]
  z = Pointwise(y) program="(f32)->(f32) exp($0)"
  return z
)txt",
                                    {random_f32({4, 6}, 1)});
  const RooflineStep& last = plan.steps.back();
  ASSERT_EQ(last.role, StepRole::kElementwise);
  ASSERT_TRUE(last.producer);
  EXPECT_EQ(plan.steps[*last.producer].name, plan.steps[plan.steps.size() - 2].name);
  EXPECT_EQ(last.producer_bytes, 4.0 * 4 * 6);

  const RooflinePlan two = work_of(R"txt(
graph net(x: f32[4,6])
  const axis: i64[] = {1}
  c = Cumulative(x, axis) kind=sum
  z = Pointwise(c) program="(f32)->(f32) exp($0)"
  return z, c as sums
)txt",
                                   {random_f32({4, 6}, 1)});
  EXPECT_FALSE(two.steps.back().producer) << "it is an output as well";
}

}  // namespace
}  // namespace anneal::testing
