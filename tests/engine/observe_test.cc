// A watched run: every value with memory is observed with the numbers it has in the model, and the
// run itself is the same as an unwatched one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/engine/run/debug.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/engine/run/watch.h"
#include "anneal/optimizer/pipeline/pipeline.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/engine/graphs.h"
#include "anneal/tests/error_of.h"

namespace anneal::testing {
namespace {

using ::testing::HasSubstr;

struct Told {
  std::string step;
  std::vector<float> values;
};
using ToldByName = std::map<std::string, Told>;

ToldByName watch(ExecutionContext& context, const Engine& engine,
                 const std::vector<Tensor>& inputs) {
  ToldByName told;
  observe(context, [&](const Observation& observed) {
    if (observed.value.dtype != DataType::kF32) return;
    const bool is_new =
        told.emplace(observed.name, Told{std::string(observed.step), elements(observed.value)})
            .second;
    EXPECT_TRUE(is_new) << observed.name << " is observed twice";
  });
  run(context, engine, inputs);
  observe(context, {});
  return told;
}

std::vector<Tensor> inputs_for(const Engine& engine) {
  std::vector<Tensor> inputs;
  for (const TensorInfo& port : engine.inputs()) {
    Dims dims = port.dims;
    for (int axis = 0; axis < dims.rank(); ++axis)
      if (dims[axis] < 0) dims[axis] = 3;
    inputs.push_back(random_f32(dims, static_cast<uint32_t>(inputs.size()) + 1));
  }
  return inputs;
}

TEST(Observe, ChangesNeitherBitsNorMemory) {
  for (const std::string_view text : {kConvNet, kDynamicNet}) {
    const auto engine = engine_of(build_text(text));
    const std::vector<Tensor> inputs = inputs_for(*engine);
    ExecutionContext plain(engine), watched(engine);
    const auto want = run(plain, *engine, inputs);
    observe(watched, [](const Observation&) {});
    EXPECT_EQ(run(watched, *engine, inputs), want);
    EXPECT_EQ(watched.memory_bytes(), plain.memory_bytes());
    EXPECT_EQ(watched.arena_bytes(), plain.arena_bytes());
    EXPECT_LE(plain.arena_bytes(), plain.memory_bytes());
    EXPECT_EQ(watched.profile().size(), plain.profile().size());
    observe(watched, {});
    EXPECT_EQ(run(watched, *engine, inputs), want);
  }
}

// In a chain of elementwise layers that fuses nothing every layer writes over the one before; each
// is observed before it is overwritten, views of it included.
TEST(Observe, TellsWhatIsWrittenOverLater) {
  constexpr std::string_view kChain = R"txt(
graph chain(x: f32[2,3])
  a = Pointwise(x) program="(f32)->(f32) add($0,1f32)"
  v = Reshape(a, i64{3, 2})
  s = Softmax(v) axis=1
  b = Pointwise(v, s) program="(f32,f32)->(f32) add($0,$1)"
  w = Reshape(b, i64{6})
  t = Softmax(w) axis=0
  c = Pointwise(w, t) program="(f32,f32)->(f32) mul($0,$1)"
  y = Reduce(c, i64{0}) kind=sum
  return y
)txt";
  GraphBuildOptions options;
  for (const Pass& pass : default_pipeline()) options.passes.skip.emplace_back(pass.name);
  const auto engine = engine_of(build_text(kChain, options));
  const Plan& plan = plan_of(*engine);
  EXPECT_TRUE(std::any_of(plan.steps.begin(), plan.steps.end(), [&](const Step& step) {
    return plan.slots[step.outputs[0]].storage == Storage::kView;
  }));
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = {
      Tensor::of<float>(DataType::kF32, {2, 3}, std::vector<float>{0, 1, 2, 3, 4, 5})};
  const ToldByName told = watch(context, *engine, inputs);
  EXPECT_EQ(told.at("a").values, (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(told.at("v").values, told.at("a").values);
  EXPECT_EQ(told.at("v").step, told.at("a").step);
  EXPECT_EQ(told.at("w").values, told.at("b").values);
  EXPECT_EQ(told.at("w").step, "b");
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(told.at("b").values[i], told.at("v").values[i] + told.at("s").values[i]);
    EXPECT_EQ(told.at("c").values[i], told.at("w").values[i] * told.at("t").values[i]);
  }
}

TEST(Observe, TellsEverySlotOnceWithItsStep) {
  for (const std::string_view text : {kConvNet, kDynamicNet, kLateNet}) {
    const EngineFile file = build_text(text);
    const Plan& plan = file.plans[0];
    std::vector<int> times(plan.slots.size(), 0);
    for (const auto& slots : slots_by_step(plan))
      for (const uint32_t slot : slots) ++times[slot];
    for (size_t i = 0; i < plan.slots.size(); ++i) {
      const Storage storage = plan.slots[i].storage;
      const bool is_given = storage == Storage::kInput || storage == Storage::kWeight;
      EXPECT_EQ(times[i], is_given ? 0 : 1) << plan.slots[i].name;
    }
  }
}

// Every value of the graph has a slot, or a decision that says what became of it.
TEST(Observe, ValuesWithoutASlotAreAccountedFor) {
  constexpr std::string_view kFused = R"txt(
graph fused(x: f32[1,3,9,7])
  const w: f32[8,3,3,3] = random(1)
  const b: f32[8,1,1] = random(2)
  n = Pointwise(w) program="(f32)->(f32) neg($0)"
  c = Conv(x, n) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  r = Pointwise(c, b) program="(f32,f32)->(f32) add($0,$1)"
  y = Pointwise(r) program="(f32)->(f32) max($0,0f32)"
  return y
)txt";
  const EngineFile file = build_text(kFused);
  std::vector<Decision> vanished;
  for (const Decision& decision : file.plans[0].decisions)
    if (decision.stage == kFusedInto || decision.stage == kEliminated) vanished.push_back(decision);
  ASSERT_EQ(vanished.size(), 2u);
  const std::string& step = file.plans[0].steps[0].name;
  EXPECT_EQ(vanished[0], (Decision{std::string(kFusedInto), "c", step}));
  EXPECT_EQ(vanished[1], (Decision{std::string(kFusedInto), "r", step}));
}

TEST(Observe, TellsSizesThatDependOnValues) {
  const auto engine = engine_of(build_text(kLateNet));
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = {random_f32({3}, 1), tensor_i64({4, 3})};
  const ToldByName told = watch(context, *engine, inputs);
  EXPECT_EQ(told.at("y").values.size(), 12u);
}

TEST(Observe, TheObserverCannotChangeItsContext) {
  const auto engine = engine_of(build_text(kConvNet));
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = inputs_for(*engine);
  const std::string name = engine->inputs()[0].name;
  const std::function<void()> changes[] = {
      [&] { context.run(); },
      [&] { context.profile(); },
      [&] { observe(context, {}); },
      [&] { context.prepare({}); },
      [&] { context.set_input(name, inputs[0].view()); },
  };
  for (const auto& change : changes) {
    observe(context, [&](const Observation&) { change(); });
    EXPECT_THAT(error_of([&] { run(context, *engine, inputs); }),
                HasSubstr("an observer must not change its own context"));
    observe(context, {});
  }
  ExecutionContext fresh(engine);
  EXPECT_EQ(run(context, *engine, inputs), run(fresh, *engine, inputs));
}

TEST(Observe, AContextNeedsAnEngineAndThreads) {
  EXPECT_THAT(error_of([] { ExecutionContext context(nullptr); }),
              HasSubstr("invalid_argument: a context needs an engine, but the pointer is null"));
  const auto engine = engine_of(build_text(kConvNet));
  EXPECT_THAT(error_of([&] { ExecutionContext context(engine, {.threads = -1}); }),
              HasSubstr("invalid_argument: threads is -1"));
}

TEST(Observe, AnErrorOfTheObserverEndsTheRun) {
  const auto engine = engine_of(build_text(kConvNet));
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = inputs_for(*engine);
  observe(context, [](const Observation&) { fail(ErrorCode::kIo, "the disk is full"); });
  EXPECT_THROW(run(context, *engine, inputs), Error);
  observe(context, {});
  ExecutionContext fresh(engine);
  EXPECT_EQ(run(context, *engine, inputs), run(fresh, *engine, inputs));
}

}  // namespace
}  // namespace anneal::testing
