// What crosses over to a device: an input once and whole, and its views are taken there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/core/new_tensor.h"
#include "anneal/core/parallel.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/tests/cuda/gpu_engine.h"
#include "anneal/tests/worker_budget.h"

namespace anneal::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Names of the slots that are copied to the device; or from it.
std::vector<std::string> copied(const Plan& plan, bool to_device = true) {
  std::vector<std::string> names;
  for (const Step& step : plan.steps) {
    if (step.kernel != kTransfer) continue;
    const Slot &from = plan.slots[step.inputs[0]], &to = plan.slots[step.outputs[0]];
    if ((to.device == 0) == to_device) names.push_back(from.name);
  }
  return names;
}

std::vector<std::string> kernels(const Plan& plan, bool on_device) {
  std::vector<std::string> names;
  for (const Step& step : plan.steps)
    if (step.kernel != kTransfer && (step.device == 0) == on_device) names.push_back(step.kernel);
  return names;
}

std::string decision_on(const Plan& plan, const std::string& subject) {
  for (const Decision& decision : plan.decisions)
    if (decision.stage == "memory" && decision.subject == subject) return decision.text;
  return {};
}

// Runs it on the device, thrice, so that it is recorded and played, too.
void expect_right(std::string_view text, const std::shared_ptr<const Engine>& engine,
                  const std::vector<Dims>& dims) {
  ExecutionContext context(engine);
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    std::vector<Tensor> inputs;
    for (const Dims& each : dims) inputs.push_back(random_f32(each, seed + 10 * inputs.size()));
    expect_near(run(context, *engine, inputs), reference(text, inputs));
  }
}

// As at the beginning of YOLOX: every fourth pixel as a channel of its own.
constexpr std::string_view kFocus = R"txt(
size N in 1..5 opt 1
graph focus(x: f32[N,3,10,8])
  a = Slice(x, i64{0,0}, i64{10,8}, i64{2,3}, i64{2,2})
  b = Slice(x, i64{1,0}, i64{10,8}, i64{2,3}, i64{2,2})
  c = Slice(x, i64{0,1}, i64{10,8}, i64{2,3}, i64{2,2})
  r = Slice(x, i64{1}, i64{10}, i64{2}, i64{2})
  d = Slice(r, i64{1}, i64{8}, i64{3}, i64{2})
  k = Concat(a, b, c, d) axis=1
  const w: f32[8,12,3,3] = random(1)
  y = Conv(k, w) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  return y
)txt";

TEST(GpuInputs, SlicesOfAnInputAreCutOnTheDevice) {
  const auto engine = gpu_engine(kFocus);
  const Plan& plan = plan_of(*engine);
  EXPECT_THAT(copied(plan), ElementsAre("x"));
  EXPECT_THAT(copied(plan, false), ElementsAre(HasSubstr("y")));
  EXPECT_THAT(kernels(plan, false), IsEmpty());
  EXPECT_THAT(decision_on(plan, "a"),
              HasSubstr("is a view of its input on " + test_target() + ", where it is read"));
  for (const int64_t batch : {1, 3}) expect_right(kFocus, engine, {{batch, 3, 10, 8}});
}

// The Resize of a matrix runs on the CPU, as its kernel is skipped.
constexpr std::string_view kReadOnTheCpu = R"txt(
graph read_on_the_cpu(x: f32[4,6])
  r = Reshape(x, i64{2,12})
  p = Slice(r, i64{0}, i64{8}, i64{1}, i64{1})
  s = Resize(p) mode=linear axes=[1] scales=[1.1]
  const m: f32[8,5] = random(1)
  y = MatMul(s, m)
  return y
)txt";

TEST(GpuInputs, ViewsThatOnlyTheCpuReadsStayThere) {
  const auto engine = gpu_engine(kReadOnTheCpu, kernels_of_matrix_resize());
  EXPECT_THAT(copied(plan_of(*engine)), ElementsAre("s"));
  EXPECT_EQ(copied(plan_of(*engine), false).size(), 1u);
  EXPECT_THAT(decision_on(plan_of(*engine), "r"), "is a view of its input");
  expect_right(kReadOnTheCpu, engine, {{4, 6}});
}

constexpr std::string_view kReadOnBoth = R"txt(
graph read_on_both(x: f32[4,6])
  r = Reshape(x, i64{3,8})
  p = Slice(r, i64{2}, i64{8}, i64{1}, i64{1})
  s = Resize(p) mode=linear axes=[1] scales=[1.1]
  const m: f32[6,5] = random(1)
  g = MatMul(p, m)
  y = MatMul(s, m)
  return g, y
)txt";

TEST(GpuInputs, AViewThatBothReadIsTakenOnBoth) {
  const auto engine = gpu_engine(kReadOnBoth, kernels_of_matrix_resize());
  EXPECT_THAT(copied(plan_of(*engine)), ElementsAre("x", "s"));
  EXPECT_EQ(copied(plan_of(*engine), false).size(), 2u) << "the outputs";
  EXPECT_THAT(decision_on(plan_of(*engine), "p"), HasSubstr(", where it is read, and on cpu"));
  expect_right(kReadOnBoth, engine, {{4, 6}});
}

// Uploading 64 rows to read one row would be a waste.
constexpr std::string_view kSmallPart = R"txt(
graph small_part(x: f32[64,30])
  r = Slice(x, i64{3}, i64{4}, i64{0}, i64{1})
  const m: f32[30,5] = random(1)
  y = MatMul(r, m)
  return y
)txt";

