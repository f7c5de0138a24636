// A context keeps what it computed for the shapes it met last: they give the same results when they
// return, allocate nothing, and take no more memory than they may.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/engine/counting_new.h"
#include "anneal/tests/engine/graphs.h"
#include "anneal/tests/worker_budget.h"

namespace anneal::testing {
namespace {

using ::testing::HasSubstr;

// A branch, a scan and a loop whose bodies have sizes of the outer graph.
constexpr std::string_view kBodies = R"txt(
size N in 1..16 opt 4
graph bodies(x: f32[N,6], z: f32[N,6])
  const m: f32[6,6] = random(1)
  const trips: i64[] = {3}
  const s: f32[6] = random(2)
  body then(x1: f32[N,6], z1: f32[N,6])
    a = Softmax(x1) axis=1
    return a
  end
  body else(x1: f32[N,6], z1: f32[N,6])
    return z1
  end
  body again(i: i64[], c: bool[], v: f32[N,6], m1: f32[6,6])
    w = MatMul(v, m1)
    return c, w
  end
  body row(s1: f32[6], x2: f32[6])
    t = Pointwise(s1, x2) program="(f32,f32)->(f32) add($0,$1)"
    return t, t as rows
  end
  total = Reduce(x, i64{0, 1}) kind=sum keepdims=false
  positive = Pointwise(total) program="(f32)->(bool) lt(0f32,$0)"
  a = If(positive, x, z)
  b = Loop(trips, _, a, m) body=2 carried=1
  last, rows = Scan(s, b) body=3 carried=1 axes=[0] reverse=[0] output_axes=[0] output_reverse=[0]
  return rows as y, last as last
)txt";

std::vector<Tensor> inputs_of(int64_t n) {
  return {random_f32({n, 6}, static_cast<uint32_t>(n)), random_f32({n, 6}, 99)};
}

void bind(ExecutionContext& context, const Engine& engine, const std::vector<Tensor>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    context.set_input(engine.inputs()[i].name, inputs[i].view());
}

int64_t allocations_of_run(ExecutionContext& context, const Engine& engine,
                           const std::vector<Tensor>& inputs) {
  const int64_t before = allocations_so_far();
  bind(context, engine, inputs);
  context.run();
  return allocations_so_far() - before;
}

TEST(ShapeCache, GiveTheSameWhenTheyReturn) {
  for (const std::string_view text : {kDynamicNet, kBodies}) {
    const auto engine = engine_of(build_text(text));
    for (const int kept : {1, 2, 8}) {
      ExecutionContext context(engine, {.shape_cache_size = kept});
      for (const int64_t n : {4, 1, 4, 16, 1, 3, 4, 16, 2, 3}) {
        ExecutionContext fresh(engine);
        EXPECT_EQ(run(context, *engine, inputs_of(n)), run(fresh, *engine, inputs_of(n)))
            << kept << " kept, N = " << n;
      }
    }
  }
}

TEST(ShapeCache, AlternatingAllocatesNothing) {
  const WorkerBudget budget(1);
  for (const std::string_view text : {kDynamicNet, kBodies})
    for (const int threads : {1, 2}) {
      const auto engine = engine_of(build_text(text));
      ExecutionContext context(engine, {.threads = threads});
      std::vector<std::vector<Tensor>> sets;
      for (const int64_t n : {7, 16, 1, 5}) sets.push_back(inputs_of(n));
      for (int round = 0; round < 2; ++round)
        for (const auto& inputs : sets) allocations_of_run(context, *engine, inputs);
      for (const auto& inputs : sets)
        EXPECT_EQ(allocations_of_run(context, *engine, inputs), 0) << threads << " threads";
    }
}

TEST(ShapeCache, TheOneUsedLongestAgoLeaves) {
  const auto engine = engine_of(build_text(kDynamicNet));
  ExecutionContext context(engine, {.shape_cache_size = 2});
  const auto one = inputs_of(1), two = inputs_of(2), three = inputs_of(3);
  allocations_of_run(context, *engine, three);
  allocations_of_run(context, *engine, two);
  EXPECT_EQ(allocations_of_run(context, *engine, three), 0);
  EXPECT_GT(allocations_of_run(context, *engine, one), 0);  // instead of two
  EXPECT_EQ(allocations_of_run(context, *engine, three), 0);
  EXPECT_EQ(allocations_of_run(context, *engine, one), 0);
  EXPECT_GT(allocations_of_run(context, *engine, two), 0);
}

// As the products of a decoder, whose mask is longer in each run.
TEST(ShapeCache, StepsOfTheSameSizesStayPrepared) {
  constexpr int kProducts = 40;
  std::string text = "graph net(x: f32[1,32], mask: f32[1,T])\n  const m: f32[32,32] = random(1)\n";
  std::string last = "x";
  for (int i = 0; i < kProducts; ++i) {
    text += fmt::format("  p{0} = MatMul({1}, m)\n  a{0} = Softmax(p{0}) axis=1\n", i, last);
    last = fmt::format("a{}", i);
  }
  text += "  shown = Softmax(mask) axis=1\n  return " + last + " as y, shown as shown\n";
  const auto engine = engine_of(build_text(text));
  const auto inputs = [](int64_t length) {
    return std::vector<Tensor>{random_f32({1, 32}, 1), random_f32({1, length}, 2)};
  };
  ExecutionContext context(engine, {.threads = 1, .shape_cache_size = 2});
  run(context, *engine, inputs(5));
  // Each step that is prepared allocates at least once: every step for the second shapes, those of
  // the mask for further ones.
  const int64_t of_all = allocations_of_run(context, *engine, inputs(6));
  for (const int64_t length : {7, 8, 9})
    EXPECT_LE(allocations_of_run(context, *engine, inputs(length)), of_all - 2 * kProducts);
  ExecutionContext fresh(engine);
  EXPECT_EQ(run(context, *engine, inputs(9)), run(fresh, *engine, inputs(9)));
}

// Sizes of which only some change: contents that are sizes, views, and sizes that must be equal.
constexpr std::string_view kTwoSizes = R"txt(
size A in 1..64
size B in 1..64
graph two(x: f32[A,6], y: f32[B,6], z: f32[B,6])
  end = SizeTensor() elements=[max(A - 2,1)]
  part = Slice(x, i64{0}, end, i64{0}, i64{1})
  shape = SizeTensor() elements=[2,3*B]
  flat = Reshape(y, shape)
  sum = Pointwise(y, z) program="(f32,f32)->(f32) add($0,$1)"
  soft = Softmax(sum) axis=1
  return part as part, flat as flat, soft as soft
)txt";

