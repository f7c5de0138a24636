// Kernels that access what is not theirs, found by giving each tensor an allocation of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "anneal/engine/run/debug.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/engine/run/memory/guarded_buffer.h"
#include "anneal/tests/cuda/environment.h"
#include "anneal/tests/cuda/gpu_engine.h"
#include "anneal/tests/engine/graphs.h"
#include "anneal/tests/error_of.h"

namespace anneal::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

DebugOptions apart(size_t red_zone = 256, bool synchronous_steps = false) {
  return {.separate_slots = true, .red_zone = red_zone, .synchronous_steps = synchronous_steps};
}

// An engine of the plan, right or wrong: it is not checked as one from a file is.
std::shared_ptr<const Engine> engine_of_plan(const EngineFile& file, const DebugOptions& debug) {
  return make_engine(file, {.device = test_device(), .debug = &debug});
}

// As if the arena held further tensors after all others.
void make_room_in_arena(Plan& plan) { plan.arena_bytes[0] += 4096; }

Step& step_of(Plan& plan, std::string_view name) {
  for (Step& step : plan.steps)
    if (step.name == name) return step;
  throw std::logic_error("no step " + std::string(name));
}

TEST(SeparateSlots, GiveTheSameResults) {
  for (const std::string_view text : {kConvNet, kInceptionBlock}) {
    const EngineFile file = build_for(text, {test_target()});
    for (const size_t red_zone : {size_t{0}, size_t{100}, size_t{512}})
      for (const bool synchronous_steps : {false, true}) {
        const DebugOptions debug = apart(red_zone, synchronous_steps);
        const auto engine = engine_of_plan(file, debug);
        ExecutionContext context(engine, {.debug = &debug});
        for (uint32_t seed = 1; seed <= 3; ++seed) {
          const std::vector<Tensor> inputs = {random_f32(engine->inputs()[0].dims, seed)};
          expect_near(run(context, *engine, inputs), reference(text, inputs));
        }
      }
  }
}

TEST(SeparateSlots, RefuseRedZonesBeyondAllMemory) {
  const EngineFile file = build_for(kConvNet, {test_target()});
  for (const size_t red_zone : {~size_t{0}, (size_t{1} << 30) + 1})
    EXPECT_THAT(error_of([&] { engine_of_plan(file, apart(red_zone)); }),
                HasSubstr("invalid_argument: red_zone is "));
}

TEST(SeparateSlots, FollowTheShapes) {
  const EngineFile file = build_for(kDynamicNet, {test_target()});
  const auto engine = engine_of_plan(file, apart());
  ExecutionContext context(engine, {.shape_cache_size = 2});
  for (const int64_t batch : {3, 16, 1, 3, 3, 3, 16, 16, 16}) {
    const std::vector<Tensor> inputs = {random_f32({batch, 6}, static_cast<uint32_t>(batch)),
                                        random_f32({batch, 6}, 7)};
    expect_near(run(context, *engine, inputs), reference(kDynamicNet, inputs));
  }
}

TEST(SeparateSlots, CountAgainstTheMemoryLimit) {
  const EngineFile file = build_for(kConvNet, {test_target()});
  const auto together = make_engine(file, {.device = test_device()});
  const auto separate = engine_of_plan(file, apart(1 << 16));
  const Tensor x = random_f32({1, 3, 9, 7}, 1);
  const auto run_in = [&](const std::shared_ptr<const Engine>& engine, size_t limit) {
    ExecutionContext context(engine, {.max_memory = limit});
    context.set_input("x", x.view());
    context.run();
    return context.memory_bytes();
  };
  EXPECT_GT(run_in(separate, 0), run_in(together, 0) + (1 << 17));
  run_in(together, 1 << 17);
  EXPECT_THAT(error_of([&] { run_in(separate, 1 << 17); }), HasSubstr("the memory limit is"));
}

