// Batches run a few rows at a time: which plans allow it, and that nothing else changes.
#include "anneal/engine/run/context/batch_split.h"
#include "anneal/engine/run/debug.h"
#include "anneal/engine/run/make_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/core/parallel.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/engine/counting_new.h"
#include "anneal/tests/engine/graphs.h"
#include "anneal/tests/error_of.h"
#include "anneal/tests/worker_budget.h"

namespace anneal::testing {
namespace {

using ::testing::HasSubstr;

// x is f32[N,6,5,5].
std::string net(std::string_view body, std::string_view inputs = "x: f32[N,6,5,5]") {
  return graph_of(body, inputs);
}

struct Rows {
  const char* what;
  std::string text;
  bool are_apart;
};
const Rows kPlans[] = {
    {"a convolution net", net(kRowsApart), true},
    {"an input without rows",
     net("  y = Pointwise(x, a) program=\"(f32,f32)->(f32) add($0,$1)\"\n",
         "x: f32[N,6,5,5], a: f32[6,1,1]"),
     true},
    {"an input of other sizes before it",
     net("  y = MatMul(x, a) transpose_b=true\n", "a: f32[M,6], x: f32[N,6]"), true},
    {"outputs with the rows of no input",
     net("  y = Transpose(x) permutation=[1,0]\n", "x: f32[6,N]"), false},
    {"attention",
     net("  y = Attention(q, q, q, a) score=\"(f32,f32)->(f32) add($0,$1)\"\n",
         "q: f32[N,2,5,4], a: f32[N,1,1,5]"),
     true},
    {"keys of another batch, which must be as large",
     net("  y = Attention(q, k, k)\n", "q: f32[N,2,5,4], k: f32[M,2,5,4]"), false},
    {"linear attention",
     net("  y, s = LinearAttention(q, q, q, p)\n", "q: f32[N,3,2,4], p: f32[N,2,4,4]"), true},
    {"linear attention with a state of another batch, which must be as large",
     net("  y, s = LinearAttention(q, q, q, p)\n", "q: f32[N,3,2,4], p: f32[M,2,4,4]"), false},
    {"a product with a matrix for all rows",
     net("  y = MatMul(x, a)\n", "x: f32[N,6], a: f32[6,4]"), true},
    {"a product with as many matrices as rows",
     net("  y = MatMul(x, a)\n", "x: f32[N,5,6], a: f32[M,6,4]"), false},
    {"a scale for each column",
     net("  q = Quantize(x, s) axis=1 dtype=u8\n  y = Dequantize(q, s) axis=1\n",
         "x: f32[N,6], s: f32[6]"),
     true},
    {"a scale for each row",
     net("  q = Quantize(x, s) axis=0 dtype=u8\n  y = Dequantize(q, s) axis=0\n",
         "x: f32[N,6], s: f32[M]"),
     false},
    {"one scale",
     net("  q = Quantize(x, s) axis=0 dtype=u8\n  y = Dequantize(q, s) axis=0\n",
         "x: f32[N,6], s: f32[]"),
     true},
    {"a batch of fixed size", net(kRowsApart, "x: f32[4,6,5,5]"), true},
    {"a softmax along rows", net("  y = Softmax(x) axis=0\n"), false},
    {"a sum of rows", net("  y = Reduce(x, i64{0}) kind=sum keepdims=true\n"), false},
    {"a sum of rows that goes back to each",
     net("  s = Reduce(x, i64{0}) kind=sum keepdims=true\n"
         "  y = Pointwise(x, s) program=\"(f32,f32)->(f32) add($0,$1)\"\n"),
     false},
    {"the number of a row",
     net("  y = Pointwise(x) program=\"(f32)->(f32) add($0,f32(index(0)))\"\n"), false},
    {"the number of a column",
     net("  y = Pointwise(x) program=\"(f32)->(f32) add($0,f32(index(1)))\"\n"), true},
    {"rows that become columns", net("  y = Transpose(x) permutation=[1,0]\n", "x: f32[N,6]"),
     false},
    {"rows against columns",
     net("  y = Pointwise(x, a) program=\"(f32,f32)->(f32) add($0,$1)\"\n",
         "x: f32[N,6], a: f32[N]"),
     false},
    {"a product of rows with rows",
     net("  y = MatMul(x, a) transpose_b=true\n", "x: f32[N,6], a: f32[N,6]"), false},
    {"rows behind each other", net("  y = Concat(x, x) axis=0\n"), false},
    {"views of a view with rows elsewhere, which no step reads",
     net("  s = Softmax(x) axis=3\n"
         "  t = Transpose(s) permutation=[2,0,1,3]\n"
         "  a = Slice(t, i64{0}, i64{1}, i64{0}, i64{1})\n"
         "  b = Slice(t, i64{1}, i64{2}, i64{0}, i64{1})\n"
         "  q = Reshape(a, i64{-1,4,6})\n"
         "  k = Reshape(b, i64{-1,4,6})\n"
         "  y = MatMul(q, k) transpose_b=true\n",
         "x: f32[N,4,2,6]"),
     true},
    {"zeros as many as rows before others",
     net("  n = SizeTensor() elements=[N,0 - N]\n  p = Pad(a, n)\n"
         "  y = Pointwise(x, p) program=\"(f32,f32)->(f32) add($0,$1)\"\n",
         "x: f32[N,6], a: f32[6]"),
     false},
    {"sums along an axis that the number of rows gives",
     net("  n = SizeTensor() elements=[N - 1] scalar=true\n  p = Cumulative(a, n)\n"
         "  y = Pointwise(x, p) program=\"(f32,f32)->(f32) add($0,$1)\"\n",
         "x: f32[N,6,4], a: f32[6,4]"),
     false},
    {"an input that no step reads, with its rows elsewhere",
     net("  y = Softmax(x) axis=1\n", "x: f32[N,6], z: f32[6,N]"), false},
    {"a size that values decide", net("  y = NonZero(x)\n", "x: f32[N,6]"), false},
};

TEST(BatchSplit, PlansWhoseRowsAreApart) {
  for (const Rows& each : kPlans)
    EXPECT_EQ(build_text(each.text).plans[0].batch_split.has_value(), each.are_apart) << each.what;
}

TEST(BatchSplit, PlansWhoseRowsAreApartGiveTheSameRowByRow) {
  const WorkerBudget budget(1);
  for (const Rows& each : kPlans) {
    if (!each.are_apart) continue;
    SCOPED_TRACE(each.what);
    const Graph graph = parse_graph(each.text);
    const auto engine = engine_of(build_text(each.text));
    std::vector<Tensor> inputs;
    for (const ValueId input : graph.inputs()) {
      const Shape& shape = graph.value(input).type().shape;
      Dims dims;
      for (const Size size : shape)
        dims.push_back(size.known() ? size.value() : graph.sizes().text(size) == "N" ? 5 : 4);
      inputs.push_back(random_f32(dims, 7));
    }
    const auto want = reference(each.text, inputs).at("y");
    for (const int threads : {1, 2}) {
      ExecutionContext context(engine, {.threads = threads, .micro_batch = 1});
      const auto got = run(context, *engine, inputs).at("y");
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-4) << i;
    }
  }
}

TEST(BatchSplit, NoPlanForAGpu) {
  GraphBuildOptions options;
  options.targets = {"emulated"};
  EXPECT_FALSE(build_text(net(kRowsApart), options).plans[0].batch_split);
}

// "3 x 2 alone, 1 together": slices of one thread each and their rows, then what all run together.
std::string cut_text(const Plan& plan, const Dims& dims, int threads, int64_t micro_batch = 0) {
  const RowCut cut = cut_rows(plan, std::span(&dims, 1), threads, micro_batch);
  EXPECT_EQ(cut.rows, dims[0]);
  EXPECT_EQ(cut.is_whole(), cut.rows_alone == 0 && cut.together == dims[0]);
  std::string text;
  if (cut.rows_alone > 0) {
    EXPECT_EQ(cut.rows_alone % (cut.alone * threads), 0) << "as much for each thread";
    text =
        std::to_string(cut.rows_alone / cut.alone) + " x " + std::to_string(cut.alone) + " alone, ";
  }
  return text + std::to_string(cut.together) + " together";
}

TEST(BatchSplit, BatchesAreCutThatLeaveTheCache) {
  const EngineFile file = build_text(
      net("  const w: f32[16,16,1,1] = random(1)\n"
          "  y = Conv(x, w) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]\n",
          "x: f32[N,16,H,100]"));
  const auto cut = [&](int64_t rows, int64_t height, int threads) {
    return cut_text(file.plans[0], {rows, 16, height, 100}, threads);
  };
  // A row of 1.28 MB.
  EXPECT_EQ(cut(16, 100, 1), "1 together");
  EXPECT_EQ(cut(8, 100, 1), "8 together");
  EXPECT_EQ(cut(1, 10'000, 1), "1 together");
  EXPECT_EQ(cut(0, 100, 1), "0 together");
  EXPECT_EQ(cut(16, 100, 2), "16 x 1 alone, 0 together");
  EXPECT_EQ(cut(16, 100, 3), "15 x 1 alone, 1 together");
  EXPECT_EQ(cut(16, 100, 10), "10 x 1 alone, 6 together");
  EXPECT_EQ(cut(31, 100, 16), "13 together");  // which the shared cache holds, and not 16
  EXPECT_EQ(cut(16, 100, 20), "16 together");  // no row for each
  // Of 10 MB, and of 3.8 MB, of which the shared cache holds four and not eight.
  EXPECT_EQ(cut(16, 800, 4), "16 x 1 alone, 0 together");
  EXPECT_EQ(cut(16, 300, 8), "4 together");
}

TEST(BatchSplit, SmallRowsFillTheCache) {
  const EngineFile file =
      build_text(net("  y = Pointwise(x) program=\"(f32)->(f32) neg($0)\"\n", "x: f32[N,4]"));
  const auto cut = [&](int64_t rows, int threads) {
    return cut_text(file.plans[0], {rows, 4}, threads);
  };
  EXPECT_EQ(cut(1'000'000, 1), "32768 together");
  EXPECT_EQ(cut(1 << 15, 1), "32768 together");
  EXPECT_EQ(cut(1'000'001, 2), "32 x 31250 alone, 1 together");
  EXPECT_EQ(cut(100, 2), "2 x 50 alone, 0 together");
  EXPECT_EQ(cut(101, 4), "4 x 25 alone, 1 together");
}

TEST(BatchSplit, BatchesStayWholeWhereWeightsWeighMore) {
  const auto cut = [](const std::string& columns, int64_t rows, int threads) {
    const EngineFile file =
        build_text(net("  const w: f32[1024," + columns + "] = random(1)\n  y = MatMul(x, w)\n",
                       "x: f32[N,4,1024]"));
    return cut_text(file.plans[0], {rows, 4, 1024}, threads);
  };
  EXPECT_EQ(cut("4", 1100, 1), "63 together");      // 18 MB, and 17 times 16 kB
  EXPECT_EQ(cut("1024", 1000, 1), "114 together");  // 33 MB, and 8 times 4 MB
  EXPECT_EQ(cut("1024", 200, 2), "200 together");   // 7 MB
  EXPECT_EQ(cut("1024", 1000, 2), "4 x 250 alone, 0 together");
}

TEST(BatchSplit, AsManyRowsAsTold) {
  const EngineFile file = build_text(net(kRowsApart));
  const auto cut = [&](int64_t rows, int threads, int64_t micro_batch) {
    return cut_text(file.plans[0], {rows, 6, 5, 5}, threads, micro_batch);
  };
  EXPECT_EQ(cut(8, 1, 3), "3 together");
  EXPECT_EQ(cut(8, 2, 3), "2 x 3 alone, 2 together");
  EXPECT_EQ(cut(8, 2, 1), "8 x 1 alone, 0 together");
  EXPECT_EQ(cut(15, 2, 4), "2 x 4 alone, 4 together");
  EXPECT_EQ(cut(8, 2, 5), "5 together");
  EXPECT_EQ(cut(8, 2, 8), "8 together");
  EXPECT_EQ(cut(8, 2, 100), "8 together");
}

TEST(SplitRun, GivesWhatTheWholeBatchGives) {
  const WorkerBudget budget(2);
  const auto engine = engine_of(build_text(net(kRowsApart)));
  for (const int threads : {1, 2, 3})
    for (const int64_t micro_batch : {0, 1, 2, 3, 5, 8, 100}) {
      ExecutionContext context(engine, {.threads = threads, .micro_batch = micro_batch});
      for (const int64_t n : {5, 1, 8, 0, 5, 16, 2}) {
        SCOPED_TRACE(::testing::Message()
                     << n << " rows, " << micro_batch << " at once, " << threads << " threads");
        const std::vector<Tensor> inputs = {random_f32({n, 6, 5, 5}, 7)};
        const auto want = reference(net(kRowsApart), inputs).at("y");
        const auto got = run(context, *engine, inputs).at("y");
        ASSERT_EQ(context.output_dims("y"), (Dims{n, 9}));
        ASSERT_EQ(got.size(), want.size());
        for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5) << i;
      }
    }
}

TEST(SplitRun, ThreadsThatAreNotToBeHadChangeNothing) {
  const WorkerBudget budget(2);
  const auto engine = engine_of(build_text(net(kRowsApart)));
  const std::vector<Tensor> inputs = {random_f32({8, 6, 5, 5}, 7)};
  ExecutionContext context(engine, {.threads = 3, .micro_batch = 1});
  const auto want = run(context, *engine, inputs);
  const ThreadTeam others(3);
  EXPECT_EQ(run(context, *engine, inputs), want);
}

TEST(SplitRun, AFailureInASliceIsThatOfTheRun) {
  const WorkerBudget budget(1);
  const auto engine = engine_of(build_text(
      net("  const table: f32[5,4] = random(1)\n  y = Gather(table, x) axis=0\n", "x: i64[N]")));
  ExecutionContext context(engine, {.threads = 2, .micro_batch = 2});
  const Tensor wrong = tensor_i64({0, 1, 2, 3, 4, 5, 4, 3}), right = tensor_i64({4, 3, 2, 1, 0});
  context.set_input("x", wrong.view());
  EXPECT_THAT(error_of([&] { context.run(); }), HasSubstr("while running step"));
  EXPECT_THAT(error_of([&] { static_cast<void>(context.output("y")); }),
              HasSubstr("call run() first"));
  context.set_input("x", right.view());
  context.run();
  EXPECT_EQ(context.output("y").dims, (Dims{5, 4}));
}

TEST(SplitRun, TheCallersMemoryMayHaveAnyStrides) {
  const auto engine = engine_of(build_text(net(kRowsApart)));
  const std::vector<Tensor> inputs = {random_f32({7, 6, 5, 5}, 7)};
  const auto want = reference(net(kRowsApart), inputs).at("y");
  ExecutionContext context(engine, {.micro_batch = 2});
  context.set_input("x", inputs[0].view());
  std::vector<float> memory(7 * 18, -1);
  context.set_output(
      "y", {DataType::kF32, {7, 9}, {18, 2}, reinterpret_cast<std::byte*>(memory.data())});
  context.run();
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(memory[2 * i], want[i], 1e-5) << i;
    ASSERT_EQ(memory[2 * i + 1], -1) << i;
  }
  EXPECT_EQ(elements(context.output("y")).size(), want.size());
}

TEST(SplitRun, MemoryOfAnotherShapeIsRefused) {
  const auto engine = engine_of(build_text(net(kRowsApart)));
  const std::vector<Tensor> five = {random_f32({5, 6, 5, 5}, 7)},
                            three = {random_f32({3, 6, 5, 5}, 7)};
  ExecutionContext context(engine, {.micro_batch = 1});
  std::vector<float> memory(5 * 9);
  context.set_input("x", five[0].view());
  context.set_output(
      "y", row_major_view(DataType::kF32, {5, 9}, reinterpret_cast<std::byte*>(memory.data())));
  context.run();
  context.set_input("x", three[0].view());
  EXPECT_THAT(error_of([&] { context.run(); }),
              HasSubstr("output \"y\" has shape [5,9], with these inputs it is [3,9]"));
  EXPECT_THAT(error_of([&] { static_cast<void>(context.output("y")); }),
              HasSubstr("call run() first"));
}

TEST(SplitRun, OutputsStayUntilSomethingIsBound) {
  const auto engine = engine_of(build_text(net(kRowsApart)));
  const std::vector<Tensor> inputs = {random_f32({5, 6, 5, 5}, 7)};
  ExecutionContext context(engine, {.micro_batch = 2});
  const auto got = run(context, *engine, inputs);
  EXPECT_EQ(context.output_dims("y"), (Dims{5, 9}));
  EXPECT_EQ(elements(context.output("y")), got.at("y"));
  context.set_input("x", inputs[0].view());
  EXPECT_THAT(error_of([&] { static_cast<void>(context.output("y")); }),
              HasSubstr("call run() first"));
}

TEST(SplitRun, ActivationsAreThoseOfOneSliceForEachThread) {
  const WorkerBudget budget(1);
  const auto engine = engine_of(build_text(net(kRowsApart)));
  const std::vector<Tensor> inputs = {random_f32({16, 6, 5, 5}, 7)};
  ExecutionContext whole(engine, {.micro_batch = 16});
  run(whole, *engine, inputs);
  for (const int threads : {1, 2}) {
    ExecutionContext cut(engine, {.threads = threads, .micro_batch = 2});
    run(cut, *engine, inputs);
    EXPECT_LT(cut.arena_bytes(), whole.arena_bytes() * static_cast<size_t>(threads) / 7);
    EXPECT_GE(cut.memory_bytes(), cut.arena_bytes());
  }
  // And a remainder that both threads run together.
  const std::vector<Tensor> fewer = {random_f32({15, 6, 5, 5}, 7)};
  ExecutionContext cut(engine, {.threads = 2, .micro_batch = 2});
  run(cut, *engine, fewer);
  EXPECT_LT(cut.arena_bytes(), whole.arena_bytes() * 3 / 7);
}

// Whichever threads run its slices.
TEST(SplitRun, StagingIsPlacedByTheFirstRun) {
  const WorkerBudget budget(1);
  const auto engine = engine_of(build_text(net("  y = Softmax(x) axis=1\n", "x: f32[N,6]")));
  const Tensor x = random_f32({8, 6}, 7);
  std::vector<float> memory(8 * 12);
  ExecutionContext context(engine, {.threads = 2, .micro_batch = 1});
  context.set_input("x", x.view());
  context.set_output(
      "y", {DataType::kF32, {8, 6}, {12, 2}, reinterpret_cast<std::byte*>(memory.data())});
  {
    const ThreadTeam others(2);
    context.run();
  }
  const size_t bytes = context.memory_bytes();
  const int64_t before = allocations_so_far();
  for (int i = 0; i < 50; ++i) context.run();
  EXPECT_EQ(allocations_so_far(), before);
  EXPECT_EQ(context.memory_bytes(), bytes);
}

TEST(SplitRun, ARefusedBatchLeavesNothingOfTheOneBefore) {
  const auto engine =
      engine_of(build_text(net("  y = Pointwise(x, z) program=\"(f32,f32)->(f32) add($0,$1)\"\n",
                               "x: f32[N,6], z: f32[N,6]")));
  const Tensor five = random_f32({5, 6}, 7), two = random_f32({2, 6}, 7),
               one = random_f32({1, 6}, 7);
  for (const Tensor* const after : {&two, &one}) {
    ExecutionContext context(engine, {.micro_batch = 2});
    run(context, *engine, {five, five});
    context.set_input("x", after->view());
    EXPECT_THAT(error_of([&] { context.run(); }), HasSubstr("N is"));
    context.set_input("z", after->view());
    context.run();
    EXPECT_EQ(context.output("y").dims, after->dims());
  }
}

TEST(SplitRun, WhatAnObservedRunGaveIsGoneOnceTheBatchIsCutAgain) {
  const auto engine = engine_of(build_text(net("  y = Softmax(x) axis=1\n", "x: f32[N,6]")));
  const Tensor x = random_f32({5, 6}, 7);
  ExecutionContext context(engine, {.micro_batch = 2});
  context.set_input("x", x.view());
  context.run();
  observe(context, [](const Observation&) {});
  context.run();
  observe(context, {});
  EXPECT_EQ(elements(context.output("y")).size(), 30u);
  EXPECT_EQ(context.output_dims("y"), (Dims{5, 6}));
  EXPECT_THAT(error_of([&] { static_cast<void>(context.output("y")); }),
              HasSubstr("call run() first"));
}

TEST(SplitRun, AllocatesNothingAtShapesThatReturn) {
  const WorkerBudget budget(1);
  const auto engine = engine_of(build_text(net(kRowsApart)));
  for (const Step& step : plan_of(*engine).steps)
    if (step.kernel.ends_with(".onednn")) GTEST_SKIP() << "oneDNN allocates for itself";
  for (const int threads : {1, 2}) {
    ExecutionContext context(engine, {.threads = threads, .micro_batch = 2});
    const std::vector<Tensor> sets[] = {{random_f32({5, 6, 5, 5}, 7)},
                                        {random_f32({8, 6, 5, 5}, 7)}};
    const auto run_all = [&] {
      for (const auto& inputs : sets) {
        context.set_input("x", inputs[0].view());
        context.run();
      }
    };
    run_all();
    const int64_t before = allocations_so_far();
    run_all();
    EXPECT_EQ(allocations_so_far(), before) << threads << " threads";
  }
}

TEST(SplitRun, PreparesEachSliceAhead) {
  const WorkerBudget budget(1);
  const auto engine = engine_of(build_text(net(kRowsApart)));
  const Tensor x = random_f32({5, 6, 5, 5}, 7);
  for (const int threads : {1, 2}) {
    ExecutionContext context(engine, {.threads = threads, .micro_batch = 2});
    context.prepare({{{"x", x.dims()}}});
    const size_t prepared = context.memory_bytes();
    context.set_input("x", x.view());
    context.run();
    EXPECT_EQ(elements(context.output("y")).size(), 45u);
    EXPECT_EQ(context.memory_bytes(), prepared + 5 * 9 * sizeof(float)) << threads << " threads";
  }
}

TEST(SplitRun, TimesAreThoseOfAllSlices) {
  const WorkerBudget budget(1);
  const auto engine = engine_of(build_text(net(kRowsApart)));
  const std::vector<Tensor> inputs = {random_f32({5, 6, 5, 5}, 7)};
  for (const int threads : {1, 2}) {
    ExecutionContext context(engine, {.threads = threads, .micro_batch = 2});
    context.set_input("x", inputs[0].view());
    const std::vector<StepTime> times = context.profile();
    ASSERT_EQ(times.size(), plan_of(*engine).steps.size());
    for (const StepTime& time : times) EXPECT_EQ(time.times, 3) << time.step;
    EXPECT_EQ(times[0].step, plan_of(*engine).steps[0].name);
  }
}

TEST(SplitRun, AnObserverSeesTheWholeBatch) {
  const auto engine = engine_of(build_text(net(kRowsApart)));
  const std::vector<Tensor> inputs = {random_f32({5, 6, 5, 5}, 7)};
  ExecutionContext context(engine, {.micro_batch = 2});
  const auto cut = run(context, *engine, inputs);
  int64_t rows = 0;
  observe(context, [&](const Observation& observed) { rows = observed.value.dims[0]; });
  const auto whole = run(context, *engine, inputs);
  EXPECT_EQ(rows, 5);
  ASSERT_EQ(whole.at("y").size(), cut.at("y").size());
  observe(context, {});
  EXPECT_EQ(run(context, *engine, inputs), cut);
}

TEST(SplitRun, ImpossibleSizesAreToldAsOfAWholeBatch) {
  const auto engine = engine_of(
      build_text(net("  y = Pool(x) kernel=[7,3] strides=[1,1] pads_begin=[0,0] pads_end=[0,0] "
                     "dilations=[1,1]\n",
                     "x: f32[N,6,H,5]")));
  const Tensor x = random_f32({4, 6, 5, 5}, 7);
  for (const int64_t micro_batch : {0, 2, 100}) {
    ExecutionContext context(engine, {.micro_batch = micro_batch});
    context.set_input("x", x.view());
    EXPECT_THAT(error_of([&] { context.run(); }), HasSubstr("with these inputs, step"))
        << micro_batch;
  }
}

TEST(SplitRun, FewerThanNoRowsAreRefused) {
  const auto engine = engine_of(build_text(net(kRowsApart)));
  EXPECT_THAT(error_of([&] { ExecutionContext context(engine, {.micro_batch = -1}); }),
              HasSubstr("micro_batch is -1"));
}

}  // namespace
}  // namespace anneal::testing
