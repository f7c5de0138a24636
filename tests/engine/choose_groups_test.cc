// Fused layers run apart where the times of a cache say that this is faster.
#include "anneal/engine/builder/choose_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "anneal/core/version.h"
#include "anneal/engine/builder/emit.h"
#include "anneal/engine/builder/timing/timed_step.h"
#include "anneal/graph/text/text.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/kernels/cuda/backend.h"
#include "anneal/optimizer/pipeline/pipeline.h"
#include "anneal/optimizer/split_fused.h"

namespace anneal::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// Three products of one input, which are merged, and one with an epilogue.
constexpr std::string_view kNet = R"txt(
graph net(x: f16[64,128])
  const wq: f16[128,64] = random(1)
  const wk: f16[128,64] = random(2)
  const wo: f16[64,32] = random(3)
  const b: f16[32] = random(4)
  q = MatMul(x, wq)
  k = MatMul(x, wk)
  o = MatMul(q, wo)
  y = Pointwise(o, b) program="(f16,f16)->(f16) max(add($0,$1),0f32)"
  return y, k
)txt";

struct Setting {
  Setting() : target(open_target("sm_90", cpu_backend())) {
    graph = parse_graph(kNet);
    PassOptions options;
    options.native = target.native;
    options.ask_targets = ask_targets({&target});
    run_pipeline(graph, default_pipeline(), options);
  }
  GpuPlace place() { return {cuda_backend(), *target.devices[0], nullptr, ""}; }

  // Times of the heuristic's kernels of all steps of the graph; `others` for those that are not
  // named.
  void add_times(const Graph& from, const std::map<std::string, double>& times, double others,
                 TimingCache& cache) {
    WeightPool weights(EqualWeights::kAll);
    EngineFile file;
    file.plans.push_back(emit(from, target.places, weights, {.makes_code = false}));
    file.weights = weights.take();
    const Plan& plan = file.plans[0];
    for (const Step& step : plan.steps) {
      const KernelEntry* const entry = find_kernel(cuda_backend(), step.kernel);
      if (step.device != 0 || entry == nullptr || !can_be_timed(plan, step)) continue;
      const TimedStep timed(file, plan, step);
      Device& device = *target.devices[0];
      const auto found = times.find(step.name);
      const Tactic tactic = entry->tactics == nullptr ? Tactic() : step.tactic;
      cache.layers[{std::string(version()), device.machine(), 1, timed.text(device)}] = {
          {timing_name(entry->name, tactic, entry->source),
           found == times.end() ? others : found->second}};
    }
  }

  Target target;
  Graph graph;
};

std::vector<std::string> names_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const LayerId id : graph.order()) names.push_back(graph.layer(id).name);
  return names;
}

class NoMachine final : public TimingMachine {
 public:
  std::unique_ptr<LayerBench> bench(const TimedStep&, Device&) override { return nullptr; }
  double seconds() const override { return 0; }
};

std::vector<Decision> choose(Setting& setting, const TimingCache& cache) {
  NoMachine machine;
  GpuTuner tuner(cache, {}, machine);
  return choose_groups(setting.graph, setting.target, setting.place(), tuner);
}

TEST(ChooseGroups, TakesApartWhatIsFasterApart) {
  Setting setting;
  ASSERT_THAT(names_of(setting.graph), ElementsAre("q", "o"));
  Graph apart = setting.graph.clone();
  split_fused(apart, [](const std::string&) { return true; });
  ASSERT_THAT(names_of(apart), UnorderedElementsAre("q", "q/part1", "o/product", "o"));
  TimingCache cache;
  setting.add_times(setting.graph, {{"q", 100}, {"o", 50}}, 1, cache);
  // The two parts of q have one text, and so one time.
  setting.add_times(apart, {{"q", 45}, {"q/part1", 45}, {"o/product", 30}, {"o", 21}}, 1, cache);
  const auto decisions = choose(setting, cache);
  EXPECT_THAT(names_of(setting.graph), UnorderedElementsAre("q", "q/part1", "o"));
  ASSERT_EQ(decisions.size(), 2u);
  EXPECT_EQ(decisions[0].subject, "q");
  EXPECT_EQ(decisions[0].text, "runs apart: its 2 parts take 90.00 us, and one kernel 100.00 us");
  EXPECT_FALSE(decisions[0].refused);
  EXPECT_EQ(decisions[1].text, "stays fused: its 2 parts take 51.00 us, and one kernel 50.00 us");
  EXPECT_TRUE(decisions[1].refused);

  // A build with this plan as its record takes apart the same.
  Plan recorded;
  recorded.decisions = decisions;
  Setting again;
  EXPECT_EQ(repeat_groups(again.graph, recorded), decisions);
  EXPECT_EQ(names_of(again.graph), names_of(setting.graph));
}

TEST(ChooseGroups, LeavesWhatIsWithinTheNoise) {
  Setting setting;
  Graph apart = setting.graph.clone();
  split_fused(apart, [](const std::string&) { return true; });
  TimingCache cache;
  setting.add_times(setting.graph, {{"q", 100}, {"o", 100}}, 1, cache);
  setting.add_times(apart, {{"q", 49.5}, {"q/part1", 49.5}, {"o/product", 50}, {"o", 49}}, 1,
                    cache);
  for (const Decision& decision : choose(setting, cache)) EXPECT_TRUE(decision.refused);
  EXPECT_THAT(names_of(setting.graph), ElementsAre("q", "o"));
}

TEST(ChooseGroups, ChangesNothingWithoutTimes) {
  Setting setting;
  EXPECT_THAT(choose(setting, {}), IsEmpty());
  EXPECT_THAT(names_of(setting.graph), ElementsAre("q", "o"));
}

}  // namespace
}  // namespace anneal::testing
