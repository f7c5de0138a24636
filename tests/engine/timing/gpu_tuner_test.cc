// Which kernels and tactics the tuner chooses for a GPU, with kernels of given times.
#include "anneal/engine/builder/timing/gpu_tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "anneal/core/fail.h"
#include "anneal/engine/builder/replay/kernel_chooser.h"
#include "anneal/engine/builder/timing/choose_by_times.h"
#include "anneal/engine/builder/timing/timed_step.h"
#include "anneal/engine/plan_check.h"
#include "anneal/graph/op/ops.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/kernels/cuda/cost/mma_config.h"
#include "anneal/kernels/cuda/cost/vendor_tactic.h"

namespace anneal::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A card, or a device to build for one.
class ToldGpu final : public Device {
 public:
  explicit ToldGpu(std::string machine) : machine_(std::move(machine)) {}
  DeviceKind kind() const override { return DeviceKind::kCuda; }
  std::string target() const override { return "sm_90"; }
  std::string description() const override { return "a scripted card"; }
  std::string machine() const override { return machine_; }
  std::unique_ptr<Buffer> allocate(size_t) override { return nullptr; }
  std::unique_ptr<DeviceStream> make_stream() override { return nullptr; }
  void copy(std::byte*, const std::byte*, size_t, DeviceStream&) override {}
  std::vector<std::byte> prepare_code(std::span<const std::byte>) override {
    ++compilations;
    return {};
  }
  int compilations = 0;

 private:
  std::string machine_;
};

// By timing_name(): what a sample takes, in turn, the last again and again.
std::map<std::string, std::deque<double>> told_times;
std::map<std::string, int> told_samples;
bool lists_library = true;

struct ToldGpuKernel final : Kernel {
  ToldGpuKernel(std::string named, Tactic choice)
      : name(std::move(named)), chosen(std::move(choice)) {}
  std::vector<std::byte> tactic() const override { return chosen; }
  void launch(const LaunchArgs&) const override {}
  std::string name;
  Tactic chosen;
};

constexpr std::string_view kOwn = "cuda.told.mma", kOther = "cuda.told.other",
                           kLibrary = "cudnn.told";

std::vector<Tactic> own_tactics(const Request&) {
  std::vector<Tactic> tactics;
  for (const cuda::MmaConfig& config : cuda::mma_configs().first(3))
    tactics.push_back(tactic_of(config));
  return tactics;
}
std::vector<Tactic> library_tactics(const Request&) {
  if (!lists_library) return {};
  return {tactic_of(cuda::VendorTactic{91900, 90, 0, "engine 1", {std::byte{1}}}),
          tactic_of(cuda::VendorTactic{91900, 90, 0, "engine 2", {std::byte{2}}})};
}

KernelResult make_own(const Softmax&, const Request& request) {
  Tactic tactic(request.tactic.begin(), request.tactic.end());
  if (tactic.empty()) tactic = own_tactics(request)[0];
  return std::make_unique<ToldGpuKernel>(timing_name(kOwn, tactic, KernelSource::kOwn), tactic);
}
KernelResult make_other(const Softmax&, const Request&) {
  return std::make_unique<ToldGpuKernel>(std::string(kOther), Tactic());
}
KernelResult make_library(const Softmax&, const Request& request) {
  Tactic tactic(request.tactic.begin(), request.tactic.end());
  if (tactic.empty()) return refuse("a library's kernel needs a tactic");
  return std::make_unique<ToldGpuKernel>(timing_name(kLibrary, tactic, KernelSource::kCudnn),
                                         tactic);
}
constexpr KernelEntry of(KernelEntry entry, KernelSource source,
                         std::vector<Tactic> (*tactics)(const Request&)) {
  entry.source = source;
  entry.tactics = tactics;
  return entry;
}
constexpr KernelEntry kToldEntries[] = {
    of(entry<Softmax, make_own>(kOwn), KernelSource::kOwn, own_tactics),
    of(entry<Softmax, make_other>(kOther), KernelSource::kOwn, nullptr),
    of(entry<Softmax, make_library>(kLibrary), KernelSource::kCudnn, library_tactics),
};
constexpr KernelFamily kToldFamilies[] = {
    [] { return std::span<const KernelEntry>(kToldEntries); }};
