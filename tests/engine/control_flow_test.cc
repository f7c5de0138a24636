// If, Loop and Scan in an engine: bodies as sub-plans, with real sizes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "anneal/engine/run/debug.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/engine/counting_new.h"
#include "anneal/tests/error_of.h"

namespace anneal::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Tensor scalar_i64(int64_t value) { return Tensor::of<int64_t>(DataType::kI64, {}, {{value}}); }
Tensor scalar_bool(bool value) {
  return Tensor::of<uint8_t>(DataType::kBool, {}, {{static_cast<uint8_t>(value)}});
}
Tensor floats(const Dims& dims, const std::vector<float>& values) {
  return Tensor::of<float>(DataType::kF32, dims, values);
}

// A branch inside a branch; x and z are captured by one branch each, and pass through.
constexpr std::string_view kBranches = R"txt(
size N in 1..16 opt 4
graph branches(a: bool[], b: bool[], x: f32[N], z: f32[N])
  body then(b1: bool[], x1: f32[N], z1: f32[N])
    body inner_then(x2: f32[N], z2: f32[N])
      r = Pointwise(x2, z2) program="(f32,f32)->(f32) add($0,$1)"
      return r
    end
    body inner_else(x2: f32[N], z2: f32[N])
      return x2
    end
    s = If(b1, x1, z1)
    t = Pointwise(s) program="(f32)->(f32) mul($0,10f32)"
    return t
  end
  body else(b1: bool[], x1: f32[N], z1: f32[N])
    return z1
  end
  y = If(a, b, x, z)
  w = Pointwise(y) program="(f32)->(f32) add($0,1f32)"
  return w
)txt";

TEST(ControlFlow, BranchesInBranches) {
  const auto engine = engine_of(build_text(kBranches));
  ExecutionContext context(engine);
  for (const int64_t n : {2, 5, 2}) {
    const std::vector<float> x(static_cast<size_t>(n), 2), z(static_cast<size_t>(n), 3);
    const auto first = [&](bool a, bool b) {
      const auto y = run(context, *engine,
                         {scalar_bool(a), scalar_bool(b), floats({n}, x), floats({n}, z)})["w"];
      EXPECT_EQ(y.size(), static_cast<size_t>(n));
      return y.front();
    };
    EXPECT_EQ(first(true, true), 51);
    EXPECT_EQ(first(true, false), 21);
    EXPECT_EQ(first(false, true), 4);
    EXPECT_EQ(first(false, false), 4);
  }
}

// Branches of different sizes: the result has a size that values decide, and so has what follows.
TEST(ControlFlow, BranchesOfDifferentSizes) {
  const auto engine = engine_of(build_text(R"txt(
graph sizes(a: bool[], x: f32[4])
  body then(x1: f32[4])
    y1 = Slice(x1, i64{0}, i64{2}, i64{0}, i64{1})
    return y1
  end
  body else(x1: f32[4])
    y1 = Concat(x1, x1) axis=0
    return y1
  end
  y = If(a, x)
  z = Pointwise(y) program="(f32)->(f32) neg($0)"
  s = Reduce(y, i64{0}) kind=sum keepdims=false
  return z, s
)txt"));
  ExecutionContext context(engine);
  auto got = run(context, *engine, {scalar_bool(true), floats({4}, {1, 2, 3, 4})});
  EXPECT_THAT(got["z"], ElementsAre(-1, -2));
  EXPECT_THAT(got["s"], ElementsAre(3));
  got = run(context, *engine, {scalar_bool(false), floats({4}, {1, 2, 3, 4})});
  EXPECT_THAT(got["z"], ElementsAre(-1, -2, -3, -4, -1, -2, -3, -4));
  EXPECT_THAT(got["s"], ElementsAre(20));
}

// Doubles v until it is at least `limit`, at most n times; tells v and the number of each
// iteration.
constexpr std::string_view kDouble = R"txt(
graph double(n: i64[], go: bool[], v: f32[2], limit: f32[])
  body again(i: i64[], c: bool[], v1: f32[2], limit1: f32[])
    w = Pointwise(v1) program="(f32)->(f32) mul($0,2f32)"
    most = Reduce(w, i64{0}) kind=max keepdims=false
    next = Pointwise(most, limit1) program="(f32,f32)->(bool) lt($0,$1)"
    k = Pointwise(i) program="(i64)->(f32) f32($0)"
    return next, w, v1 as seen, k
  end
  last, seen, numbers = Loop(n, go, v, limit) body=0 carried=1
  return last, seen, numbers
)txt";

