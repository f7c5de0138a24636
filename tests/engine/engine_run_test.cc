// Engines give what the reference gives: static, dynamic and value-dependent sizes, any strides,
// many threads and contexts; wrong bindings are refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <thread>

#include "anneal/core/channels_last.h"
#include "anneal/core/new_tensor.h"
#include "anneal/engine/builder/inputs/drawn_inputs.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/optimizer/pipeline/pipeline.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/engine/counting_new.h"
#include "anneal/tests/engine/graphs.h"
#include "anneal/tests/worker_budget.h"

namespace anneal::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void expect_near(const std::map<std::string, std::vector<float>>& got,
                 const std::map<std::string, std::vector<float>>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, values] : want) {
    ASSERT_EQ(got.at(name).size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(got.at(name)[i], values[i], 1e-4f * (1 + std::abs(values[i])))
          << name << "[" << i << "]";
  }
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(EngineRun, StaticNetGivesWhatTheReferenceGives) {
  const auto engine = engine_of(build_text(kConvNet));
  EXPECT_THAT(engine->load_warnings(), ::testing::IsEmpty());
  ExecutionContext context(engine);
  for (uint32_t seed = 1; seed < 4; ++seed) {
    const std::vector<Tensor> inputs = {random_f32({1, 3, 9, 7}, seed)};
    expect_near(run(context, *engine, inputs), reference(kConvNet, inputs));
  }
}

TEST(EngineRun, SkippingEveryPassChangesNothing) {
  GraphBuildOptions options;
  for (const Pass& pass : default_pipeline()) options.passes.skip.emplace_back(pass.name);
  const auto engine = engine_of(build_text(kConvNet, options));
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = {random_f32({1, 3, 9, 7}, 5)};
  expect_near(run(context, *engine, inputs), reference(kConvNet, inputs));
}

TEST(EngineRun, SizesChangeFromRunToRun) {
  const auto engine = engine_of(build_text(kDynamicNet));
  ExecutionContext context(engine);
  for (const int64_t n : {4, 1, 16, 3, 3}) {
    const std::vector<Tensor> inputs = {random_f32({n, 6}, 1), random_f32({n, 6}, 2)};
    expect_near(run(context, *engine, inputs), reference(kDynamicNet, inputs));
    EXPECT_EQ(context.output("y").dims, Dims({2 * n, 5}));
  }
}

// min(N + 1, 2) is 1 or 2, so its half, rounded up, is 1: for the graph that had M found to be 4,
// and for whoever infers a step of the plan.
TEST(EngineRun, SizesOfOnePossibleValue) {
  Graph graph = parse_graph(R"txt(
graph g(x: f32[N,M])
  const w: f32[4,2] = {1, 2, 3, 4, 5, 6, 7, 8}
  p = Pad(x, i64{1, 0, 0, 0})
  y = Slice(p, i64{0}, i64{2}, i64{0}, i64{2})
  z = MatMul(y, w)
  return z, y
)txt");
  graph.refine();
  EXPECT_EQ(graph.value(graph.find_value("y")).type().shape[0], Size(1));
  const auto engine = engine_of(build(graph.clone(), {}));
  ExecutionContext context(engine);
  for (const int64_t rows : {0, 1, 3}) {
    const std::vector<Tensor> inputs = {random_f32({rows, 4}, 1)};
    EXPECT_EQ(run(context, *engine, inputs).at("z"), std::vector<float>(2)) << rows;
  }
}

// Shape arithmetic in i32 is not solved while building, and parts of it only look at memory.
TEST(EngineRun, SizesGoThroughWhatWouldBeAView) {
  const std::string_view net = R"txt(
size N in 1..16 opt 4
size L in 1..16 opt 4
graph g(x: f32[N,L])
  s = ShapeOf(x) start=0 end=2
  i = Pointwise(s) program="(i64)->(i32) i32($0)"
  l = Slice(i, i64{1}, i64{2}, i64{0}, i64{1})
  n = Reshape(l, i64{})
  r = Range(i32[]{0}, n, i32[]{1})
  y = Pointwise(x, r) program="(f32,i32)->(f32) add($0,f32($1))"
  return y as y
)txt";
  const auto engine = engine_of(build_text(net));
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = {random_f32({5, 3}, 1)};
  expect_near(run(context, *engine, inputs), reference(net, inputs));
}

