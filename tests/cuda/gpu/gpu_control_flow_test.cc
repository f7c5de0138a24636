// If, Loop and Scan whose bodies run on a GPU: the emulated one, or the card that
// ANNEAL_TEST_DEVICE names.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "anneal/engine/run/debug.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/tests/cuda/gpu_engine.h"
#include "anneal/tests/error_of.h"

namespace anneal::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Tensor number(int64_t value) { return Tensor::of<int64_t>(DataType::kI64, {}, {{value}}); }
Tensor truth(bool value) {
  return Tensor::of<uint8_t>(DataType::kBool, {}, {{static_cast<uint8_t>(value)}});
}
Tensor tensor_f32(const Dims& dims, const std::vector<float>& values) {
  return Tensor::of<float>(DataType::kF32, dims, values);
}

bool is_on_gpu(const Plan& plan, uint32_t slot) {
  return plan.slots[slot].device + 1u < plan.devices.size();
}

// "device", "host" or "absent" for each slot.
std::vector<std::string> places(const Plan& plan, const std::vector<uint32_t>& slots) {
  std::vector<std::string> result;
  for (const uint32_t slot : slots)
    result.emplace_back(slot == kNoSlot ? "absent" : is_on_gpu(plan, slot) ? "device" : "host");
  return result;
}

const Step& control_step(const Plan& plan) {
  return *std::ranges::find_if(plan.steps,
                               [](const Step& step) { return !bodies_of(step.op).empty(); });
}

// How many times steps that copy between devices ran, and those on the CPU.
struct StepCounts {
  int64_t transfers = 0, on_cpu = 0;
};
// Runs again. REQUIRES: the tensors that the last run read still exist.
StepCounts counts_of_run(ExecutionContext& context) {
  StepCounts counts;
  for (const StepTime& time : context.profile()) {
    if (time.kernel == kTransfer) counts.transfers += time.times;
    if (time.kernel.starts_with("cpu.")) counts.on_cpu += time.times;
  }
  return counts;
}

// What an engine for the CPU gives.
class OnCpu {
 public:
  explicit OnCpu(std::string_view net) : engine_(engine_of(build_text(net))), context_(engine_) {}
  std::map<std::string, std::vector<float>> operator()(const std::vector<Tensor>& inputs) {
    return run(context_, *engine_, inputs);
  }

 private:
  std::shared_ptr<const Engine> engine_;
  ExecutionContext context_;
};

// The second run at the same addresses is recorded, the third one played.
void expect_right(std::string_view net, const std::vector<std::vector<Tensor>>& all_inputs) {
  const auto engine = gpu_engine(net);
  EXPECT_THAT(engine->load_warnings(), IsEmpty());
  OnCpu on_cpu(net);
  ExecutionContext context(engine);
  for (int i = 0; i < 3; ++i)
    for (const std::vector<Tensor>& inputs : all_inputs)
      expect_near(run(context, *engine, inputs), on_cpu(inputs));
}

// A branch inside a branch; x and z are captured by one branch each, and pass through.
constexpr std::string_view kBranches = R"txt(
size N in 1..64 opt 4
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
  p = Softmax(x) axis=0
  y = If(a, b, p, z)
  w = Softmax(y) axis=0
  return w
)txt";

TEST(GpuControlFlow, BranchesInBranchesStayOnTheDevice) {
  const auto engine = gpu_engine(kBranches);
  const Plan& plan = plan_of(*engine);
  const Step& step = control_step(plan);
  EXPECT_THAT(places(plan, step.inputs), ElementsAre("host", "host", "device", "device"));
  EXPECT_THAT(places(plan, step.outputs), ElementsAre("device"));
  for (const Decision& decision : plan.decisions) EXPECT_NE(decision.stage, kFallback);
  OnCpu on_cpu(kBranches);
  std::vector<Tensor> inputs;
  ExecutionContext context(engine);
  for (int i = 0; i < 3; ++i)
    for (const int64_t n : {16, 5, 1, 16})
      for (const bool a : {true, false})
        for (const bool b : {true, false}) {
          inputs = {truth(a), truth(b), random_f32({n}, 1), random_f32({n}, 2)};
          expect_near(run(context, *engine, inputs), on_cpu(inputs));
        }
  const StepCounts counts = counts_of_run(context);
  EXPECT_EQ(counts.transfers, 3) << "x, z and w";
  EXPECT_EQ(counts.on_cpu, 0);
}