TEST(ShapeCache, OnlySomeSizesChange) {
  const auto engine = engine_of(build_text(kTwoSizes));
  const auto inputs = [](int64_t a, int64_t b) {
    return std::vector<Tensor>{random_f32({a, 6}, 1), random_f32({b, 6}, 2), random_f32({b, 6}, 3)};
  };
  for (const int kept : {1, 2}) {
    ExecutionContext context(engine, {.shape_cache_size = kept});
    for (const auto& [a, b] :
         {std::pair<int64_t, int64_t>{4, 2}, {5, 2}, {5, 3}, {4, 3}, {1, 3}, {4, 2}}) {
      ExecutionContext fresh(engine);
      EXPECT_EQ(run(context, *engine, inputs(a, b)), run(fresh, *engine, inputs(a, b)))
          << kept << " kept, " << a << " and " << b;
    }
  }
}

// Scales that are no whole numbers follow from two sizes, and a third one changes the steps behind.
TEST(ShapeCache, RealsThatFollowFromSizes) {
  const auto engine = engine_of(build_text(R"txt(
size N in 1..8
size A in 1..64
size B in 1..64
graph scaled(x: f32[N,1,8,8], a: f32[A], b: f32[B])
  m = SizeTensor() elements=[A]
  n = SizeTensor() elements=[B]
  p = Pointwise(m) program="(i64)->(f32) mul(f32($0),0.3f32)"
  q = Pointwise(n) program="(i64)->(f32) mul(f32($0),0.3f32)"
  s = Concat(p, q) axis=0
  y = Resize(x, _, _, s) axes=[2,3]
  return y
)txt"));
  const auto inputs = [](int64_t n, int64_t a, int64_t b) {
    return std::vector<Tensor>{random_f32({n, 1, 8, 8}, 1), random_f32({a}, 2), random_f32({b}, 3)};
  };
  for (const int kept : {1, 2}) {
    ExecutionContext context(engine, {.shape_cache_size = kept});
    for (const auto& [n, a, b] : {std::array<int64_t, 3>{1, 4, 7},
                                  {2, 4, 7},
                                  {2, 5, 7},
                                  {2, 5, 6},
                                  {1, 5, 6},
                                  {1, 6, 5},
                                  {1, 10, 5},
                                  {3, 10, 5},
                                  {1, 4, 7}}) {
      ExecutionContext fresh(engine);
      EXPECT_EQ(run(context, *engine, inputs(n, a, b)), run(fresh, *engine, inputs(n, a, b)))
          << kept << " kept, " << n << ", " << a << " and " << b;
    }
  }
}

TEST(ShapeCache, TakeBoundedMemory) {
  const auto engine = engine_of(build_text(kBodies));
  ExecutionContext context(engine, {.shape_cache_size = 3});
  for (int64_t n = 16; n > 0; --n) run(context, *engine, inputs_of(n));
  const size_t full = context.memory_bytes();
  for (int64_t n = 16; n > 0; --n) run(context, *engine, inputs_of(n));
  EXPECT_EQ(context.memory_bytes(), full);
}

// The body's sizes are new in each iteration.
TEST(ShapeCache, OfALoopThatGrowsTakeBoundedMemory) {
  const auto engine = engine_of(build_text(R"txt(
graph grow(n: i64[], v: f32[M])
  body again(i: i64[], c: bool[], v1: f32[K])
    t = Reduce(v1, i64{0}) kind=max
    w = Concat(v1, t) axis=0
    return c, w
  end
  y = Loop(n, _, v) body=0 carried=1
  return y
)txt"));
  const auto memory_after = [&](int64_t trips) {
    ExecutionContext context(engine);
    const std::vector<Tensor> inputs = {Tensor::of<int64_t>(DataType::kI64, {}, {{trips}}),
                                        random_f32({3}, 1)};
    EXPECT_EQ(run(context, *engine, inputs)["y"].size(), static_cast<size_t>(3 + trips));
    return context.memory_bytes();
  };
  const size_t tens = memory_after(10), hundreds = memory_after(300);
  // The sequence itself and what is made of it: at most a few copies of 303 floats.
  EXPECT_LT(hundreds, tens + 10 * 303 * sizeof(float));
}

TEST(ShapeCache, AShapeThatIsRefusedLeavesTheOthers) {
  const auto engine = engine_of(build_text(R"txt(
size N in 1..16 opt 4
graph halves(x: f32[N], z: f32[1])
  s = SizeTensor() elements=[2*(N//2)] scalar=false
  t = Softmax(x) axis=0
  e = Expand(z, s)
  y = Pointwise(t, e) program="(f32,f32)->(f32) add($0,$1)"
  return y
)txt"));
  for (const int kept : {1, 4}) {
    ExecutionContext context(engine, {.shape_cache_size = kept});
    const std::vector<Tensor> even = {random_f32({4}, 1), random_f32({1}, 2)};
    const std::vector<Tensor> odd = {random_f32({5}, 1), random_f32({1}, 2)};
    const auto want = run(context, *engine, even);
    bind(context, *engine, odd);
    try {
      context.run();
      FAIL() << "5 and 4 numbers are added";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("step \"y\""));
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    }
    EXPECT_EQ(run(context, *engine, even), want);
    const std::vector<Tensor> other = {random_f32({6}, 1), random_f32({1}, 2)};
    ExecutionContext fresh(engine);
    EXPECT_EQ(run(context, *engine, other), run(fresh, *engine, other));
    bind(context, *engine, odd);
    EXPECT_THROW(context.run(), Error);
    EXPECT_EQ(run(context, *engine, even), want);
  }
}

// Of a run whose outputs are the caller's memory, so that the context needs none for them.
int64_t allocations_of_first_run(ExecutionContext& context, const Engine& engine, int64_t n) {
  const auto inputs = inputs_of(n);
  const int64_t before = allocations_so_far();
  bind(context, engine, inputs);
  static_cast<void>(context.output_dims(engine.outputs()[0].name));
  const int64_t bound = allocations_so_far();
  std::vector<std::vector<float>> memory;
  for (const TensorInfo& port : engine.outputs()) {
    const Dims dims = context.output_dims(port.name);
    memory.emplace_back(static_cast<size_t>(count(dims)));
    auto* const data = reinterpret_cast<std::byte*>(memory.back().data());
    context.set_output(port.name, row_major_view(DataType::kF32, dims, data));
  }
  const int64_t set = allocations_so_far();
  context.run();
  return allocations_so_far() - set + bound - before;
}

TEST(PreparedShapes, ADeclaredShapeHasNoFirstRun) {
  const auto engine = engine_of(build_text(kDynamicNet));
  ExecutionContext context(engine), unprepared(engine, {.prewarm_profiles = false});
  EXPECT_EQ(context.arena_bytes(), 0u);
  EXPECT_EQ(unprepared.memory_bytes(), 0u);
  for (const int64_t n : {4, 1, 16}) {
    EXPECT_EQ(allocations_of_first_run(context, *engine, n), 0) << n;
    EXPECT_GT(allocations_of_first_run(unprepared, *engine, n), 0) << n;
  }
  ExecutionContext opt(engine, {.shape_cache_size = 1});
  EXPECT_EQ(allocations_of_first_run(opt, *engine, 4), 0);
}

TEST(PreparedShapes, WhatWasNotDeclaredIsLeftToTheRun) {
  for (const std::string_view text : {std::string_view(R"txt(
graph open(x: f32[N,6])
  y = Softmax(x) axis=1
  return y
)txt"),
                                      kConvNet, kLateNet}) {
    const auto engine = engine_of(build_text(text));
    EXPECT_EQ(ExecutionContext(engine).memory_bytes(), 0u);
  }
}

// Not every shape within the bounds is one that the net can have.
TEST(PreparedShapes, ADeclaredShapeMayBeImpossible) {
  const auto engine = engine_of(build_text(R"txt(
size H in 1..9 opt 5
graph window(x: f32[1,2,H,H])
  const w: f32[2,2,4,4] = random(1)
  c = Conv(x, w) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  return c
)txt"));
  ExecutionContext context(engine);
  EXPECT_EQ(run(context, *engine, {random_f32({1, 2, 9, 9}, 1)})["c"].size(), 72u);
}

TEST(PreparedShapes, ACallerPreparesMore) {
  const auto engine = engine_of(build_text(kDynamicNet));
  ExecutionContext context(engine);
  const std::vector<InputShape> nine = {{"x", {9, 6}}, {"z", {9, 6}}};
  context.prepare(nine);
  EXPECT_EQ(allocations_of_first_run(context, *engine, 9), 0);
}

TEST(PreparedShapes, BodiesArePreparedToo) {
  const auto engine = engine_of(build_text(kBodies));
  ExecutionContext context(engine), unprepared(engine, {.prewarm_profiles = false});
  // What a loop keeps from iteration to iteration is found while it runs.
  EXPECT_LT(2 * allocations_of_first_run(context, *engine, 16),
            allocations_of_first_run(unprepared, *engine, 16));
}

TEST(PreparedShapes, WhatIsSetStaysSet) {
  const auto engine = engine_of(build_text(kDynamicNet));
  ExecutionContext context(engine);
  const auto inputs = inputs_of(3);
  const auto want = run(context, *engine, inputs);
  const std::vector<InputShape> many = {{"x", {16, 6}}, {"z", {16, 6}}};
  context.prepare(many);
  EXPECT_THROW(context.output("y"), Error);
  context.run();
  EXPECT_EQ(elements(context.output("y")), want.at("y"));
  context.prepare({});  // what is set
  context.run();
  EXPECT_EQ(elements(context.output("y")), want.at("y"));
}

TEST(PreparedShapes, WrongOnesAreRefusedByName) {
  const auto engine = engine_of(build_text(kDynamicNet));
  ExecutionContext context(engine);
  const auto error_of = [&](const std::vector<InputShape>& inputs) -> std::string {
    try {
      context.prepare(inputs);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_of({{"w", {3, 6}}}), HasSubstr("there is no input \"w\""));
  EXPECT_THAT(error_of({{"x", {3, 6}}}), HasSubstr("no shape is given for input \"z\""));
  EXPECT_THAT(error_of({{"x", {3, 6}}, {"x", {4, 6}}}), HasSubstr("two shapes are given"));
  EXPECT_THAT(error_of({{"x", {17, 6}}, {"z", {17, 6}}}), HasSubstr("from [1,6] to [16,6]"));
  EXPECT_THAT(error_of({{"x", {3, 6}}, {"z", {4, 6}}}), HasSubstr("N is 4 here, but 3"));
  const auto inputs = inputs_of(3);
  ExecutionContext fresh(engine);
  EXPECT_EQ(run(context, *engine, inputs), run(fresh, *engine, inputs));
}

}  // namespace
}  // namespace anneal::testing