TEST(EngineRun, BuffersOfKnownSizeBesideOpenSizes) {
  const std::string_view net = R"txt(
size N in 1..16 opt 4
graph g(x: f32[N,3])
  n = ShapeOf(x) start=0 end=2
  y = Expand(x, n)
  return y as y, n as dims
)txt";
  const auto engine = engine_of(build_text(net));
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = {random_f32({5, 3}, 1)};
  context.set_input("x", inputs[0].view());
  context.run();
  EXPECT_EQ(context.output("y").dims, (Dims{5, 3}));
  EXPECT_EQ(context.output("dims").as<int64_t>()[0], 5);
}

TEST(EngineRun, SizesThatDependOnValues) {
  const auto engine = engine_of(build_text(kLateNet));
  ExecutionContext context(engine);
  for (const int64_t n : {2, 5, 1}) {
    const std::vector<Tensor> inputs = {random_f32({3}, 1), tensor_i64({n, 3})};
    expect_near(run(context, *engine, inputs), reference(kLateNet, inputs));
    EXPECT_EQ(context.output("y").dims, Dims({n, 3}));
  }
}

// After global pooling the axes of size 1 may have any stride: flattening them copies nothing.
TEST(EngineRun, FlatteningAPooledTensorIsAView) {
  constexpr std::string_view kPooled = R"txt(
graph pooled(x: f32[2,3,8,8])
  const w: f32[16,3,3,3] = random(1)
  const m: f32[16,5] = random(2)
  c = Conv(x, w) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  p = Reduce(c, i64{2, 3}) kind=mean
  f = Reshape(p, i64{2, 16})
  y = MatMul(f, m)
  return y
)txt";
  const auto engine = engine_of(build_text(kPooled));
  for (const Step& step : plan_of(*engine).steps)
    EXPECT_FALSE(std::holds_alternative<Reshape>(step.op)) << step.name;
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = {random_f32({2, 3, 8, 8}, 1)};
  expect_near(run(context, *engine, inputs), reference(kPooled, inputs));
}

// Nothing goes into sizes, so they could all be computed first, and would all live long.
TEST(EngineRun, SizesAreComputedForTheirFirstReader) {
  constexpr std::string_view kShapes = R"txt(
size N in 1..16 opt 4
graph shapes(x: f32[N,6])
  s = SizeTensor() elements=[N,3,2] scalar=false
  e = SizeTensor() elements=[2,N,6] scalar=false
  a = Softmax(x) axis=1
  v = Reshape(a, s)
  b = Softmax(v) axis=0
  c = Reduce(b, i64{1, 2}) kind=sum
  y = Expand(a, e)
  return y as y, c as c
)txt";
  const auto engine = engine_of(build_text(kShapes));
  std::vector<std::string> steps;
  for (const Step& step : plan_of(*engine).steps) steps.push_back(step.name);
  EXPECT_THAT(steps, ::testing::ElementsAre("a", "b", "c", "e", "y"));
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = {random_f32({3, 6}, 1)};
  expect_near(run(context, *engine, inputs), reference(kShapes, inputs));
}

TEST(EngineRun, AnyStridesMayBeBound) {
  const auto engine = engine_of(build_text(kConvNet));
  ExecutionContext context(engine);
  const Tensor input = random_f32({1, 3, 9, 7}, 3);
  const auto want = run(context, *engine, {input});

  std::vector<float> interleaved(input.as<float>().size());
  TensorView view{DataType::kF32, {1, 3, 9, 7}, channels_last_strides({1, 3, 9, 7}), nullptr};
  view.data = reinterpret_cast<std::byte*>(interleaved.data());
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t i = 0; i < 63; ++i)
      interleaved[static_cast<size_t>(i * 3 + c)] =
          input.as<float>()[static_cast<size_t>(c * 63 + i)];
  std::vector<float> padded(14, -1);
  context.set_input("x", view);
  context.set_output(
      "y", {DataType::kF32, {1, 7}, {14, 2}, reinterpret_cast<std::byte*>(padded.data())});
  context.run();
  for (size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(padded[2 * i], want.at("y")[i]);
    EXPECT_EQ(padded[2 * i + 1], -1);
  }
}