constexpr Backend kToldBackend = {DeviceKind::kCuda, nullptr, kToldFamilies};

std::string own(size_t i) {
  return timing_name(kOwn, tactic_of(cuda::mma_configs()[i]), KernelSource::kOwn);
}
std::string library(size_t i) {
  Op op = Softmax{};
  SizeTable sizes;
  ToldGpu device("");
  lists_library = true;
  const Request request{op, {}, 0, {}, {}, sizes, device, {}};
  return timing_name(kLibrary, library_tactics(request)[i], KernelSource::kCudnn);
}

class ToldMachine final : public TimingMachine {
 public:
  std::unique_ptr<LayerBench> bench(const TimedStep&, Device&) override {
    struct ToldBench final : LayerBench {
      explicit ToldBench(ToldMachine& of) : machine(of) {}
      void add(const Kernel& kernel) override {
        const std::string& name = static_cast<const ToldGpuKernel&>(kernel).name;
        if (machine.failing == name) fail(ErrorCode::kDevice, "it does not run");
        names.push_back(name);
      }
      double microseconds(size_t kernel) override {
        ++told_samples[names[kernel]];
        std::deque<double>& times = told_times[names[kernel]];
        const double now = times.empty() ? 1000 : times.front();
        if (times.size() > 1) times.pop_front();
        return now;
      }
      std::string difference(size_t kernel) override {
        return machine.wrong == names[kernel] ? "other bytes" : "";
      }
      ToldMachine& machine;
      std::vector<std::string> names;
    };
    ++benches;
    return std::make_unique<ToldBench>(*this);
  }
  std::optional<unsigned> clock_mhz(const Device&) override {
    if (clocks.empty()) return std::nullopt;
    const unsigned now = clocks.front();
    if (clocks.size() > 1) clocks.pop_front();
    return now;
  }
  double seconds() const override { return passed; }

  int benches = 0;
  double passed = 0;
  std::string wrong, failing;
  std::deque<unsigned> clocks;
};

constexpr std::string_view kMachine = "Scripted H100, sm_90, driver 1.2";

class GpuTunerTest : public ::testing::Test {
 protected:
  GpuTunerTest() {
    told_times = {{own(0), {100}}};
    told_samples.clear();
    lists_library = true;
    Plan plan;
    plan.target = "sm_90";
    plan.devices = {"sm_90", "cpu"};
    plan.name = "net";
    add_softmax(plan, "one");
    file_.plans.push_back(std::move(plan));
  }
  static void add_softmax(Plan& plan, const std::string& name, int64_t rows = 8) {
    const Type type{DataType::kF32, {rows, 3}};
    const auto first = static_cast<uint32_t>(plan.slots.size());
    plan.slots.push_back({.name = name + "_x", .type = type, .strides = {3, 1}});
    plan.slots.push_back({.name = name + "_y", .type = type, .strides = {3, 1}});
    plan.steps.push_back({.name = name,
                          .kernel = std::string(kOwn),
                          .op = Softmax{.axis = 1},
                          .op_input_count = 1,
                          .inputs = {first},
                          .outputs = {first + 1},
                          .tactic = tactic_of(cuda::mma_configs()[0])});
  }
  size_t tune(GpuTuner& tuner, Device* card) {
    return tuner.tune(file_, plan(), {kToldBackend, device_, card});
  }
  std::string measure(GpuTunerOptions options = {}) {
    options.measure = true;
    GpuTuner tuner({}, options, machine_);
    tune(tuner, &card_);
    measured_ = tuner.measured();
    return decision();
  }
  Plan& plan() { return file_.plans[0]; }
  const Step& step() { return plan().steps[0]; }
  std::string name() {
    return timing_name(step().kernel, step().tactic,
                       step().kernel == kLibrary ? KernelSource::kCudnn : KernelSource::kOwn);
  }
  std::string decision() {
    return plan().decisions.empty() ? "none" : plan().decisions.back().text;
  }