// A plan with a step that writes more channels to its first output than that has.
constexpr std::string_view kSiblings = R"txt(
graph siblings(x: f32[1,8,5,5])
  const v: f32[12,8,1,1] = random(1)
  const w: f32[8,8,1,1] = random(2)
  a = Conv(x, v) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  b = Conv(x, w) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  p = Softmax(a) axis=1
  q = Softmax(b) axis=1
  return p, q
)txt";

EngineFile wrong_split() {
  EngineFile file = build_for(kSiblings, {test_target()});
  make_room_in_arena(file.plans[0]);
  for (Step& step : file.plans[0].steps)
    if (auto* const conv = std::get_if<Conv>(&step.op); conv && !conv->split.empty())
      conv->split = {16, 4};
  return file;
}

// Of the first run.
std::string error_of_run(const EngineFile& file, const DebugOptions& debug) {
  const auto engine = engine_of_plan(file, debug);
  ExecutionContext context(engine, {.debug = &debug});
  std::vector<Tensor> inputs;
  for (const TensorInfo& port : engine->inputs()) inputs.push_back(random_f32(port.dims, 1));
  std::optional<std::string> error;
  for (int i = 0; i < 3; ++i) {  // also a recorded run
    const std::string now = error_of([&] { static_cast<void>(run(context, *engine, inputs)); });
    if (!error) error = now;
    EXPECT_EQ(now.empty(), error->empty()) << "run " << i << ": " << now;
  }
  return *error;
}

TEST(SeparateSlots, AWriteBehindASlotIsFoundByTheEmulatedDevice) {
  if (test_device() != "emulated") GTEST_SKIP() << "a card finds it with compute-sanitizer alone";
  EXPECT_EQ(error_of_run(wrong_split(), {}), "");
  for (const size_t red_zone : {size_t{0}, size_t{256}})
    EXPECT_THAT(error_of_run(wrong_split(), apart(red_zone, true)),
                AllOf(HasSubstr("while running steps"), HasSubstr("conv_"), HasSubstr("accesses"),
                      HasSubstr(" bytes behind a")));
}

// What a card finds by itself, without compute-sanitizer.
TEST(SeparateSlots, AWriteBehindASlotChangesItsRedZone) {
  if (is_virtual_card()) GTEST_SKIP() << "the virtual card stops at the write itself";
  const cuda::Setting as_a_card("ANNEAL_EMULATED_BOUNDS", "allocations");
  const EngineFile file = wrong_split();
  EXPECT_EQ(error_of_run(file, {}), "");
  const auto step = std::ranges::find_if(file.plans[0].steps, [](const Step& each) {
    const auto* const conv = std::get_if<Conv>(&each.op);
    return conv && !conv->split.empty();
  });
  const auto of_the_slot =
      AllOf(HasSubstr("internal"), HasSubstr("written by \"" + step->name + "\", read by"),
            HasSubstr("the nearest 0 bytes behind its end"), Not(HasSubstr("; \"")));
  constexpr size_t kRedZone = 4096;
  EXPECT_THAT(error_of_run(file, apart(kRedZone)),
              AllOf(HasSubstr("after the run (synchronous steps show which step)"), of_the_slot));
  EXPECT_THAT(error_of_run(file, apart(kRedZone, true)),
              AllOf(HasSubstr("after step \"" + step->name + "\" (Conv)"), of_the_slot));
}

// A step that reads its inputs as if they were longer.
constexpr std::string_view kJoin = R"txt(
graph join(x: f32[4,6], z: f32[4,6])
  k = Concat(x, z) axis=1
  y = Softmax(k) axis=1
  return y
)txt";

TEST(SeparateSlots, AReadBehindASlotIsFoundByTheEmulatedDevice) {
  if (test_device() != "emulated") GTEST_SKIP() << "a card finds it with compute-sanitizer alone";
  EngineFile file = build_for(kJoin, {test_target()});
  make_room_in_arena(file.plans[0]);
  EXPECT_EQ(error_of_run(file, apart()), "");
  std::get<Concat>(step_of(file.plans[0], "k").op).axis = 0;
  EXPECT_EQ(error_of_run(file, {}), "");
  for (const size_t red_zone : {size_t{0}, size_t{256}})
    EXPECT_THAT(error_of_run(file, apart(red_zone, true)),
                AllOf(HasSubstr("while running steps \"k\" to \"k\""), HasSubstr("concat_"),
                      HasSubstr("reads 4 bytes: 0 bytes behind a"), HasSubstr("of 96 bytes")));
}