// A decoder that computes keys and values anew, or goes on with those of a cache.
constexpr std::string_view kCachedDecoder = R"txt(
graph decoder(use_cache: bool[], x: f32[2,16], keys: f32[8,16])
  const w: f32[16,16] = random(1)
  const v: f32[8,2] = random(2)
  body with_cache(x1: f32[2,16], keys1: f32[8,16], w1: f32[16,16], v1: f32[8,2])
    q = MatMul(x1, w1)
    kept = Slice(keys1, i64{2}, i64{8}, i64{0}, i64{1})
    present = Concat(kept, q) axis=0
    return q, present, keys1 as encoded
  end
  body without(x1: f32[2,16], keys1: f32[8,16], w1: f32[16,16], v1: f32[8,2])
    q = MatMul(x1, w1)
    present = MatMul(v1, q)
    encoded = Pointwise(present) program="(f32)->(f32) tanh($0)"
    return q, present, encoded
  end
  q, present, encoded = If(use_cache, x, keys, w, v)
  t = Transpose(present) permutation=[1,0]
  scores = MatMul(q, t)
  y = Softmax(scores) axis=1
  e = Reduce(encoded, i64{0}) kind=sum keepdims=false
  return y, e, present
)txt";

TEST(GpuControlFlow, ADecoderStaysOnTheDeviceWhicheverBranchRuns) {
  const auto engine = gpu_engine(kCachedDecoder);
  OnCpu on_cpu(kCachedDecoder);
  for (const bool use_cache : {true, false}) {
    std::vector<Tensor> inputs;
    ExecutionContext context(engine);
    for (uint32_t seed = 1; seed <= 4; ++seed) {
      inputs = {truth(use_cache), random_f32({2, 16}, seed), random_f32({8, 16}, seed + 9)};
      expect_near(run(context, *engine, inputs), on_cpu(inputs));
    }
    const StepCounts counts = counts_of_run(context);
    EXPECT_EQ(counts.transfers, 2 /* x, keys */ + 3 /* y, e, present */);
    EXPECT_EQ(counts.on_cpu, 0);
  }
}

// Branches of different sizes: their result, whose size values decide, is on the CPU.
constexpr std::string_view kSizes = R"txt(
graph sizes(a: bool[], x: f32[16])
  body then(x1: f32[16])
    s = Softmax(x1) axis=0
    y1 = Slice(s, i64{0}, i64{7}, i64{0}, i64{1})
    return y1
  end
  body else(x1: f32[16])
    s = Softmax(x1) axis=0
    y1 = Concat(x1, s) axis=0
    return y1
  end
  y = If(a, x)
  z = Pointwise(y) program="(f32)->(f32) neg($0)"
  return z
)txt";

TEST(GpuControlFlow, BranchesOfDifferentSizes) {
  EXPECT_THAT(places(plan_of(*gpu_engine(kSizes)).bodies[0],
                     plan_of(*gpu_engine(kSizes)).bodies[0].outputs),
              ElementsAre("device"));
  expect_right(kSizes, {{truth(true), random_f32({16}, 1)}, {truth(false), random_f32({16}, 2)}});
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

TEST(GpuControlFlow, ALoopEndsByCountOrCondition) {
  std::vector<std::vector<Tensor>> all_inputs;
  for (const auto& [n, go, limit] : {std::tuple{3, true, 1000.f},
                                     {100, true, 20.f},
                                     {0, true, 1000.f},
                                     {-5, true, 1000.f},
                                     {7, false, 1000.f}})
    all_inputs.push_back({number(n), truth(go), tensor_f32({2}, {1, 3}), tensor_f32({}, {limit})});
  expect_right(kDouble, all_inputs);
  const auto engine = gpu_engine(kDouble);
  ExecutionContext context(engine);
  auto got = run(context, *engine, all_inputs[1]);
  EXPECT_THAT(got["last"], ElementsAre(8, 24)) << "the condition ends it";
  EXPECT_THAT(got["numbers"], ElementsAre(0, 1, 2));
  got = run(context, *engine, all_inputs[2]);
  EXPECT_THAT(got["last"], ElementsAre(1, 3));
  EXPECT_EQ(context.output("seen").dims, Dims({0, 2}));
}

// A product, its state and a counter are handed on, until a norm is below a limit.
constexpr std::string_view kSteps = R"txt(
graph steps(n: i64[], x: f32[1,16], limit: f32[])
  const w: f32[16,16] = random(1)
  const zero: i64[] = {0}
  body again(i: i64[], c: bool[], x1: f32[1,16], s1: f32[1,16], k1: i64[], w1: f32[16,16], limit1: f32[])
    m = MatMul(x1, w1)
    x2 = Softmax(m) axis=1
    s2 = Pointwise(x2, s1) program="(f32,f32)->(f32) add($0,$1)"
    most = Reduce(s2, i64{0,1}) kind=max keepdims=false
    next = Pointwise(most, limit1) program="(f32,f32)->(bool) lt($0,$1)"
    k2 = Pointwise(k1) program="(i64)->(i64) add($0,2i64)"
    return next, x2, s2, k2
  end
  x.last, s, k = Loop(n, _, x, x, zero, w, limit) body=0 carried=3
  y = Softmax(s) axis=1
  count = Pointwise(k) program="(i64)->(f32) f32($0)"
  return y, x.last, count
)txt";

