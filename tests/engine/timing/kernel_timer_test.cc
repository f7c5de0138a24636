// Which kernel the timer chooses, with kernels of given times.
#include "anneal/engine/builder/timing/kernel_timer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "anneal/core/new_tensor.h"
#include "anneal/core/version.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/tests/engine/build_and_run.h"

namespace anneal::testing {
namespace {

using ::testing::HasSubstr;

// Shows what the kernels add to it.
class ToldStream final : public DeviceStream {
 public:
  void wait() override {}
  double microseconds(const std::function<void()>& work) override {
    now = 0;
    work();
    return now;
  }
  double now = 0;
};

class ToldDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string target() const override { return "told"; }
  std::string description() const override { return "a told machine"; }
  std::unique_ptr<Buffer> allocate(size_t bytes) override { return cpu_->allocate(bytes); }
  std::unique_ptr<DeviceStream> make_stream() override { return std::make_unique<ToldStream>(); }
  void copy(std::byte* to, const std::byte* from, size_t bytes, DeviceStream& stream) override {
    cpu_->copy(to, from, bytes, stream);
  }

 private:
  std::unique_ptr<Device> cpu_ = cpu_backend().open("cpu");
};

// What each kernel takes in turn, the last again and again; a kernel without times refuses.
std::map<std::string, std::deque<double>> script;
std::map<std::string, int> launches;

class ToldKernel final : public Kernel {
 public:
  explicit ToldKernel(std::string name) : name_(std::move(name)) {}
  void launch(const LaunchArgs& args) const override {
    ++launches[name_];
    std::deque<double>& times = script[name_];
    static_cast<ToldStream&>(args.stream).now += times.front();
    if (times.size() > 1) times.pop_front();
  }

 private:
  std::string name_;
};

constexpr std::string_view kNames[] = {"a", "b", "c", "reference"};
template <int I>
KernelResult make_told(const Softmax&, const Request& request) {
  if (!script.contains(std::string(kNames[I]))) return refuse("no times");
  if (I == 2 && !request.ignore_speed_heuristics) return refuse("a is faster");
  return std::make_unique<ToldKernel>(std::string(kNames[I]));
}
constexpr KernelEntry kEntries[] = {
    entry<Softmax, make_told<0>>(kNames[0]),
    entry<Softmax, make_told<1>>(kNames[1]),
    entry<Softmax, make_told<2>>(kNames[2]),
    entry<Softmax, make_told<3>>(kNames[3]),
};
constexpr KernelFamily kFamilies[] = {[] { return std::span<const KernelEntry>(kEntries); }};
constexpr Backend kBackend = {DeviceKind::kCpu, nullptr, kFamilies};

// A layer f32[N,3] -> f32[N,3] and who runs it.
class KernelTimerTest : public ::testing::Test {
 protected:
  KernelTimerTest() {
    script = {{"reference", {0.5}}};
    launches.clear();
    rows_ = sizes_.symbol("N");
    sizes_.set_bounds(rows_, {1, 8, 16});
  }
  Request request() {
    const Shape shape = is_open_ ? Shape{rows_, 3} : Shape{8, 3};
    operands_ = {{.type = {DataType::kF32, shape}, .strides = row_major_strides(shape, sizes_)}};
    return {.op = op_,
            .epilogues = {},
            .op_input_count = 1,
            .inputs = operands_,
            .outputs = operands_,
            .sizes = sizes_,
            .device = device_,
            .tactic = {}};
  }
  // The text of what is decided, or "none". chosen_ has the kernel.
  std::string choose(KernelTimer& timer) {
    KernelChoice chosen = choose_kernel(kBackend, request());
    const auto decision = timer.choose(kBackend, request(), "layer", chosen);
    EXPECT_NE(chosen.kernel, nullptr);
    chosen_ = chosen.entry->name;
    if (!decision) return "none";
    EXPECT_EQ(decision->stage, kTiming);
    EXPECT_EQ(decision->subject, "layer");
    return decision->text;
  }
  std::string measure() {
    KernelTimer timer({}, {.measure = true});
    return choose(timer);
  }