TEST(ControlFlow, LoopStopsByCountAndByCondition) {
  const auto engine = engine_of(build_text(kDouble));
  ExecutionContext context(engine);
  const auto loop = [&](int64_t n, bool go, float limit) {
    return run(context, *engine,
               {scalar_i64(n), scalar_bool(go), floats({2}, {1, 3}), floats({}, {limit})});
  };
  auto got = loop(3, true, 1000);
  EXPECT_THAT(got["last"], ElementsAre(8, 24));
  EXPECT_THAT(got["seen"], ElementsAre(1, 3, 2, 6, 4, 12));
  EXPECT_THAT(got["numbers"], ElementsAre(0, 1, 2));
  EXPECT_EQ(context.output("seen").dims, Dims({3, 2}));
  got = loop(100, true, 20);
  EXPECT_THAT(got["last"], ElementsAre(8, 24));
  EXPECT_THAT(got["numbers"], ElementsAre(0, 1, 2));
  for (const auto& [n, go] : {std::pair{0, true}, {-5, true}, {7, false}}) {
    got = loop(n, go, 1000);
    EXPECT_THAT(got["last"], ElementsAre(1, 3));
    EXPECT_THAT(got["seen"], IsEmpty());
    EXPECT_EQ(context.output("seen").dims, Dims({0, 2}));
  }
}

// What a counted loop stacks has a place before it runs; conditions, which it does not look at, are
// false here.
TEST(ControlFlow, CountedLoopsStackInPlace) {
  const auto net = [](std::string_view trips) {
    return fmt::format(R"txt(
size N in 0..16 opt 4
graph counted(x: f32[N,2])
  const no: bool[] = {{false}}
  const v: f32[2] = {{1, 2}}
  n = SizeTensor() elements=[{}] scalar=true
  body again(i: i64[], c: bool[], v1: f32[2])
    w = Pointwise(v1) program="(f32)->(f32) mul($0,2f32)"
    k = Pointwise(i) program="(i64)->(f32) f32($0)"
    return c, w, v1 as seen, k
  end
  last, seen, numbers = Loop(n, no, v) body=0 carried=1 counted=true
  s = Softmax(numbers) axis=0
  return last, seen, numbers, s
)txt",
                       trips);
  };
  const auto engine = engine_of(build_text(net("N")));
  for (const Slot& slot : plan_of(*engine).slots) EXPECT_NE(slot.storage, Storage::kDataDependent);
  ExecutionContext context(engine);
  for (const int64_t n : {3, 1, 0, 3}) {
    auto got = run(context, *engine, {random_f32({n, 2}, 1)});
    EXPECT_EQ(context.output("seen").dims, Dims({n, 2}));
    EXPECT_EQ(got["last"].front(), static_cast<float>(1 << n));
    EXPECT_EQ(got["numbers"].size(), static_cast<size_t>(n));
    if (n == 3) {
      EXPECT_THAT(got["seen"], ElementsAre(1, 2, 2, 4, 4, 8));
      EXPECT_THAT(got["numbers"], ElementsAre(0, 1, 2));
    }
  }
  const auto three = engine_of(build_text(net("3")));
  EXPECT_EQ(three->outputs()[1].dims, Dims({3, 2}));
  ExecutionContext fixed(three);
  std::vector<float> seen(12, -1);  // every other element
  const Tensor x = random_f32({1, 2}, 1);
  fixed.set_input("x", x.view());
  fixed.set_output("seen",
                   {DataType::kF32, {3, 2}, {4, 2}, reinterpret_cast<std::byte*>(seen.data())});
  fixed.run();
  EXPECT_THAT(seen, ElementsAre(1, -1, 2, -1, 2, -1, 4, -1, 4, -1, 8, -1));
}