TEST(GpuControlFlow, CarriedTensorsStayOnTheDevice) {
  const auto engine = gpu_engine(kSteps);
  const Plan& plan = plan_of(*engine);
  const Step& step = control_step(plan);
  // w is a constant of the body.
  EXPECT_THAT(places(plan, step.inputs),
              ElementsAre("host", "absent", "device", "device", "host", "host", "host"));
  EXPECT_THAT(places(plan, step.outputs), ElementsAre("device", "device", "host"));
  OnCpu on_cpu(kSteps);
  ExecutionContext context(engine);
  for (const int64_t n : {7, 0, 1, 7, 7, 2}) {
    const std::vector<Tensor> inputs = {number(n), random_f32({1, 16}, 1), tensor_f32({}, {100})};
    const auto got = run(context, *engine, inputs);
    expect_near(got, on_cpu(inputs));
    EXPECT_THAT(got.at("count"), ElementsAre(static_cast<float>(2 * n)));
    const StepCounts counts = counts_of_run(context);
    // The greatest sum for the condition, in each iteration.
    EXPECT_EQ(counts.transfers, 1 /* x */ + 1 /* k for count */ + 3 /* y, x.last, count */ + n)
        << n << " iterations";
  }
}

// What a counted loop stacks has a place in memory of the device before it runs.
constexpr std::string_view kCounted = R"txt(
size N in 0..16 opt 4
graph counted(x: f32[N,2])
  const no: bool[] = {false}
  const v: f32[WIDTH] = random(3)
  n = SizeTensor() elements=[N] scalar=true
  body again(i: i64[], c: bool[], v1: f32[WIDTH])
    w = Softmax(v1) axis=0
    k = Pointwise(v1, w) program="(f32,f32)->(f32) add($0,mul($1,10f32))"
    return c, k, v1 as seen, w
  end
  last, seen, shares = Loop(n, no, v) body=0 carried=1 counted=true
  s = Softmax(seen) axis=1
  return last, s, shares
)txt";

std::string counted(int width) {
  std::string text(kCounted);
  for (size_t at; (at = text.find("WIDTH")) != std::string::npos;)
    text.replace(at, 5, std::to_string(width));
  return text;
}

TEST(GpuControlFlow, CountedLoopsStackInPlace) {
  // Rows of 16 elements begin at aligned addresses, those of 5 do not.
  for (const int width : {16, 5, 1}) {
    const std::string net = counted(width);
    const auto engine = gpu_engine(net);
    const Plan& plan = plan_of(*engine);
    EXPECT_THAT(places(plan, control_step(plan).outputs),
                ElementsAre("device", "device", "device"));
    OnCpu on_cpu(net);
    ExecutionContext context(engine);
    for (const int64_t n : {3, 1, 0, 3, 3, 3}) {
      const std::vector<Tensor> inputs = {random_f32({n, 2}, 1)};
      expect_near(run(context, *engine, inputs), on_cpu(inputs));
      EXPECT_EQ(counts_of_run(context).transfers, 3) << "last, s and shares";
    }
  }
}