TEST(EngineRun, ManyThreadsShareAnEngine) {
  const auto engine = engine_of(build_text(kDynamicNet));
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (uint32_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      ExecutionContext context(engine, {.threads = 1 + static_cast<int>(t % 2)});
      for (uint32_t i = 0; i < 20; ++i) {
        const int64_t n = 1 + (t + i) % 16;
        const std::vector<Tensor> inputs = {random_f32({n, 6}, t), random_f32({n, 6}, i)};
        ExecutionContext fresh(engine);
        if (run(context, *engine, inputs) == run(fresh, *engine, inputs)) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 160);
}

TEST(EngineRun, TeamsOfAnySizeGiveTheSameBits) {
  const auto engine = engine_of(build_text(kConvNet));
  ExecutionContext one(engine, {.threads = 1}), two(engine, {.threads = 2});
  const std::vector<Tensor> inputs = {random_f32({1, 3, 9, 7}, 11)};
  EXPECT_EQ(run(one, *engine, inputs), run(two, *engine, inputs));
}

bool names_onednn(const Plan& plan) {
  return std::any_of(plan.steps.begin(), plan.steps.end(), [](const Step& step) {
    return step.kernel.find("onednn") != std::string::npos;
  });
}

TEST(EngineRun, RunAllocatesNothingWhenSizesAreKnown) {
  const WorkerBudget budget(1);
  for (const std::string_view text : {kConvNet, kDynamicNet})
    for (const int threads : {1, 2}) {
      const auto engine = engine_of(build_text(text));
      // Its primitives allocate for themselves; engine_without_onednn_test counts all of ours.
      if (names_onednn(plan_of(*engine))) continue;
      ExecutionContext context(engine, {.threads = threads});
      std::vector<Tensor> inputs;
      for (const TensorInfo& port : engine->inputs()) {
        Dims dims = port.dims;
        for (int axis = 0; axis < dims.rank(); ++axis)
          if (dims[axis] < 0) dims[axis] = 7;
        inputs.push_back(random_f32(dims, 1));
        context.set_input(port.name, inputs.back().view());
      }
      context.run();
      const int64_t before = allocations_so_far();
      for (int i = 0; i < 5; ++i) context.run();
      EXPECT_EQ(allocations_so_far() - before, 0) << threads << " threads";
    }
}

TEST(EngineRun, StagingAllocatesNothingOnSeveralThreads) {
  constexpr std::string_view kLarge = R"txt(
graph large(x: f32[500,700])
  y = Pointwise(x) program="(f32)->(f32) neg($0)"
  return y
)txt";
  const WorkerBudget budget(3);
  const auto engine = engine_of(build_text(kLarge));
  ExecutionContext context(engine, {.threads = 4, .micro_batch = 500});
  const Tensor x = random_f32({700, 500}, 1);
  std::vector<float> y(static_cast<size_t>(x.count()));
  const TensorView in{DataType::kF32, {500, 700}, {1, 500}, kernel_view(x).data};
  const TensorView out{
      DataType::kF32, {500, 700}, {1, 500}, reinterpret_cast<std::byte*>(y.data())};
  context.set_input("x", in);
  context.set_output("y", out);
  context.run();
  const int64_t before = allocations_so_far();
  for (int i = 0; i < 3; ++i) context.run();
  EXPECT_EQ(allocations_so_far() - before, 0);
  for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], -x.as<float>()[i]);
}

TEST(EngineRun, NanAndInfinityGoThroughAsNumbers) {
  constexpr std::string_view kRelu = R"txt(
graph relu(x: f32[4])
  y = Pointwise(x) program="(f32)->(f32) max($0,0f32)"
  return y
)txt";
  const auto engine = engine_of(build_text(kRelu));
  ExecutionContext context(engine);
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {std::nanf(""), inf, -inf, -1};
  const auto out = run(context, *engine, {Tensor::of<float>(DataType::kF32, {4}, values)}).at("y");
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_EQ(out[1], inf);
  EXPECT_EQ(out[2], 0);
  EXPECT_EQ(out[3], 0);
}