// A step that reads a weight as if its elements lay further apart.
constexpr std::string_view kScaled = R"txt(
graph scaled(x: f32[4,6])
  const a: f32[6] = random(1)
  const b: f32[4,1] = random(2)
  y = Pointwise(x, a, b) program="(f32,f32,f32)->(f32) mul(add($0,$1),$2)"
  return y
)txt";

TEST(SeparateSlots, AReadBehindAWeightIsFoundByTheEmulatedDevice) {
  if (test_device() != "emulated") GTEST_SKIP() << "a card finds it with compute-sanitizer alone";
  EngineFile file = build_for(kScaled, {test_target()});
  Plan& plan = file.plans[0];
  // The first of the two in memory, so that the other one follows it.
  const auto a = std::ranges::find_if(plan.slots, [&](const Slot& slot) {
    return slot.storage == Storage::kWeight && slot.offset == 0 && slot.device == 0;
  });
  ASSERT_NE(a, plan.slots.end());
  for (int axis = 0; axis < a->strides.rank(); ++axis)
    a->strides[axis] = Size(10 * std::max<int64_t>(a->strides[axis].value(), 1));
  EXPECT_EQ(error_of_run(file, {}), "");
  EXPECT_THAT(error_of_run(file, apart()),
              AllOf(HasSubstr("bytes behind a tensor of"), HasSubstr("reads")));
}

// Results show it if it is read.
TEST(GuardedBuffer, ItsRedZonesAreNoNumbers) {
  const auto device = cuda_backend().open(test_device());
  const auto stream = device->make_stream();
  constexpr size_t kZone = 256;
  const GuardedBuffer buffer(*device, *stream, 64, kZone);
  const auto expect_nan = [&]<class T>(T) {
    std::vector<T> zones(2 * kZone / sizeof(T));
    buffer.read_zones(*device, *stream, reinterpret_cast<std::byte*>(zones.data()));
    stream->wait();
    for (const T each : zones) {
      if constexpr (std::is_floating_point_v<T>)
        EXPECT_TRUE(std::isnan(each));
      else
        EXPECT_TRUE((each & 0x7fffu) > 0x7f80u) << "as f16 and as bf16";
    }
  };
  expect_nan(double{});
  expect_nan(float{});
  expect_nan(uint16_t{});
}

TEST(GuardedBuffer, TellsWhatWasChanged) {
  const auto device = cuda_backend().open(test_device());
  const auto stream = device->make_stream();
  constexpr size_t kZone = 256;
  GuardedBuffer buffer(*device, *stream, 100, kZone);
  const auto change = [&] {
    std::vector<std::byte> zones(2 * kZone);
    buffer.read_zones(*device, *stream, zones.data());
    stream->wait();
    return GuardedBuffer::change(zones.data(), kZone);
  };
  const std::vector<std::byte> bytes(100, std::byte{1});
  const auto write = [&](std::byte* to, size_t count) {
    device->copy(to, bytes.data(), count, *stream);
  };
  write(buffer.data(), 100);
  EXPECT_EQ(change(), std::nullopt);
  write(buffer.data() + 107, 2);
  EXPECT_EQ(change(), "2 bytes around it, the nearest 7 bytes behind its end");
  write(buffer.data() - 5, 1);
  EXPECT_EQ(change(), "3 bytes around it, the nearest 5 bytes before it");
  buffer.fill_zones(*device, *stream);
  EXPECT_EQ(change(), std::nullopt);
  const GuardedBuffer bare(*device, *stream, 0, 0);
  EXPECT_EQ(bare.size(), 0u);
}

}  // namespace
}  // namespace anneal::testing
