// Engines built for a batch of a fixed size run parts of it; callers still bind the fixed size.
#include "anneal/engine/builder/make_batch_dynamic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "anneal/engine/builder/batch_axis.h"
#include "anneal/engine/plan_check.h"
#include "anneal/engine/run/debug.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/engine/run/memory/bound_plan.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/engine/graphs.h"
#include "anneal/tests/error_of.h"
#include "anneal/tests/worker_budget.h"

namespace anneal::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// x is f32[8,6,5,5].
std::string net(std::string_view body, std::string_view inputs = "x: f32[8,6,5,5]") {
  return graph_of(body, inputs);
}

// What a convolution leaves with adjacent channels is flattened by a copy.
std::string flatten(std::string_view sizes) {
  return net(
      "  const w: f32[16,6,3,3] = random(1)\n"
      "  c = Conv(x, w) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]\n"
      "  f = Reshape(c, i64{" +
      std::string(sizes) +
      "})\n"
      "  const v: f32[400,9] = random(3)\n"
      "  y = MatMul(f, v)\n");
}

// As queries and keys of an attention are split.
std::string split(const std::string& sizes) {
  return net(
      "  s = Softmax(x) axis=3\n"
      "  t = Transpose(s) permutation=[2,0,1,3]\n"
      "  a = Slice(t, i64{0}, i64{1}, i64{0}, i64{1})\n"
      "  b = Slice(t, i64{1}, i64{2}, i64{0}, i64{1})\n"
      "  q = Reshape(a, i64{-1,4,6})\n"
      "  k = Reshape(b, i64{-1,4,6})\n"
      "  y = MatMul(q, k) transpose_b=true\n",
      "x: f32[" + sizes + "]");
}

constexpr std::string_view kAdd = "program=\"(f32,f32)->(f32) add($0,$1)\"\n";

struct Fixed {
  const char* what;
  std::string text;
  bool can_split;
};
const Fixed kPlans[] = {
    {"a convolution net", net(kRowsApart), true},
    {"as many rows as channels, lines and columns", net(kRowsApart, "x: f32[6,6,6,6]"), true},
    {"other sizes that are open", net(kRowsApart, "x: f32[8,6,H,W]"), true},
    {"three rows", net(kRowsApart, "x: f32[3,6,5,5]"), true},
    {"two rows, whose parts are of one size", net(kRowsApart, "x: f32[2,6,5,5]"), false},
    {"an open batch", net(kRowsApart, "x: f32[N,6,5,5]"), false},
    {"a flattening to numbers", flatten("8,400"), true},
    {"a flattening to a fixed number of rows", flatten("8,-1"), true},
    {"a flattening to a fixed number of columns", flatten("-1,400"), true},
    {"a copy of each row for each head",
     net("  e = Expand(x, i64{8,3,5,5})\n  y = Softmax(e) axis=1\n", "x: f32[8,1,5,5]"), true},
    {"a view that no step reads, whose rows are not on axis 0", split("8,4,2,6"), true},
    {"and with as many heads as rows", split("8,4,8,6"), true},
    {"an input for all rows",
     net("  y = Pointwise(x, a) " + std::string(kAdd), "x: f32[8,6,5,5], a: f32[6,1,1]"), true},
    {"an input that has no rows by chance of its size",
     net("  y = Pointwise(x, a) " + std::string(kAdd), "x: f32[8,6,5,8], a: f32[8]"), false},
    {"an input that must have as many",
     net("  n = Softmax(x) axis=1\n  y = Pointwise(n, a) " + std::string(kAdd),
         "x: f32[8,6,5,5], a: f32[M,6,1,1]"),
     false},
    {"a constant with rows of its own",
     net("  const a: f32[8,6,1,1] = random(1)\n  n = Softmax(x) axis=1\n  y = Pointwise(n, a) " +
         std::string(kAdd)),
     false},
    {"a constant beside each row",
     net("  const a: f32[8,1,5,5] = random(1)\n  y = Concat(a, x) axis=1\n"), false},
    {"rows and columns that change places",
     net("  y = Transpose(x) permutation=[1,0]\n", "x: f32[8,8]"), false},
    {"pairs of rows",
     net("  p = Reshape(x, i64{4,2,150})\n  q = Softmax(p) axis=1\n"
         "  y = Reshape(q, i64{8,150})\n"),
     false},
    {"the rows before",
     net("  f = Transpose(x) permutation=[1,0]\n  r = Reshape(f, i64{48})\n"
         "  s = Slice(r, i64{1}, i64{41}, i64{0}, i64{1})\n"
         "  m = Reshape(s, i64{5,8})\n  t = Transpose(m) permutation=[1,0]\n"
         "  y = Softmax(t) axis=1\n",
         "x: f32[8,6]"),
     false},
    {"a softmax along rows", net("  y = Softmax(x) axis=0\n"), false},
    {"a sum of rows", net("  y = Reduce(x, i64{0}) kind=sum keepdims=true\n"), false},
    {"a sum of rows for each",
     net("  s = Reduce(x, i64{0}) kind=sum keepdims=true\n  y = Pointwise(x, s) " +
         std::string(kAdd)),
     false},
    {"no rows", net("  y = Reduce(x, i64{0,1,2,3}) kind=sum keepdims=false\n"), false},
};

