// Batches run a few rows at a time: which plans allow it, and that nothing else changes.
#include "anneal/engine/run/row_slices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/engine/counting_new.h"
#include "anneal/tests/error_of.h"

namespace anneal::testing {
namespace {

using ::testing::HasSubstr;

// A body between a heading and "return y"; x is f32[N,6,5,5].
std::string net(std::string_view body, std::string_view inputs = "x: f32[N,6,5,5]") {
  return "graph net(" + std::string(inputs) + ")\n" + std::string(body) + "  return y\n";
}

constexpr std::string_view kConv = R"txt(
  const w: f32[7,6,3,3] = random(1)
  const b: f32[7,1,1] = random(2)
  c = Conv(x, w) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  r = Pointwise(c, b) program="(f32,f32)->(f32) max(add($0,$1),0f32)"
  p = Pool(r) kernel=[3,3] strides=[2,2] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  k = Concat(p, p) axis=1
  m = Reduce(k, i64{2,3}) kind=mean keepdims=false
  const v: f32[14,9] = random(3)
  s = MatMul(m, v)
  y = Softmax(s) axis=1
)txt";

struct Rows {
  const char* what;
  std::string text;
  bool are_apart;
};
const Rows kPlans[] = {
    {"a convolution net", net(kConv), true},
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
    {"a constant size", net(kConv, "x: f32[4,6,5,5]"), false},
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
    {"a size that values decide", net("  y = NonZero(x)\n", "x: f32[N,6]"), false},
};

TEST(RowSlices, PlansWhoseRowsAreApart) {
  for (const Rows& each : kPlans)
    EXPECT_EQ(keeps_rows_apart(build_text(each.text).plans[0]), each.are_apart) << each.what;
}

TEST(RowSlices, NoPlanForAGpu) {
  BuildOptions options;
  options.targets = {"emulated"};
  EXPECT_FALSE(keeps_rows_apart(build_text(net(kConv), options).plans[0]));
}

TEST(RowSlices, BatchesAreCutThatLeaveTheCache) {
  const std::string text =
      net("  const w: f32[16,16,1,1] = random(1)\n"
          "  y = Conv(x, w) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]\n",
          "x: f32[N,16,H,100]");
  const EngineFile file = build_text(text);
  const Plan& plan = file.plans[0];
  const auto at_once = [&](int64_t rows, int64_t height, int threads) {
    const Dims dims[] = {{rows, 16, height, 100}};
    return rows_at_once(plan, dims, threads);
  };
  // A row of 1.28 MB.
  EXPECT_EQ(at_once(16, 100, 1), 2);
  EXPECT_EQ(at_once(15, 100, 1), 2);
  EXPECT_EQ(at_once(16, 100, 3), 3);
  EXPECT_EQ(at_once(16, 100, 10), 8);
  EXPECT_EQ(at_once(8, 100, 1), 8);
  EXPECT_EQ(at_once(1, 10'000, 1), 1);
  EXPECT_EQ(at_once(0, 100, 1), 0);
}

TEST(RowSlices, SmallRowsFillTheCache) {
  const EngineFile file =
      build_text(net("  y = Pointwise(x) program=\"(f32)->(f32) neg($0)\"\n", "x: f32[N,4]"));
  const auto at_once = [&](int64_t rows, int threads) {
    const Dims dims[] = {{rows, 4}};
    return rows_at_once(file.plans[0], dims, threads);
  };
  EXPECT_EQ(at_once(1'000'000, 1), 1 << 15);
  EXPECT_EQ(at_once(1'000'000, 2), 1 << 16);
  EXPECT_EQ(at_once(1 << 15, 1), 1 << 15);
}

TEST(RowSlices, BatchesStayWholeWhereWeightsWeighMore) {
  const auto at_once = [](const std::string& columns, int64_t rows) {
    const EngineFile file =
        build_text(net("  const w: f32[1024," + columns + "] = random(1)\n  y = MatMul(x, w)\n",
                       "x: f32[N,4,1024]"));
    const Dims dims[] = {{rows, 4, 1024}};
    return rows_at_once(file.plans[0], dims, 1);
  };
  EXPECT_EQ(at_once("4", 1100), 63);       // 18 MB, and 17 times 16 kB
  EXPECT_EQ(at_once("1024", 1000), 1000);  // 33 MB, and 31 times 4 MB
}

TEST(SlicedRun, GivesWhatTheWholeBatchGives) {
  const auto engine = engine_of(build_text(net(kConv)));
  for (const int64_t rows_at_once : {1, 2, 3, 5, 8, 100}) {
    ExecutionContext context(engine, {.rows_at_once = rows_at_once});
    for (const int64_t n : {5, 1, 8, 0, 5, 16, 2}) {
      const std::vector<Tensor> inputs = {random_f32({n, 6, 5, 5}, 7)};
      const auto want = reference(net(kConv), inputs).at("y");
      const auto got = run(context, *engine, inputs).at("y");
      ASSERT_EQ(context.output_dims("y"), (Dims{n, 9}));
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(got[i], want[i], 1e-5) << n << " rows, " << rows_at_once << " at once";
    }
  }
}

TEST(SlicedRun, TheCallersMemoryMayHaveAnyStrides) {
  const auto engine = engine_of(build_text(net(kConv)));
  const std::vector<Tensor> inputs = {random_f32({7, 6, 5, 5}, 7)};
  const auto want = reference(net(kConv), inputs).at("y");
  ExecutionContext context(engine, {.rows_at_once = 2});
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

TEST(SlicedRun, MemoryOfAnotherShapeIsRefused) {
  const auto engine = engine_of(build_text(net(kConv)));
  const std::vector<Tensor> five = {random_f32({5, 6, 5, 5}, 7)},
                            three = {random_f32({3, 6, 5, 5}, 7)};
  ExecutionContext context(engine, {.rows_at_once = 1});
  std::vector<float> memory(5 * 9);
  context.set_input("x", five[0].view());
  context.set_output(
      "y", row_major_view(DataType::kF32, {5, 9}, reinterpret_cast<std::byte*>(memory.data())));
  context.run();
  context.set_input("x", three[0].view());
  EXPECT_THAT(error_of([&] { context.run(); }),
              HasSubstr("output \"y\" has shape [5,9], with these inputs it is [3,9]"));
  EXPECT_THAT(error_of([&] { static_cast<void>(context.output("y")); }), HasSubstr("after run()"));
}

TEST(SlicedRun, OutputsStayUntilSomethingIsBound) {
  const auto engine = engine_of(build_text(net(kConv)));
  const std::vector<Tensor> inputs = {random_f32({5, 6, 5, 5}, 7)};
  ExecutionContext context(engine, {.rows_at_once = 2});
  const auto got = run(context, *engine, inputs);
  EXPECT_EQ(context.output_dims("y"), (Dims{5, 9}));
  EXPECT_EQ(elements(context.output("y")), got.at("y"));
  context.set_input("x", inputs[0].view());
  EXPECT_THAT(error_of([&] { static_cast<void>(context.output("y")); }), HasSubstr("after run()"));
}

TEST(SlicedRun, ActivationsAreThoseOfOneSlice) {
  const auto engine = engine_of(build_text(net(kConv)));
  const std::vector<Tensor> inputs = {random_f32({16, 6, 5, 5}, 7)};
  ExecutionContext whole(engine, {.rows_at_once = 16}), cut(engine, {.rows_at_once = 2});
  run(whole, *engine, inputs);
  run(cut, *engine, inputs);
  EXPECT_LT(cut.arena_bytes(), whole.arena_bytes() / 4);
}

TEST(SlicedRun, AllocatesNothingAtShapesThatReturn) {
  const auto engine = engine_of(build_text(net(kConv)));
  for (const Step& step : engine->plan().steps)
    if (step.kernel.ends_with(".onednn")) GTEST_SKIP() << "oneDNN allocates for itself";
  ExecutionContext context(engine, {.rows_at_once = 2});
  const std::vector<Tensor> sets[] = {{random_f32({5, 6, 5, 5}, 7)}, {random_f32({8, 6, 5, 5}, 7)}};
  const auto run_all = [&] {
    for (const auto& inputs : sets) {
      context.set_input("x", inputs[0].view());
      context.run();
    }
  };
  run_all();
  const int64_t before = allocations_so_far();
  run_all();
  EXPECT_EQ(allocations_so_far(), before);
}

TEST(SlicedRun, TimesAreThoseOfAllSlices) {
  const auto engine = engine_of(build_text(net(kConv)));
  const std::vector<Tensor> inputs = {random_f32({5, 6, 5, 5}, 7)};
  ExecutionContext context(engine, {.rows_at_once = 2});
  context.set_input("x", inputs[0].view());
  const std::vector<StepTime> times = context.profile();
  ASSERT_EQ(times.size(), engine->plan().steps.size());
  for (const StepTime& time : times) EXPECT_EQ(time.times, 3) << time.step;
}

TEST(SlicedRun, AnObserverSeesTheWholeBatch) {
  const auto engine = engine_of(build_text(net(kConv)));
  const std::vector<Tensor> inputs = {random_f32({5, 6, 5, 5}, 7)};
  ExecutionContext context(engine, {.rows_at_once = 2});
  const auto cut = run(context, *engine, inputs);
  int64_t rows = 0;
  context.observe([&](const Observed& observed) { rows = observed.value.dims[0]; });
  const auto whole = run(context, *engine, inputs);
  EXPECT_EQ(rows, 5);
  ASSERT_EQ(whole.at("y").size(), cut.at("y").size());
  context.observe({});
  EXPECT_EQ(run(context, *engine, inputs), cut);
}

TEST(SlicedRun, ImpossibleSizesAreToldAsOfAWholeBatch) {
  const auto engine = engine_of(
      build_text(net("  y = Pool(x) kernel=[7,3] strides=[1,1] pads_begin=[0,0] pads_end=[0,0] "
                     "dilations=[1,1]\n",
                     "x: f32[N,6,H,5]")));
  const Tensor x = random_f32({4, 6, 5, 5}, 7);
  for (const int64_t rows_at_once : {0, 2, 100}) {
    ExecutionContext context(engine, {.rows_at_once = rows_at_once});
    context.set_input("x", x.view());
    EXPECT_THAT(error_of([&] { context.run(); }), HasSubstr("with these inputs, step"))
        << rows_at_once;
  }
}

TEST(SlicedRun, FewerThanNoRowsAreRefused) {
  const auto engine = engine_of(build_text(net(kConv)));
  EXPECT_THAT(error_of([&] { ExecutionContext context(engine, {.rows_at_once = -1}); }),
              HasSubstr("-1 rows at once"));
}

}  // namespace
}  // namespace anneal::testing