// The carried list grows by one each time, and the body's own sizes with it.
constexpr std::string_view kGrow = R"txt(
graph grow(n: i64[], v: f32[M])
  body again(i: i64[], c: bool[], v1: f32[K])
    t = Reduce(v1, i64{0}) kind=sum
    w = Concat(v1, t) axis=0
    return c, w, t
  end
  v.last, sums = Loop(n, _, v) body=0 carried=1
  m = Reduce(v.last, i64{0}) kind=max keepdims=false
  return v.last, sums, m
)txt";

TEST(GpuControlFlow, CarriedShapesChange) {
  expect_right(kGrow, {{number(4), tensor_f32({2}, {1, 2})},
                       {number(0), tensor_f32({1}, {7})},
                       {number(1), tensor_f32({1}, {7})},
                       {number(9), tensor_f32({3}, {1, 2, 3})}});
}

// Each iteration takes one of two branches, by its number.
constexpr std::string_view kBranchInLoop = R"txt(
graph alternate(n: i64[], x: f32[3,5])
  body again(i: i64[], c: bool[], a: f32[3,5])
    body even(b: f32[3,5])
      e = Softmax(b) axis=1
      return e
    end
    body odd(b: f32[3,5])
      d = Pointwise(b) program="(f32)->(f32) mul($0,4f32)"
      return d
    end
    is_even = Pointwise(i) program="(i64)->(bool) eq(mul(div($0,2i64),2i64),$0)"
    f = If(is_even, a) then_body=0 else_body=1
    return c, f
  end
  y = Loop(n, _, x) body=0 carried=1
  return y
)txt";

TEST(GpuControlFlow, ABranchInALoop) {
  std::vector<std::vector<Tensor>> all_inputs;
  for (const int64_t n : {0, 1, 2, 5}) all_inputs.push_back({number(n), random_f32({3, 5}, 1)});
  expect_right(kBranchInLoop, all_inputs);
  const auto engine = gpu_engine(kBranchInLoop);
  ExecutionContext context(engine);
  run(context, *engine, all_inputs.back());
  EXPECT_EQ(counts_of_run(context).transfers, 2) << "x and y";
}

constexpr std::string_view kScan = R"txt(
size T in 0..16 opt 3
graph scan(s: f32[WIDTH], x: f32[T,WIDTH], z: f32[T,WIDTH], scale: f32[])
  body step(s1: f32[WIDTH], x1: f32[WIDTH], z1: f32[WIDTH], scale1: f32[])
    t = Pointwise(s1, x1, z1, scale1) program="(f32,f32,f32,f32)->(f32) add($0,mul($3,sub($1,$2)))"
    u = Softmax(t) axis=0
    return t, u as forward, x1 as backward
  end
  last, forward, backward = Scan(s, x, z, scale) body=0 carried=1 axes=[0,AXIS] reverse=[0,1] output_axes=[OUT,0] output_reverse=[0,1]
  f = Softmax(forward) axis=0
  return last, f, backward
)txt";

std::string scan_text(int width, int axis, int out) {
  std::string text(kScan);
  if (axis == 1) text.replace(text.find("z: f32[T,WIDTH]"), 15, "z: f32[WIDTH,T]");
  for (const auto& [name, value] : {std::pair{"WIDTH", width}, {"AXIS", axis}, {"OUT", out}})
    for (size_t at; (at = text.find(name)) != std::string::npos;)
      text.replace(at, std::string_view(name).size(), std::to_string(value));
  return text;
}

TEST(GpuControlFlow, ScanInBothDirections) {
  for (const int width : {16, 2}) {
    const std::string net = scan_text(width, 0, 0);
    const auto engine = gpu_engine(net);
    const Plan& plan = plan_of(*engine);
    EXPECT_THAT(places(plan, control_step(plan).inputs),
                ElementsAre("device", "device", "device", "device"));
    EXPECT_THAT(places(plan, control_step(plan).outputs),
                ElementsAre("device", "device", "device"));
    OnCpu on_cpu(net);
    ExecutionContext context(engine);
    for (const int64_t length : {3, 1, 0, 7, 7, 7}) {
      const std::vector<Tensor> inputs = {random_f32({width}, 1), random_f32({length, width}, 2),
                                          random_f32({length, width}, 3), tensor_f32({}, {10})};
      expect_near(run(context, *engine, inputs), on_cpu(inputs));
      EXPECT_EQ(counts_of_run(context).transfers, 4 /* inputs */ + 3 /* outputs */);
    }
  }
}