TEST(MakeBatchDynamic, PlansThatAreProved) {
  for (const Fixed& each : kPlans) {
    const EngineFile file = build_text(each.text);
    const Plan& plan = file.plans[0];
    const bool is_fixed = plan.batch_split && plan.batch_split->is_fixed;
    ASSERT_EQ(is_fixed, each.can_split) << each.what;
    const auto decision = std::ranges::find(plan.decisions, kBatchSplit, &Decision::stage);
    ASSERT_NE(decision, plan.decisions.end()) << each.what;
    EXPECT_EQ(decision->refused, !plan.batch_split) << decision->text;
    EXPECT_NO_THROW(check_plan(plan, file.weights)) << each.what;
    if (!is_fixed) continue;
    EXPECT_EQ(*separable_batch(plan), plan.batch_split->symbol) << each.what;
  }
}

TEST(MakeBatchDynamic, ARefusalLeavesTheWeights) {
  // The constant of Reshape can be replaced; the transpose after it mixes rows.
  EngineFile file =
      build_text(net("  f = Reshape(x, i64{8,150})\n  y = Transpose(f) permutation=[1,0]\n"));
  const std::vector<Tensor> weights = file.weights;
  const Result<Plan> dynamic = make_batch_dynamic(file.plans[0], file);
  ASSERT_FALSE(dynamic);
  EXPECT_THAT(dynamic.reason(), HasSubstr("no input has the rows of output \"y\" on axis 0"));
  EXPECT_EQ(file.weights, weights);
}

TEST(MakeBatchDynamic, NoPlanForAGpu) {
  GraphBuildOptions options;
  options.targets = {"emulated"};
  const EngineFile file = build_text(net(kRowsApart), options);
  EXPECT_FALSE(file.plans[0].batch_split);
  EXPECT_TRUE(is_static(file.plans[0]));
}

void expect_near(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  float largest = 1;
  for (const float value : want) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5f * largest) << i;
}

TEST(FixedBatch, GivesWhatTheWholeGives) {
  for (const Fixed& each : kPlans) {
    SCOPED_TRACE(each.what);
    const Graph graph = parse_graph(each.text);
    std::vector<Tensor> inputs;
    for (const ValueId input : graph.inputs()) {
      Dims dims;
      for (const Size size : graph.value(input).type().shape)
        dims.push_back(size.known() ? size.value() : inputs.empty() ? 6 : 8);
      inputs.push_back(random_f32(dims, 7));
    }
    const auto want = reference(each.text, inputs).at("y");
    const auto engine = engine_of(build_text(each.text));
    for (const int64_t micro_batch : {0, 1, 2, 3, 7, 8, 100}) {
      SCOPED_TRACE(micro_batch);
      ExecutionContext context(engine, {.micro_batch = micro_batch});
      expect_near(run(context, *engine, inputs).at("y"), want);
    }
  }
}