TEST(EngineRun, WrongBindingsAreRefusedByName) {
  const auto engine = engine_of(build_text(kDynamicNet));
  ExecutionContext context(engine);
  const Tensor x = random_f32({3, 6}, 1), z = random_f32({4, 6}, 1), wide = random_f32({3, 7}, 1);
  const Tensor flat = random_f32({18}, 1), many = random_f32({17, 6}, 1),
               integers = tensor_i64({1, 2, 3});
  EXPECT_THAT(error_of([&] { context.run(); }), HasSubstr("input \"x\" is not set"));
  EXPECT_THAT(error_of([&] { context.set_input("w", x.view()); }),
              HasSubstr("there is no input \"w\"; this engine has \"x\", \"z\""));
  EXPECT_THAT(error_of([&] { context.set_input("x", wide.view()); }),
              HasSubstr("has shape [3,7], the engine expects [N,6]"));
  EXPECT_THAT(error_of([&] { context.set_input("x", flat.view()); }),
              HasSubstr("the engine expects [N,6]"));
  EXPECT_THAT(error_of([&] { context.set_input("x", many.view()); }),
              HasSubstr("from [1,6] to [16,6]"));
  EXPECT_THAT(error_of([&] { context.set_input("x", integers.view()); }),
              HasSubstr("is i64, the engine expects f32"));
  context.set_input("x", x.view());
  context.set_input("z", z.view());
  EXPECT_THAT(error_of([&] { context.run(); }), HasSubstr("N is 4 here, but 3 in input \"x\""));
  EXPECT_THAT(error_of([&] { static_cast<void>(context.output("q")); }),
              HasSubstr("there is no output \"q\""));
  const Tensor same = random_f32({3, 6}, 2);
  context.set_input("z", same.view());
  context.run();
  std::vector<float> small(3);
  EXPECT_THAT(error_of([&] {
                context.set_output("y", row_major_view(DataType::kF32, {3},
                                                       reinterpret_cast<std::byte*>(small.data())));
              }),
              HasSubstr("with these inputs it is [6,5]"));
  TensorView one_row =
      row_major_view(DataType::kF32, {6, 5}, reinterpret_cast<std::byte*>(small.data()));
  // By these strides elements share memory.
  for (const Dims& strides : {Dims{0, 1}, Dims{1, 1}, Dims{4, 1}, Dims{1, 5}, Dims{-4, 1}}) {
    one_row.strides = strides;
    EXPECT_THAT(error_of([&] { context.set_output("y", one_row); }),
                HasSubstr("output \"y\" has shape [6,5] and strides " + to_string(strides)));
  }
  std::vector<float> memory(70);
  for (const Dims& strides : {Dims{1, 6}, Dims{12, 2}, Dims{7, 1}, Dims{2, 12}}) {
    TensorView apart =
        row_major_view(DataType::kF32, {6, 5}, reinterpret_cast<std::byte*>(memory.data()));
    apart.strides = strides;
    context.set_output("y", apart);
    context.run();
  }
}

TEST(EngineRun, MemoryThatOverlapsIsRefused) {
  constexpr std::string_view kTwo = R"txt(
graph two(x: f32[8], z: f32[8])
  y = Pointwise(x,z) program="(f32,f32)->(f32) add($0,$1)"
  v = Pointwise(x,z) program="(f32,f32)->(f32) mul($0,$1)"
  return y, v
)txt";
  const auto engine = engine_of(build_text(kTwo));
  ExecutionContext context(engine);
  std::vector<float> memory(40, 2);
  const auto at = [&](int64_t first, int64_t step = 1) {
    return TensorView{
        DataType::kF32, {8}, {step}, reinterpret_cast<std::byte*>(memory.data() + first)};
  };
  const auto refused = [&] { return error_of([&] { context.run(); }); };
  context.set_input("x", at(0));
  context.set_input("z", at(0));
  context.set_output("y", at(7));
  EXPECT_THAT(refused(), HasSubstr("output \"y\" overlaps that of input \"x\""));
  EXPECT_THAT(refused(), HasSubstr("overlaps")) << "it still does";
  context.set_output("y", at(0));
  EXPECT_THAT(refused(), HasSubstr("overlaps")) << "in place";
  context.set_output("y", at(8));
  context.set_output("v", at(15));
  EXPECT_THAT(refused(), HasSubstr("output \"v\" overlaps that of output \"y\""));
  EXPECT_THAT(error_of([&] { context.enqueue(Stream::make(), [] {}); }), HasSubstr("overlaps"));
  EXPECT_THAT(error_of([&] { context.profile(); }), HasSubstr("overlaps"));
  // One between the elements of the other.
  context.set_output("y", at(9, 2));
  context.set_output("v", at(10, 2));
  context.run();
  EXPECT_EQ(memory[9], 4);
  EXPECT_EQ(memory[24], 4);
  EXPECT_EQ(memory[25], 2);
  context.set_output("v", at(11, 2));
  EXPECT_THAT(refused(), HasSubstr("overlaps"));
  // An output that is not set any more is in the context.
  context.set_output("v", {});
  memory[9] = memory[10] = 0;
  context.run();
  EXPECT_EQ(memory[9], 4);
  EXPECT_EQ(memory[10], 0);
  EXPECT_EQ(elements(context.output("v"))[0], 4);
  EXPECT_NE(context.output("v").data, at(10).data);
}