TEST(GpuInputs, OfALittlePartOnlyThatIsCopied) {
  const auto engine = gpu_engine(kSmallPart);
  EXPECT_THAT(copied(plan_of(*engine)), ElementsAre(HasSubstr("r")));
  EXPECT_THAT(decision_on(plan_of(*engine), "r"), HasSubstr("reads less than a quarter"));
  expect_right(kSmallPart, engine, {{64, 30}});
}

// Of a table, as of rotary embeddings, each run reads few rows. The table is copied at load.
constexpr std::string_view kTable = R"txt(
size N in 1..64 opt 2
graph table(x: f32[N,30])
  const t: f32[64,30] = random(1)
  rows = SizeTensor() elements=[N]
  r = Slice(t, i64{0}, rows, i64{0}, i64{1})
  y = Pointwise(x, r) program="(f32,f32)->(f32) mul($0,$1)"
  return y
)txt";

TEST(GpuInputs, PartsOfConstantsAreTakenOnTheGpu) {
  const auto engine = gpu_engine(kTable);
  EXPECT_THAT(copied(plan_of(*engine)), ElementsAre("x"));
  EXPECT_THAT(kernels(plan_of(*engine), false), ElementsAre());
  EXPECT_THAT(decision_on(plan_of(*engine), "r"), HasSubstr("where it is read"));
  expect_right(kTable, engine, {{3, 30}});
  expect_right(kTable, engine, {{64, 30}});
}

// Channels last, as exporters of TensorFlow's models give them.
constexpr std::string_view kChannelsLast = R"txt(
graph channels_last(x: f32[2,9,7,8])
  t = Transpose(x) permutation=[0,3,1,2]
  const w: f32[16,8,3,3] = random(1)
  c = Conv(t, w) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  y = Reduce(c, i64{2,3}) kind=mean keepdims=false
  return y
)txt";

TEST(GpuInputs, ATransposedInputIsAViewOfItsCopy) {
  const auto engine = gpu_engine(kChannelsLast);
  EXPECT_THAT(copied(plan_of(*engine)), ElementsAre("x"));
  EXPECT_EQ(kernels(plan_of(*engine), true).size(), 2u) << "Conv and Reduce";
  EXPECT_THAT(kernels(plan_of(*engine), false), IsEmpty());
  expect_right(kChannelsLast, engine, {{2, 9, 7, 8}});
}

// The same for what a layer on the CPU computes.
constexpr std::string_view kHalves = R"txt(
graph halves(x: f32[4,6])
  s = Resize(x) mode=linear axes=[1] scales=[1.1]
  a = Slice(s, i64{0}, i64{3}, i64{1}, i64{1})
  b = Slice(s, i64{3}, i64{6}, i64{1}, i64{1})
  const m: f32[3,5] = random(1)
  g = MatMul(a, m)
  h = MatMul(b, m)
  y = Pointwise(g, h) program="(f32,f32)->(f32) add($0,$1)"
  return y
)txt";

TEST(GpuInputs, ViewsOfWhatTheCpuComputesAreTakenOnTheDevice) {
  const auto engine = gpu_engine(kHalves, kernels_of_matrix_resize());
  EXPECT_THAT(copied(plan_of(*engine)), ElementsAre("s"));
  EXPECT_THAT(kernels(plan_of(*engine), false), ElementsAre(HasSubstr("resize")));
  expect_right(kHalves, engine, {{4, 6}});
}

// An output that is a view of another one is taken on the device, too: no copy on the CPU.
constexpr std::string_view kViewsOut = R"txt(
graph views_out(x: f32[4,6])
  a = Pointwise(x) program="(f32)->(f32) neg($0)"
  r = Reshape(a, i64{3,8})
  p = Slice(a, i64{1}, i64{5}, i64{1}, i64{2})
  return r, p
)txt";

TEST(GpuInputs, OutputsThatAreViewsAreTakenOnTheDevice) {
  const auto engine = gpu_engine(kViewsOut);
  EXPECT_EQ(copied(plan_of(*engine), false).size(), 2u);
  EXPECT_THAT(kernels(plan_of(*engine), false), IsEmpty());
  expect_right(kViewsOut, engine, {{4, 6}});
}

// Threads copy between the caller's memory and what the device copies from: strides of any kind.
TEST(GpuInputs, TheTeamCopiesInputsAndOutputs) {
  constexpr std::string_view kLarge = R"txt(
graph large(x: f32[3,400,300])
  y = Pointwise(x) program="(f32)->(f32) mul($0,2f32)"
  return y
)txt";
  const WorkerBudget budget(3);
  const auto engine = gpu_engine(kLarge);
  const Dims dims = {3, 400, 300};
  const Tensor x = random_f32(dims, 1);
  for (const int threads : {1, 4}) {
    ExecutionContext context(engine, {.threads = threads});
    // Backwards, and channels last.
    TensorView in = kernel_view(x);
    in.data += static_cast<size_t>(x.count() - 1) * sizeof(float);
    for (int axis = 0; axis < 3; ++axis) in.strides[axis] = -in.strides[axis];
    std::vector<float> memory(static_cast<size_t>(x.count()));
    TensorView out =
        row_major_view(DataType::kF32, dims, reinterpret_cast<std::byte*>(memory.data()));
    out.strides = {1, 900, 3};
    context.set_input("x", in);
    context.set_output("y", out);
    for (int i = 0; i < 3; ++i) {
      std::ranges::fill(memory, -1.0f);
      context.run();
      const std::vector<float> got = elements(out), given = elements(in);
      for (size_t k = 0; k < got.size(); ++k) ASSERT_EQ(got[k], 2 * given[k]) << k;
    }
  }
}

}  // namespace
}  // namespace anneal::testing