  EngineFile file_;
  ToldMachine machine_;
  ToldGpu card_{std::string(kMachine)}, device_{"sm_90, to build for"};
  TimingCache measured_;
};

TEST_F(GpuTunerTest, TheFastestTacticIsTaken) {
  told_times[own(2)] = {50};
  EXPECT_THAT(measure(), StartsWith(own(2) + " instead of " + own(0) + ": " + own(2) + " 50 us, " +
                                    own(0) + " 100 us, "));
  EXPECT_EQ(name(), own(2));
  EXPECT_EQ(step().runner_up, "");
  EXPECT_EQ(card_.compilations, 1);
}

TEST_F(GpuTunerTest, ALibraryNeedsMoreThanNoiseAndNamesTheRunnerUp) {
  told_times[own(1)] = {60};
  told_times[library(0)] = {59};
  measure();
  EXPECT_EQ(name(), own(1));
  told_times[library(0)] = {58};
  EXPECT_THAT(measure(), StartsWith(library(0) + " instead of " + own(0)));
  EXPECT_EQ(name(), library(0));
  EXPECT_EQ(step().runner_up, kOwn);
  EXPECT_EQ(step().runner_up_tactic, tactic_of(cuda::mma_configs()[1]));
  EXPECT_EQ(time_in(decision(), library(0)), 58);
  EXPECT_EQ(time_in(decision(), own(1)), 60);
  EXPECT_EQ(fastest_other_in(decision(), library(0)), own(1));
}

TEST_F(GpuTunerTest, TheMedianOfSevenCounts) {
  told_times[own(1)] = {1, 900, 900, 1, 80, 900, 80};
  told_times[kOther.data()] = {90};
  EXPECT_THAT(measure(), HasSubstr(own(1) + " 80 us"));
  EXPECT_EQ(told_samples[own(1)], 7);
}

TEST_F(GpuTunerTest, AHopelessKernelStopsEarly) {
  told_times[own(1)] = {299};
  told_times[own(2)] = {301};
  measure();
  EXPECT_EQ(told_samples[own(0)], 7);
  EXPECT_EQ(told_samples[own(1)], 7);
  EXPECT_EQ(told_samples[own(2)], 2);
}

TEST_F(GpuTunerTest, AChangeOfTheClockMeasuresAgain) {
  told_times[own(1)] = {50};
  machine_.clocks = {1980, 1200, 1200};
  measure();
  EXPECT_EQ(told_samples[own(1)], 14);
  told_samples.clear();
  machine_.clocks = {1980, 1200, 1980, 1200, 1980, 1200};
  measure();
  EXPECT_EQ(told_samples[own(1)], 21);  // at most twice again
}

TEST_F(GpuTunerTest, AnotherResultIsDropped) {
  told_times[own(1)] = {50};
  told_times[own(2)] = {60};
  machine_.wrong = own(1);
  EXPECT_THAT(measure(), HasSubstr(own(1) + " fails or has another result"));
  EXPECT_EQ(name(), own(2));
  // The cache has it, too.
  const std::string first = decision();
  GpuTuner again(parse_timing_cache(to_string(measured_)), {.measure = true}, machine_);
  plan().steps[0].tactic = tactic_of(cuda::mma_configs()[0]);
  tune(again, &card_);
  EXPECT_EQ(decision(), first);
  EXPECT_TRUE(again.measured().empty());
}

TEST_F(GpuTunerTest, WhatDoesNotRunIsDropped) {
  told_times[library(1)] = {10};
  machine_.failing = library(1);
  EXPECT_THAT(measure(), HasSubstr(library(1) + " fails or has another result"));
  EXPECT_EQ(name(), own(0));
}

TEST_F(GpuTunerTest, LayersOfOneTextAreTimedOnce) {
  add_softmax(plan(), "two");
  add_softmax(plan(), "larger", 9);
  told_times[own(1)] = {50};
  measure();
  EXPECT_EQ(machine_.benches, 2);
  EXPECT_EQ(card_.compilations, 1);
  for (const Step& each : plan().steps)
    EXPECT_EQ(each.tactic, tactic_of(cuda::mma_configs()[1])) << each.name;
  EXPECT_EQ(measured_.layers.size(), 2u);
}