// For an odd N the shapes do not hold equally many elements.
TEST(EngineRun, AReshapeOfOpenSizesIsChecked) {
  const auto engine = engine_of(build_text(R"txt(
graph odd(x: f32[N,2], k: f32[K])
  s = ShapeOf(k) start=0 end=1
  t = Concat(s, i64{4}) axis=0
  y = Reshape(x, t)
  return y
)txt"));
  ExecutionContext context(engine);
  const auto shapes = [&](int64_t n, int64_t k) {
    return run(context, *engine, {random_f32({n, 2}, 1), random_f32({k}, 2)})["y"].size();
  };
  EXPECT_EQ(shapes(6, 3), 12u);
  EXPECT_THROW(shapes(5, 2), Error);
  EXPECT_THROW(shapes(5, 3), Error);
  EXPECT_EQ(shapes(4, 2), 8u);
}

// Either of two open sizes may be the 1 that broadcasts, and what is made of the result's shape
// alone knows that.
TEST(EngineRun, OpenSizesBroadcastBothWays) {
  constexpr std::string_view text = R"txt(
graph both(x: f32[N,2], w: f32[M,2])
  sum = Pointwise(x, w) program="(f32,f32)->(f32) add($0,$1)"
  dims = ShapeOf(sum) start=0 end=2
  wide = Expand(w, dims)
  total = Reduce(wide, i64{0}) kind=sum keepdims=false
  y = Softmax(sum) axis=0
  sizes = Pointwise(dims) program="(i64)->(f32) f32($0)"
  return y, total, sizes
)txt";
  const auto engine = engine_of(build_text(text));
  ExecutionContext context(engine);
  for (const auto& [n, m] : {std::pair<int64_t, int64_t>{3, 1}, {1, 3}, {3, 3}, {1, 1}, {0, 1}}) {
    SCOPED_TRACE(std::to_string(n) + " and " + std::to_string(m));
    const std::vector<Tensor> inputs = {random_f32({n, 2}, 1), random_f32({m, 2}, 2)};
    expect_near(run(context, *engine, inputs), reference(text, inputs));
  }
  EXPECT_THAT(error_of([&] {
                run(context, *engine, {random_f32({3, 2}, 1), random_f32({2, 2}, 2)});
              }),
              HasSubstr("3 and 2 do not broadcast"));
}

TEST(EngineRun, AnEmptyBatchMayBeSliced) {
  constexpr std::string_view kSliced = R"txt(
size N in 0..5 opt 2
graph sliced(x: f32[N,8])
  a = Pointwise(x) program="(f32)->(f32) exp($0)"
  s = Slice(a, i64{2}, i64{3}, i64{1}, i64{1})
  z = Softmax(s) axis=1
  return z
)txt";
  const auto engine = engine_of(build_text(kSliced));
  ExecutionContext context(engine);
  for (const int64_t batch : {3, 0, 2, 0}) {
    const std::vector<Tensor> inputs = {random_f32({batch, 8}, 1)};
    EXPECT_EQ(run(context, *engine, inputs).at("z").size(), static_cast<size_t>(batch));
  }
}

// A run that is not given an input with a default value reads that.
constexpr std::string_view kScaled = R"txt(
graph scaled(x: f32[3], w: f32[3] = f32[3]{2, 3, 4})
  y = Pointwise(x, w) program="(f32,f32)->(f32) mul($0,$1)"
  return y
)txt";

constexpr std::string_view kOpen = R"txt(
size N in 0..8 opt 2
graph open(x: f32[N], w: f32[N] = f32[2]{2, 3})
  y = Pointwise(x, w) program="(f32,f32)->(f32) mul($0,$1)"
  return y
)txt";

Tensor f32(const std::vector<float>& values) {
  return Tensor::of<float>(DataType::kF32, {static_cast<int64_t>(values.size())}, values);
}