TEST(FixedBatch, IsStillFixedToItsCaller) {
  const auto engine = engine_of(build_text(net(kRowsApart)));
  EXPECT_EQ(fixed_batch_dims(plan_of(*engine)), std::vector<Dims>{(Dims{8, 6, 5, 5})});
  EXPECT_THAT(engine->load_warnings(), IsEmpty());
  EXPECT_EQ(engine->inputs()[0].min_dims, (Dims{8, 6, 5, 5}));
  EXPECT_EQ(engine->inputs()[0].max_dims, (Dims{8, 6, 5, 5}));
  EXPECT_EQ(engine->outputs()[0].dims, (Dims{8, 9}));
  EXPECT_EQ(engine->outputs()[0].dim_names[0], "8");
  const Tensor x = random_f32({8, 6, 5, 5}, 7), fewer = random_f32({2, 6, 5, 5}, 7);
  ExecutionContext context(engine, {.micro_batch = 2});
  EXPECT_EQ(error_of([&] { context.set_input("x", fewer.view()); }),
            "invalid_argument: input \"x\" has shape [2,6,5,5], the engine expects [8,6,5,5]");
  context.set_input("x", x.view());
  std::vector<float> memory(8 * 9);
  const auto output = [&](int64_t rows) {
    return row_major_view(DataType::kF32, {rows, 9}, reinterpret_cast<std::byte*>(memory.data()));
  };
  EXPECT_EQ(error_of([&] { context.set_output("y", output(2)); }),
            "invalid_argument: output \"y\" has shape [2,9], with these inputs it is [8,9]");
  context.set_output("y", output(8));
  context.run();
  expect_near(memory, reference(net(kRowsApart), {x}).at("y"));
}

TEST(FixedBatch, ActivationsAreThoseOfOneSliceOrOfThePlan) {
  const EngineFile file = build_text(net(kRowsApart));
  const auto engine = engine_of(file);
  const std::vector<Tensor> inputs = {random_f32({8, 6, 5, 5}, 7)};
  const uint64_t planned = fixed_arena_bytes(file.plans[0], file.weights).at(0);
  ExecutionContext whole(engine, {.micro_batch = 8}), cut(engine, {.threads = 1, .micro_batch = 1});
  run(whole, *engine, inputs);
  run(cut, *engine, inputs);
  EXPECT_EQ(whole.arena_bytes(), planned);
  EXPECT_LE(cut.arena_bytes(), planned / 4);
}

TEST(FixedBatch, IsCutWhereItLeavesTheCache) {
  const EngineFile file = build_text(
      net("  s = Softmax(x) axis=1\n  y = Softmax(s) axis=2\n", "x: f32[16,16,100,100]"));
  const auto engine = engine_of(file);
  const std::vector<Tensor> inputs = {random_f32({16, 16, 100, 100}, 7)};
  const WorkerBudget budget(1);
  for (const int threads : {1, 2}) {
    ExecutionContext context(engine, {.threads = threads});
    run(context, *engine, inputs);
    EXPECT_EQ(context.arena_bytes() * 16,
              fixed_arena_bytes(file.plans[0], file.weights).at(0) * static_cast<size_t>(threads));
  }
}

TEST(FixedBatch, AnObserverSeesTheWholeBatch) {
  const auto engine = engine_of(build_text(net(kRowsApart)));
  const std::vector<Tensor> inputs = {random_f32({8, 6, 5, 5}, 7)};
  ExecutionContext context(engine, {.micro_batch = 2});
  int64_t rows = 0;
  observe(context, [&](const Observation& observed) { rows = observed.value.dims[0]; });
  run(context, *engine, inputs);
  EXPECT_EQ(rows, 8);
}

// oneDNN multiplies the number of rows that its primitive was made for.
TEST(FixedBatch, StaysWholeWhereAKernelMustKnowItsRows) {
  const std::string text =
      net("  const w: f32[6,4] = random(1)\n  y = MatMul(x, w)\n", "x: f32[64,6]");
  GraphBuildOptions options;
  EngineFile file = build_text(text);
  const auto kernel = [&] { return file.plans[0].steps.back().kernel; };
  while (kernel() != "cpu.matmul.onednn") {
    if (kernel() == "cpu.matmul.reference") GTEST_SKIP() << "built without oneDNN";
    options.skip_kernels.push_back(kernel());
    file = build_text(text, options);
  }
  EXPECT_FALSE(file.plans[0].batch_split);
  const auto decision = std::ranges::find(file.plans[0].decisions, kBatchSplit, &Decision::stage);
  ASSERT_NE(decision, file.plans[0].decisions.end());
  EXPECT_THAT(decision->text, HasSubstr("a batch stays whole: cpu.matmul.onednn of step"));
  const std::vector<Tensor> inputs = {random_f32({64, 6}, 7)};
  const auto engine = engine_of(file);
  ExecutionContext context(engine, {.micro_batch = 2});
  expect_near(run(context, *engine, inputs).at("y"), reference(text, inputs).at("y"));
  EXPECT_EQ(context.profile()[0].times, 1);
}

}  // namespace
}  // namespace anneal::testing