// Slices along another axis are not dense, so these sequences are on the CPU.
TEST(GpuControlFlow, ScanAlongAnyAxis) {
  const std::string net = scan_text(5, 1, 1);
  const auto engine = gpu_engine(net);
  const Plan& plan = plan_of(*engine);
  EXPECT_THAT(places(plan, control_step(plan).inputs),
              ElementsAre("device", "device", "host", "device"));
  EXPECT_THAT(places(plan, control_step(plan).outputs), ElementsAre("device", "host", "device"));
  std::vector<std::vector<Tensor>> all_inputs;
  for (const int64_t length : {3, 0, 4})
    all_inputs.push_back({random_f32({5}, 1), random_f32({length, 5}, 2),
                          random_f32({5, length}, 3), tensor_f32({}, {10})});
  expect_right(net, all_inputs);
}

// A body that only counts has nothing for a GPU.
TEST(GpuControlFlow, BodiesWithoutLayersForTheDeviceRunOnTheCpu) {
  const auto engine = gpu_engine(R"txt(
graph count(n: i64[], k: i64[])
  body again(i: i64[], c: bool[], k1: i64[])
    k2 = Pointwise(k1, i) program="(i64,i64)->(i64) add($0,$1)"
    return c, k2
  end
  k.last = Loop(n, _, k) body=0 carried=1
  y = Pointwise(k.last) program="(i64)->(f32) f32($0)"
  return y
)txt");
  const Plan& plan = plan_of(*engine);
  EXPECT_EQ(plan.bodies[0].devices.size(), 1u);
  const auto why = std::ranges::find(plan.decisions, kFallback, &Decision::stage);
  ASSERT_NE(why, plan.decisions.end());
  EXPECT_THAT(why->text, HasSubstr("no layer of its bodies runs on"));
  ExecutionContext context(engine);
  EXPECT_THAT(run(context, *engine, {number(4), number(10)})["y"], ElementsAre(16));
}

TEST(GpuControlFlow, RunsWithGuardedMemoryAndStepByStep) {
  const std::string net = scan_text(16, 0, 0);
  for (const std::string_view text : {kBranches, kSteps, std::string_view(net)}) {
    const bool is_scan = text == net, is_branch = text == kBranches;
    const std::vector<Tensor> inputs =
        is_branch ? std::vector{truth(true), truth(true), random_f32({9}, 1), random_f32({9}, 2)}
        : is_scan ? std::vector{random_f32({16}, 1), random_f32({4, 16}, 2), random_f32({4, 16}, 3),
                                tensor_f32({}, {10})}
                  : std::vector{number(3), random_f32({1, 16}, 1), tensor_f32({}, {100})};
    const EngineFile file = build_for(text, {test_target()});
    for (const bool synchronous : {false, true}) {
      const DebugOptions debug{.separate_slots = true, .synchronous_steps = synchronous};
      const auto engine = make_engine(file, {.device = test_device(), .debug = &debug});
      OnCpu on_cpu(text);
      ExecutionContext context(engine, {.debug = &debug});
      for (int i = 0; i < 3; ++i) expect_near(run(context, *engine, inputs), on_cpu(inputs));
    }
  }
}

TEST(GpuControlFlow, ObserversSeeTheTensorsOfBodies) {
  const auto engine = gpu_engine(kSteps);
  const std::vector<Tensor> inputs = {number(3), random_f32({1, 16}, 1), tensor_f32({}, {100})};
  std::map<std::string, std::vector<float>> sums;  // by iteration
  OnCpu on_cpu(kSteps);
  ExecutionContext context(engine);
  observe(context, [&](const Observation& one) {
    ASSERT_NE(one.value.place.kind, MemoryKind::kCuda);
    if (one.name != "s2" || one.kernel == kTransfer) return;
    ASSERT_EQ(one.iterations.size(), 1u);
    sums[std::to_string(one.iterations[0].number)] = elements(one.value);
  });
  expect_near(run(context, *engine, inputs), on_cpu(inputs));
  ASSERT_EQ(sums.size(), 3u);
  EXPECT_NE(sums["0"], sums["1"]);
  EXPECT_NE(sums["1"], sums["2"]);
}