  SizeTable sizes_;
  Size rows_;
  Op op_ = Softmax{.axis = 1};
  bool is_open_ = false;
  std::vector<Operand> operands_;
  ToldDevice device_;
  std::string_view chosen_;
};

TEST_F(KernelTimerTest, TheFastestIsTaken) {
  script["a"] = {100};
  script["b"] = {97.9};
  EXPECT_EQ(measure(), "b instead of a: b 97.9 us, a 100 us, with 1 thread");
  EXPECT_EQ(chosen_, "b");
}

TEST_F(KernelTimerTest, NoiseChangesNothing) {
  script["a"] = {100};
  script["b"] = {98.1};
  EXPECT_EQ(measure(), "a stays: b 98.1 us, a 100 us, with 1 thread");
  EXPECT_EQ(chosen_, "a");
}

TEST_F(KernelTimerTest, KernelsThatRefuseForSpeedAloneAreTimed) {
  script["a"] = {100};
  script["c"] = {50};
  measure();
  EXPECT_EQ(chosen_, "c");
}

TEST_F(KernelTimerTest, TheReferenceIsNotTimed) {
  script["b"] = {100};
  EXPECT_EQ(measure(), "none");
  EXPECT_EQ(chosen_, "b");
  script.erase("b");
  EXPECT_EQ(measure(), "none");
  EXPECT_EQ(chosen_, "reference");
  EXPECT_TRUE(launches.empty());
}

TEST_F(KernelTimerTest, TheMedianCounts) {
  script["a"] = {100};
  script["b"] = {1, 2, 900, 900, 80};  // the first run is no measurement
  EXPECT_EQ(measure(), "b instead of a: b 80 us, a 100 us, with 1 thread");
}

TEST_F(KernelTimerTest, AHopelessKernelStopsEarly) {
  script["a"] = {20};
  script["b"] = {10};
  script["c"] = {41};
  EXPECT_EQ(measure(), "b instead of a: b 10 us, a 20 us, c 41 us, with 1 thread");
  EXPECT_EQ(launches["a"], 26);
  EXPECT_EQ(launches["b"], 26);
  EXPECT_EQ(launches["c"], 4);
}

TEST_F(KernelTimerTest, DisturbedRunsDoNotEndTheHeuristicsKernel) {
  script["a"] = {900, 900, 900, 900, 100};
  script["b"] = {100};
  EXPECT_EQ(measure(), "a stays: a 100 us, b 100 us, with 1 thread");
}

TEST_F(KernelTimerTest, SlowKernelsRunThreeTimes) {
  script["a"] = {100'000};
  script["b"] = {90'000};
  measure();
  EXPECT_EQ(launches["a"], 4);
  EXPECT_EQ(launches["b"], 4);
}

TEST_F(KernelTimerTest, ALayerIsTimedOnce) {
  script["a"] = {100};
  script["b"] = {50};
  KernelTimer timer({}, {.measure = true});
  const std::string first = choose(timer);
  launches.clear();
  EXPECT_EQ(choose(timer), first);
  EXPECT_TRUE(launches.empty());
  EXPECT_EQ(timer.measured().layers.size(), 1u);
}

TEST_F(KernelTimerTest, WhatIsKnownIsNotTimed) {
  script["a"] = {100};
  script["b"] = {97.123456};
  KernelTimer timer({}, {.measure = true});
  const std::string first = choose(timer);
  launches.clear();
  for (const bool measure : {false, true}) {
    KernelTimer again(parse_timing_cache(to_string(timer.measured())), {.measure = measure});
    EXPECT_EQ(choose(again), first);
    EXPECT_EQ(chosen_, "b");
    EXPECT_TRUE(again.measured().empty());
  }
  EXPECT_TRUE(launches.empty());
}

TEST_F(KernelTimerTest, WithoutTimesTheOrderOfTheTableStands) {
  script["a"] = {100};
  script["b"] = {50};
  KernelTimer timer({}, {.measure = false});
  EXPECT_EQ(choose(timer), "is not timed: the timing cache has no times of it");
  EXPECT_EQ(chosen_, "a");
  EXPECT_TRUE(launches.empty());
}

TEST_F(KernelTimerTest, TimesOfAllKernelsOrOfNone) {
  script["a"] = {100};
  script["b"] = {50};
  const TimingKey key{std::string(version()), "a told machine", 1, timing_text(request())};
  const TimingCache known{.layers = {{key, {{"a", 1}}}}};
  KernelTimer only_known(known, {.measure = false});
  EXPECT_THAT(choose(only_known), HasSubstr("is not timed"));
  KernelTimer timer(known, {.measure = true});
  EXPECT_EQ(choose(timer), "b instead of a: b 50 us, a 100 us, with 1 thread");
  EXPECT_EQ(timer.measured().layers.at(key), (KernelTimes{{"a", 100}, {"b", 50}}));
}

TEST_F(KernelTimerTest, OpenSizesAreThoseToOptimizeFor) {
  script["a"] = {100};
  script["b"] = {50};
  is_open_ = true;
  EXPECT_EQ(timing_text(request()), "Softmax axis=1 (f32[?8,3]{3,1}) -> f32[?8,3]{3,1}");
  EXPECT_EQ(measure(),
            "b instead of a: b 50 us, a 100 us, with 1 thread, at the sizes to optimize for");
}

TEST_F(KernelTimerTest, WhatIsNoSizeThenIsNotTimed) {
  script["a"] = {100};
  script["b"] = {50};
  is_open_ = true;
  rows_ = sizes_.sub(rows_, 9);
  EXPECT_EQ(measure(), "is not timed: N - 9 is -1 at the sizes to optimize for");
  EXPECT_EQ(chosen_, "a");
  EXPECT_TRUE(launches.empty());
}

TEST_F(KernelTimerTest, TheKeyHasAllThatTimesDependOn) {
  const Tensor weights = allocate_tensor(DataType::kI8, {4, 3, 1, 1}).tensor;
  Op op = Conv{.strides = {1, 1}, .pads_begin = {0, 0}, .pads_end = {0, 0}, .dilations = {1, 1}};
  const std::vector<Operand> inputs = {
      {.type = {DataType::kI8, {1, 3, 5, 7}}, .strides = {105, 1, 21, 3}},
      {.type = type_of(weights), .strides = {3, 1, 1, 1}, .constant = &weights},
      {.present = false},
      {.type = {DataType::kF32, {4, 1, 1}}, .strides = {1, 1, 1}}};
  const std::vector<Operand> outputs = {
      {.type = {DataType::kF32, {1, 4, 5, 7}}, .strides = {140, 1, 28, 4}}};
  const std::vector<Program> epilogues = {parse_program("(i32,f32)->(f32) mul(f32($0),$1)")};
  EXPECT_EQ(timing_text({.op = op,
                         .epilogues = epilogues,
                         .op_input_count = 3,
                         .inputs = inputs,
                         .outputs = outputs,
                         .sizes = sizes_,
                         .device = device_,
                         .tactic = {}}),
            "Conv strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1] "
            "(i8[1,3,5,7]{105,1,21,3}, const i8[4,3,1,1]{3,1,1,1}, -; f32[4,1,1]{1,1,1}) -> "
            "f32[1,4,5,7]{140,1,28,4} epilogue \"(i32,f32)->(f32) mul($1,f32($0))\"");
}

constexpr std::string_view kDepthwise = R"txt(
graph depthwise(x: f32[1,16,9,7])
  const w: f32[16,1,3,3] = random(1)
  y = Conv(x, w) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1] groups=16
  return y
)txt";

std::vector<Decision> timing_decisions(const Plan& plan) {
  std::vector<Decision> found;
  std::ranges::copy_if(plan.decisions, std::back_inserter(found),
                       [](const Decision& each) { return each.stage == kTiming; });
  return found;
}

TEST(TimedBuild, EngineRunsOnTheKernelsThatAreTimed) {
  GraphBuildOptions options;
  options.timing = {.measure = true, .threads = 1};
  const EngineFile file = build_text(kDepthwise, options);
  ASSERT_EQ(timing_decisions(file.plans[0]).size(), 1u);
  const auto engine = engine_of(file);
  EXPECT_TRUE(engine->load_warnings().empty());
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = {random_f32({1, 16, 9, 7}, 1)};
  const auto got = run(context, *engine, inputs)["y"];
  const auto want = reference(kDepthwise, inputs)["y"];
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-4) << i;
}

TEST(TimedBuild, TheEmulatedDeviceIsLeftToTheTable) {
  GraphBuildOptions options;
  options.targets = {"emulated"};
  options.timing = {.measure = true, .threads = 1};
  const std::vector<Decision> decisions =
      timing_decisions(build_text(kDepthwise, options).plans[0]);
  ASSERT_EQ(decisions.size(), 1u);
  EXPECT_EQ(decisions[0].text,
            "kernels for emulated are not timed: times on emulated are not those of a card");
}

TEST(TimedBuild, ReferenceKernelsStayThose) {
  GraphBuildOptions options;
  options.reference_kernels = true;
  options.timing = {.measure = true, .threads = 1};
  const EngineFile file = build_text(kDepthwise, options);
  EXPECT_TRUE(timing_decisions(file.plans[0]).empty());
  EXPECT_EQ(file.plans[0].steps[0].kernel, "cpu.conv.reference");
}

}  // namespace
}  // namespace anneal::testing