TEST_F(GpuTunerTest, TheLevelLimitsTactics) {
  measure({.level = 1});
  EXPECT_EQ(measured_.layers.begin()->second.size(), 3u);  // one of each kernel
  measure({.level = 2});
  EXPECT_EQ(measured_.layers.begin()->second.size(), 5u);
  measure({.level = 5});
  EXPECT_EQ(measured_.layers.begin()->second.size(), 6u);
}

TEST_F(GpuTunerTest, NothingBeginsBehindTheLimit) {
  machine_.passed = 30;
  EXPECT_EQ(measure({.seconds = 30}), "is not timed: the limit of 30 seconds is reached");
  EXPECT_TRUE(told_samples.empty());
  EXPECT_EQ(name(), own(0));
}

TEST_F(GpuTunerTest, ACacheDecidesWithoutCardAndLibrary) {
  told_times[own(1)] = {60};
  told_times[library(1)] = {20};
  const std::string first = measure();
  const Step chosen = step();
  const TimingCache cache = parse_timing_cache(to_string(measured_));
  EXPECT_EQ(cache, measured_);
  ASSERT_EQ(cache.tactics.size(), 2u);

  lists_library = false;
  told_samples.clear();
  plan().steps[0].tactic = tactic_of(cuda::mma_configs()[0]);
  plan().steps[0].kernel = kOwn;
  plan().steps[0].runner_up.clear();
  GpuTuner offline(cache, {.measure = false}, machine_);
  EXPECT_EQ(tune(offline, nullptr), 1u);
  EXPECT_EQ(step().kernel, chosen.kernel);
  EXPECT_EQ(step().tactic, chosen.tactic);
  EXPECT_EQ(step().runner_up, chosen.runner_up);
  EXPECT_EQ(step().runner_up_tactic, chosen.runner_up_tactic);
  EXPECT_EQ(decision(), first + "; on " + std::string(kMachine));
  EXPECT_TRUE(told_samples.empty());
}

TEST_F(GpuTunerTest, TimesOfOtherCardsDoNotCount) {
  told_times[own(1)] = {50};
  const std::string first = measure();
  TimingCache other;
  for (const auto& [key, times] : measured_.layers) {
    TimingKey of_other = key;
    of_other.machine = "Scripted A100, sm_80, driver 1.2";
    other.layers.emplace(of_other, times);
  }
  GpuTuner offline(other, {.measure = false}, machine_);
  EXPECT_EQ(tune(offline, nullptr), 0u);
  EXPECT_EQ(decision(), first) << "the choice of an earlier tuning stays";
  plan().steps[0].tactic = tactic_of(cuda::mma_configs()[0]);
  plan().decisions.clear();
  EXPECT_EQ(tune(offline, nullptr), 0u);
  EXPECT_EQ(decision(), "is not timed: the timing cache has no times of it");
  // Another driver on the same card measures again.
  ToldGpu newer("Scripted H100, sm_90, driver 1.3");
  GpuTuner tuner(measured_, {.measure = true}, machine_);
  tune(tuner, &newer);
  EXPECT_EQ(tuner.measured().layers.size(), 1u);
}

TEST_F(GpuTunerTest, WithoutACardThePlanSaysSo) {
  GpuTuner tuner({}, {.measure = true}, machine_);
  EXPECT_EQ(tuner.tune(file_, plan(), {kToldBackend, device_, nullptr, "there is no card"}), 0u);
  ASSERT_EQ(plan().decisions.size(), 1u);
  EXPECT_EQ(plan().decisions[0].subject, "net");
  EXPECT_EQ(decision(), "kernels for sm_90 are not timed: there is no card");
}

TEST_F(GpuTunerTest, SkippedKernelsAreNotTimed) {
  told_times[library(0)] = {10};
  EXPECT_THAT(measure({.kernels = {.skip = {std::string(kLibrary)}}}),
              Not(HasSubstr(std::string(kLibrary))));
  EXPECT_EQ(name(), own(0));
}

}  // namespace
}  // namespace anneal::testing