TEST(ControlFlow, ACountedLoopHasATripCount) {
  EXPECT_THROW(parse_graph(R"txt(
graph counted(v: f32[2])
  body again(i: i64[], c: bool[], v1: f32[2])
    return c, v1
  end
  y = Loop(_, _, v) body=0 carried=1 counted=true
  return y
)txt"),
               Error);
}

// The carried list grows by one each time, and the body's own sizes with it.
TEST(ControlFlow, CarriedShapesChange) {
  const auto engine = engine_of(build_text(R"txt(
graph grow(n: i64[], v: f32[M])
  body again(i: i64[], c: bool[], v1: f32[K])
    t = Reduce(v1, i64{0}) kind=sum
    w = Concat(v1, t) axis=0
    return c, w, t
  end
  v.last, sums = Loop(n, _, v) body=0 carried=1
  m = Reduce(v.last, i64{0}) kind=max keepdims=false
  return v.last, sums, m
)txt"));
  ExecutionContext context(engine);
  for (const int threads : {1, 2}) {
    ExecutionContext fresh(engine, {.threads = threads});
    auto got = run(fresh, *engine, {scalar_i64(4), floats({2}, {1, 2})});
    EXPECT_THAT(got["v.last"], ElementsAre(1, 2, 3, 6, 12, 24));
    EXPECT_THAT(got["sums"], ElementsAre(3, 6, 12, 24));
    EXPECT_THAT(got["m"], ElementsAre(24));
  }
  EXPECT_THAT(run(context, *engine, {scalar_i64(0), floats({1}, {7})})["v.last"], ElementsAre(7));
  EXPECT_THAT(run(context, *engine, {scalar_i64(1), floats({1}, {7})})["v.last"],
              ElementsAre(7, 7));
}

// Two results of a branch, or of a loop, whose sizes have nothing to do with each other.
TEST(ControlFlow, EveryResultHasASizeOfItsOwn) {
  const auto branch = engine_of(build_text(R"txt(
graph sizes(a: bool[], x: f32[4])
  body then(x1: f32[4])
    p = Slice(x1, i64{0}, i64{1}, i64{0}, i64{1})
    q = Slice(x1, i64{0}, i64{2}, i64{0}, i64{1})
    return p, q
  end
  body else(x1: f32[4])
    p = Slice(x1, i64{0}, i64{3}, i64{0}, i64{1})
    q = Concat(x1, x1) axis=0
    return p, q
  end
  y, z = If(a, x)
  return y, z
)txt"));
  ExecutionContext context(branch);
  auto got = run(context, *branch, {scalar_bool(true), floats({4}, {1, 2, 3, 4})});
  EXPECT_THAT(got["y"], ElementsAre(1));
  EXPECT_THAT(got["z"], ElementsAre(1, 2));
  got = run(context, *branch, {scalar_bool(false), floats({4}, {1, 2, 3, 4})});
  EXPECT_THAT(got["y"], ElementsAre(1, 2, 3));
  EXPECT_EQ(got["z"].size(), 8u);

  const auto loop = engine_of(build_text(R"txt(
size A
size B
graph grow(n: i64[], v: f32[1])
  const one: f32[1] = {1}
  body again(i: i64[], c: bool[], a: f32[A], b: f32[B], one1: f32[1])
    a2 = Concat(a, one1) axis=0
    b2 = Concat(b, b) axis=0
    return c, a2, b2
  end
  y, z = Loop(n, _, v, v, one) body=0 carried=2
  return y, z
)txt"));
  ExecutionContext doubling(loop);
  got = run(doubling, *loop, {scalar_i64(3), floats({1}, {5})});
  EXPECT_THAT(got["y"], ElementsAre(5, 1, 1, 1));
  EXPECT_THAT(got["z"], ElementsAre(5, 5, 5, 5, 5, 5, 5, 5));
}

// A carried value that begins as one number is broadcast by the first iteration.
TEST(ControlFlow, CarriedValuesAreBroadcast) {
  const auto engine = engine_of(build_text(R"txt(
size K
size N in 1..9 opt 5
graph sum(n: i64[], v: f32[1], w: f32[N])
  body again(i: i64[], c: bool[], v1: f32[K], w1: f32[N])
    v2 = Pointwise(v1, w1) program="(f32,f32)->(f32) add($0,$1)"
    return c, v2
  end
  y = Loop(n, _, v, w) body=0 carried=1
  return y
)txt"));
  ExecutionContext context(engine);
  const auto after = [&](int64_t n) {
    return run(context, *engine, {scalar_i64(n), floats({1}, {1}), floats({3}, {1, 2, 3})})["y"];
  };
  EXPECT_THAT(after(0), ElementsAre(1));
  EXPECT_THAT(after(1), ElementsAre(2, 3, 4));
  EXPECT_THAT(after(3), ElementsAre(4, 7, 10));
}

// Without a trip count the layer's first input is absent.
TEST(ControlFlow, ALoopByConditionAlone) {
  const auto engine = engine_of(build_text(R"txt(
graph halve(go: bool[], v: f32[], limit: f32[])
  body again(i: i64[], c: bool[], v1: f32[], limit1: f32[])
    v2 = Pointwise(v1) program="(f32)->(f32) mul($0,0.5f32)"
    c2 = Pointwise(v2, limit1) program="(f32,f32)->(bool) lt($1,$0)"
    return c2, v2
  end
  y = Loop(i64[]{9223372036854775807}, go, v, limit) body=0 carried=1
  return y
)txt"));
  ExecutionContext context(engine);
  EXPECT_THAT(run(context, *engine, {scalar_bool(true), floats({}, {8}), floats({}, {1.5})})["y"],
              ElementsAre(1));
  EXPECT_THAT(run(context, *engine, {scalar_bool(false), floats({}, {8}), floats({}, {1})})["y"],
              ElementsAre(8));
}

// Sums from both ends of two sequences, the second along axis 1.
TEST(ControlFlow, ScanAlongAnyAxisInAnyDirection) {
  const auto engine = engine_of(build_text(R"txt(
graph scan(s: f32[2], x: f32[T,2], z: f32[2,T], scale: f32[])
  body step(s1: f32[2], x1: f32[2], z1: f32[2], scale1: f32[])
    t = Pointwise(s1, x1, z1, scale1) program="(f32,f32,f32,f32)->(f32) add($0,mul($3,sub($1,$2)))"
    return t, t as forward, x1 as backward
  end
  last, forward, backward = Scan(s, x, z, scale) body=0 carried=1 axes=[0,1] reverse=[0,1] output_axes=[1,0] output_reverse=[0,1]
  return last, forward, backward
)txt"));
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = {floats({2}, {100, 200}), floats({3, 2}, {1, 2, 3, 4, 5, 6}),
                                      floats({2, 3}, {1, 2, 3, 4, 5, 6}), floats({}, {10})};
  auto got = run(context, *engine, inputs);
  // Step 0 sees x 1,2 and z 3,6; step 1 x 3,4 and z 2,5; step 2 x 5,6 and z 1,4.
  EXPECT_THAT(got["last"], ElementsAre(130, 170));
  EXPECT_THAT(got["forward"], ElementsAre(80, 90, 130, 160, 150, 170));
  EXPECT_THAT(got["backward"], ElementsAre(5, 6, 3, 4, 1, 2));
  EXPECT_EQ(context.output("forward").dims, Dims({2, 3}));

  got = run(context, *engine, {inputs[0], floats({0, 2}, {}), floats({2, 0}, {}), inputs[3]});
  EXPECT_THAT(got["last"], ElementsAre(100, 200));
  EXPECT_EQ(context.output("forward").dims, Dims({2, 0}));
}

TEST(ControlFlow, SequencesOfOneLength) {
  const auto engine = engine_of(build_text(R"txt(
graph scan(x: f32[T], z: f32[U])
  body step(x1: f32[], z1: f32[])
    t = Pointwise(x1, z1) program="(f32,f32)->(f32) add($0,$1)"
    return t
  end
  y = Scan(x, z) body=0 axes=[0,0] reverse=[0,0] output_axes=[0] output_reverse=[0]
  return y
)txt"));
  ExecutionContext context(engine);
  const Tensor x = floats({2}, {1, 2}), z = floats({3}, {1, 2, 3});
  context.set_input("x", x.view());
  context.set_input("z", z.view());
  EXPECT_THAT(error_of([&] { context.run(); }), HasSubstr("lengths of sequences 2 and 3 differ"));
}

TEST(ControlFlow, LoopInALoopWithOuterSizes) {
  const auto engine = engine_of(build_text(R"txt(
size N in 1..64 opt 4
graph nested(n: i64[], x: f32[N])
  body outer(i: i64[], c: bool[], a: f32[N], x1: f32[N])
    body inner(j: i64[], d: bool[], b: f32[N], x2: f32[N])
      count = SizeTensor() elements=[N] scalar=true
      e = Pointwise(b, x2, count) program="(f32,f32,i64)->(f32) add($0,mul($1,f32($2)))"
      return d, e
    end
    f = Loop(i, _, a, x1) body=0 carried=1
    return c, f
  end
  y = Loop(n, _, x, x) body=0 carried=1
  return y
)txt"));
  ExecutionContext context(engine);
  // Iterations 0 + 1 + 2 + 3 of the inner loop, each adding N * x.
  EXPECT_THAT(run(context, *engine, {scalar_i64(4), floats({2}, {1, 2})})["y"],
              ElementsAre(13, 26));
  EXPECT_THAT(run(context, *engine, {scalar_i64(3), floats({1}, {1})})["y"], ElementsAre(4));
}

TEST(ControlFlow, ALoopOfKnownSizesAllocatesNothing) {
  const auto engine = engine_of(build_text(R"txt(
graph steady(n: i64[], v: f32[8])
  const w: f32[8,8] = random(1)
  body again(i: i64[], c: bool[], v1: f32[8], w1: f32[8,8])
    r = Reshape(v1, i64{1,8})
    m = MatMul(r, w1)
    t = Reshape(m, i64{8})
    return c, t
  end
  y = Loop(n, _, v, w) body=0 carried=1
  return y
)txt"));
  ExecutionContext context(engine);
  const Tensor n = scalar_i64(5), v = random_f32({8}, 1);
  context.set_input("n", n.view());
  context.set_input("v", v.view());
  context.run();
  const int64_t before = allocations_so_far();
  context.run();
  EXPECT_EQ(allocations_so_far() - before, 0);
}

TEST(ControlFlow, TensorsOfBodiesAreObserved) {
  const auto engine = engine_of(build_text(kDouble));
  ExecutionContext context(engine);
  std::multiset<std::string> seen;
  observe(context, [&](const Observation& one) { seen.insert(std::string(one.name)); });
  run(context, *engine, {scalar_i64(3), scalar_bool(true), floats({2}, {1, 3}), floats({}, {99})});
  EXPECT_EQ(seen.count("w"), 3U);
  EXPECT_EQ(seen.count("last"), 1U);
}

// A loop in a loop: the inner one runs as often as the number of the outer's iteration.
constexpr std::string_view kTriangle = R"txt(
graph triangle(n: i64[], x: f32[2])
  body outer(i: i64[], c: bool[], a: f32[2])
    body inner(j: i64[], d: bool[], b: f32[2])
      e = Softmax(b) axis=0
      return d, e
    end
    f = Loop(i, _, a) body=0 carried=1
    return c, f
  end
  y = Loop(n, _, x) body=0 carried=1
  return y
)txt";

TEST(ControlFlow, AnObserverIsToldTheIteration) {
  const auto engine = engine_of(build_text(kTriangle));
  ExecutionContext context(engine);
  std::vector<std::string> paths;
  observe(context, [&](const Observation& one) {
    if (one.step != "e") return;
    paths.emplace_back();
    for (const LoopIteration& loop : one.iterations)
      paths.back() += std::string(loop.step) + std::to_string(loop.number) + " ";
  });
  run(context, *engine, {scalar_i64(3), floats({2}, {1, 3})});
  EXPECT_THAT(paths, ElementsAre("y1 f0 ", "y2 f0 ", "y2 f1 "));
  paths.clear();
  const auto plain = engine_of(build_text(kBranches));
  ExecutionContext branches(plain);
  observe(branches, [&](const Observation& one) { EXPECT_THAT(one.iterations, IsEmpty()); });
  run(branches, *plain, {scalar_bool(true), scalar_bool(true), floats({1}, {1}), floats({1}, {1})});
}

TEST(ControlFlow, AProfileTellsTheStepsOfBodies) {
  const auto engine = engine_of(build_text(kTriangle));
  ExecutionContext context(engine);
  const Tensor n = scalar_i64(4), x = floats({2}, {1, 3});
  context.set_input("n", n.view());
  context.set_input("x", x.view());
  for (int i = 0; i < 2; ++i) {
    const std::vector<StepTime> times = context.profile();
    std::map<std::string, int64_t> counts;
    for (const StepTime& time : times) {
      counts[std::string(time.step)] += time.times;
      EXPECT_GE(time.microseconds, 0) << time.step;
    }
    EXPECT_EQ(counts.at("y"), 1);
    EXPECT_EQ(counts.at("f"), 4);
    EXPECT_EQ(counts.at("e"), 6);
  }
}

TEST(ControlFlow, WhatIsRequiredIsChecked) {
  const auto engine = engine_of(build_text(R"txt(
graph assumed(a: bool[], x: f32[2])
  holds = Require(a)
  y = Pointwise(x) program="(f32)->(f32) neg($0)"
  return y
)txt"));
  ExecutionContext context(engine);
  EXPECT_THAT(run(context, *engine, {scalar_bool(true), floats({2}, {1, 2})})["y"],
              ElementsAre(-1, -2));
  const Tensor no = scalar_bool(false);
  context.set_input("a", no.view());
  EXPECT_THAT(error_of([&] { context.run(); }),
              HasSubstr("built for a condition that is false now"));
}

// In a body it is checked when that runs, even if only shapes of the results are used.
TEST(ControlFlow, WhatABodyRequiresIsCheckedWhenItRuns) {
  const auto engine = engine_of(build_text(R"txt(
graph assumed(c: bool[], a: bool[], x: f32[N])
  body yes(v: f32[N], b: bool[])
    holds = Require(b)
    return v
  end
  body no(v: f32[N], b: bool[])
    return v
  end
  r = If(c, x, a)
  s = ShapeOf(r) start=0 end=1
  y = Pointwise(s) program="(i64)->(f32) f32($0)"
  return y
)txt"));
  ExecutionContext context(engine);
  const auto shape = [&](bool condition, bool holds) {
    return run(context, *engine, {scalar_bool(condition), scalar_bool(holds), floats({2}, {1, 2})});
  };
  EXPECT_THAT(shape(true, true)["y"], ElementsAre(2));
  EXPECT_THAT(shape(false, false)["y"], ElementsAre(2));
  EXPECT_THAT(error_of([&] { shape(true, false); }), HasSubstr("holds"));
}

TEST(ControlFlow, ScalarsAreOneValue) {
  const auto engine = engine_of(build_text(R"txt(
graph g(n: i64[K], v: f32[2])
  body again(i: i64[], c: bool[], v1: f32[2])
    return c, v1
  end
  y = Loop(n, _, v) body=0 carried=1
  return y
)txt"));
  ExecutionContext context(engine);
  const Tensor none = tensor_i64({}), v = floats({2}, {1, 2});
  context.set_input("n", none.view());
  context.set_input("v", v.view());
  EXPECT_THAT(error_of([&] { context.run(); }), HasSubstr("the trip count is i64[0], not one i64"));
}

}  // namespace
}  // namespace anneal::testing