TEST(GpuControlFlow, SeveralContextsRunInTurn) {
  const auto engine = gpu_engine(kSteps);
  OnCpu on_cpu(kSteps);
  ExecutionContext first(engine), second(engine);
  for (uint32_t seed = 1; seed <= 3; ++seed)
    for (ExecutionContext* const context : {&first, &second}) {
      const std::vector<Tensor> inputs = {number(context == &first ? 4 : 2),
                                          random_f32({1, 16}, seed), tensor_f32({}, {100})};
      expect_near(run(*context, *engine, inputs), on_cpu(inputs));
    }
}

TEST(GpuControlFlow, ErrorsNameTheLayer) {
  const auto engine = gpu_engine(R"txt(
graph scan(x: f32[T,2], z: f32[U,2])
  body step(x1: f32[2], z1: f32[2])
    t = Softmax(x1) axis=0
    u = Pointwise(t, z1) program="(f32,f32)->(f32) add($0,$1)"
    return u
  end
  y = Scan(x, z) body=0 axes=[0,0] reverse=[0,0] output_axes=[0] output_reverse=[0]
  return y
)txt");
  ExecutionContext context(engine);
  const Tensor x = random_f32({2, 2}, 1), z = random_f32({3, 2}, 1);
  context.set_input("x", x.view());
  context.set_input("z", z.view());
  EXPECT_THAT(error_of([&] { context.run(); }),
              AllOf(HasSubstr("step \"y\""), HasSubstr("lengths of sequences 2 and 3 differ")));
}

// Files are not to be believed.
TEST(GpuControlFlow, PlansThatMixDevicesAreRefused) {
  const EngineFile file = build_for(kSteps, {test_target()});
  const auto error_with = [&](const std::function<void(Plan&)>& change) {
    EngineFile forged = file;
    change(forged.plans[0]);
    return error_of([&] { load_on(forged, test_device()); });
  };
  EXPECT_EQ(error_with([](Plan&) {}), "");
  const auto step_of = [](Plan& plan) -> Step& { return const_cast<Step&>(control_step(plan)); };
  // A count, the next condition, and an operand of a body for the CPU alone.
  EXPECT_THAT(error_with([&](Plan& plan) { plan.slots[step_of(plan).inputs[6]].device = 0; }),
              Not(IsEmpty()));
  EXPECT_THAT(error_with([&](Plan& plan) {
                Plan& body = plan.bodies[0];
                body.slots[body.outputs[0]].device = 0;
              }),
              Not(IsEmpty()));
  EXPECT_THAT(
      error_with([&](Plan& plan) { plan.bodies[0].devices.erase(plan.bodies[0].devices.begin()); }),
      Not(IsEmpty()));
  EXPECT_THAT(error_with([&](Plan& plan) { plan.bodies[0].devices[1] = "sm_80"; }),
              HasSubstr("neither on the devices of its plan nor on the CPU alone"));
  EXPECT_THAT(error_with([&](Plan& plan) { plan.slots[plan.inputs[1]].device = 0; }),
              HasSubstr("lies on the wrong device"));
}

// The host copies a result whose size values decide.
TEST(GpuControlFlow, PlansWithLateResultsOnTheDeviceAreRefused) {
  EngineFile forged = build_for(kSizes, {test_target()});
  Plan& plan = forged.plans[0];
  auto& step = const_cast<Step&>(control_step(plan));
  const auto transfer = std::ranges::find_if(plan.steps, [&](const Step& each) {
    return each.kernel == kTransfer && each.inputs == step.outputs;
  });
  ASSERT_NE(transfer, plan.steps.end());
  // The layer writes the copy, which is copied back.
  std::swap(step.outputs[0], transfer->outputs[0]);
  transfer->inputs = step.outputs;
  EXPECT_THAT(error_of([&] { load_on(forged, test_device()); }),
              HasSubstr("cannot have \"" + plan.slots[step.outputs[0]].name + "\" on a GPU"));
}

}  // namespace
}  // namespace anneal::testing