TEST(EngineRun, DefaultInputsAreReadUntilTheyAreSet) {
  for (const char* target : {"cpu", "emulated"}) {
    GraphBuildOptions options;
    options.targets = {target};
    const auto bytes = std::make_shared<std::vector<std::byte>>(save(build_text(kScaled, options)));
    const auto engine = make_engine(load_engine_file(*bytes, bytes), {.device = target});
    ASSERT_TRUE(engine->inputs()[1].default_value.has_value());
    EXPECT_EQ(*engine->inputs()[1].default_value, f32({2, 3, 4}));
    EXPECT_FALSE(engine->inputs()[0].default_value.has_value());
    ExecutionContext context(engine);
    const Tensor x = f32({1, 10, 100}), w = f32({5, 6, 7});
    EXPECT_THAT(error_of([&] { context.run(); }), HasSubstr("input \"x\" is not set"));
    context.set_input("x", x.view());
    context.run();
    EXPECT_THAT(elements(context.output("y")), ElementsAre(2, 30, 400));
    context.set_input("w", w.view());
    context.run();
    EXPECT_THAT(elements(context.output("y")), ElementsAre(5, 60, 700));
    context.set_input("w", {});
    EXPECT_THAT(error_of([&] { context.output("y"); }), HasSubstr("call run() first"));
    context.run();
    EXPECT_THAT(elements(context.output("y")), ElementsAre(2, 30, 400));
    context.set_input("x", {});
    EXPECT_THAT(error_of([&] { context.run(); }), HasSubstr("input \"x\" is not set"));
    EXPECT_THAT(error_of([&] { context.set_input("z", {}); }), HasSubstr("no input \"z\""));
  }
}

TEST(EngineRun, DefaultInputsOfOpenSizesFitTheOthers) {
  const auto engine = engine_of(build_text(kOpen));
  ExecutionContext context(engine);
  const Tensor two = f32({1, 10}), three = f32({1, 2, 3});
  context.set_input("x", two.view());
  context.run();
  EXPECT_THAT(elements(context.output("y")), ElementsAre(2, 30));
  context.set_input("x", three.view());
  EXPECT_THAT(error_of([&] { context.run(); }),
              HasSubstr("with the default values of \"w\" [2], which were not set"));
  context.set_input("w", three.view());
  context.run();
  EXPECT_THAT(elements(context.output("y")), ElementsAre(1, 4, 9));
  const auto drawn = draw_inputs(plan_of(*engine), weights_of(*engine), {{{2}, {2}}}, 1);
  EXPECT_EQ(drawn[1], f32({2, 3}));
}

// Rows of a batch that runs in parts are parts of the default value, too.
TEST(EngineRun, DefaultInputsOfABatchInParts) {
  constexpr std::string_view kBatch = R"txt(
graph batch(x: f32[8,2], w: f32[8,1] = f32[8,1]{1, 2, 3, 4, 5, 6, 7, 8})
  y = Pointwise(x, w) program="(f32,f32)->(f32) mul($0,$1)"
  return y
)txt";
  const auto engine = engine_of(build_text(kBatch));
  ASSERT_TRUE(plan_of(*engine).batch_split.has_value());
  ExecutionContext context(engine, {.threads = 2, .micro_batch = 3});
  const Tensor x = random_f32({8, 2}, 1);
  context.set_input("x", x.view());
  context.run();
  const auto y = elements(context.output("y"));
  for (size_t i = 0; i < y.size(); ++i)
    EXPECT_EQ(y[i], x.as<float>()[i] * static_cast<float>(i / 2 + 1));
}

// What bounds exclude cannot be the value of a run.
TEST(EngineRun, DefaultInputsHaveSizesThatRunsHave) {
  std::string text(kOpen);
  text.replace(text.find("0..8 opt 2"), 10, "3..8 opt 4");
  const auto engine = engine_of(build_text(text));
  EXPECT_FALSE(engine->inputs()[1].default_value.has_value());
  const auto& decisions = plan_of(*engine).decisions;
  const auto told = std::ranges::find(decisions, kNoDefaultValue, &Decision::stage);
  ASSERT_NE(told, decisions.end());
  EXPECT_THAT(told->text, HasSubstr("its default value of shape [2] is dropped"));
}

}  // namespace
}  // namespace anneal::testing
