#include "anneal/engine/builder/choose_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "anneal/engine/builder/emit.h"
#include "anneal/engine/builder/timing/sampled_times.h"
#include "anneal/engine/builder/weight_pool.h"
#include "anneal/optimizer/split_fused.h"

namespace anneal {
namespace {

// Of the steps of a plan for the graph, with their kernels chosen.
StepTimes times_of(const Graph& graph, const Target& target, const GpuPlace& place,
                   GpuTuner& tuner) {
  WeightPool weights(EqualWeights::kAll);
  EngineFile file;
  file.plans.push_back(emit(graph, target.places, weights, {.makes_code = false}));
  file.weights = weights.take();
  StepTimes times;
  tuner.tune(file, file.plans[0], place, &times);
  return times;
}

// Nullopt if a step has no time.
std::optional<double> sum_of(const StepTimes& times, const std::vector<std::string>& steps) {
  double sum = 0;
  for (const std::string& step : steps) {
    const auto found = times.find(step);
    if (found == times.end()) return std::nullopt;
    sum += found->second;
  }
  return sum;
}

}  // namespace

std::vector<Decision> choose_groups(Graph& graph, const Target& target, const GpuPlace& place,
                                    GpuTuner& tuner) {
  Graph apart = graph.clone();
  const std::vector<SplitLayer> groups =
      split_fused(apart, [](const std::string&) { return true; });
  if (groups.empty()) return {};
  const StepTimes of_fused = times_of(graph, target, place, tuner);
  const StepTimes of_parts = times_of(apart, target, place, tuner);
  std::vector<Decision> decisions;
  std::set<std::string> chosen;
  for (const SplitLayer& group : groups) {
    const auto fused = of_fused.find(group.layer);
    const std::optional<double> parts = sum_of(of_parts, group.parts);
    if (fused == of_fused.end() || !parts) continue;
    const bool is_faster = *parts < (1 - kTimingNoise) * fused->second;
    decisions.push_back({std::string(kApart), group.layer,
                         fmt::format("{}: its {} parts take {:.2f} us, and one kernel {:.2f} us",
                                     is_faster ? "runs apart" : "stays fused", group.parts.size(),
                                     *parts, fused->second),
                         !is_faster});
    if (is_faster) chosen.insert(group.layer);
  }
  split_fused(graph, [&](const std::string& layer) { return chosen.contains(layer); });
  return decisions;
}

std::vector<Decision> repeat_groups(Graph& graph, const Plan& recorded) {
  std::vector<Decision> decisions;
  std::set<std::string> apart;
  for (const Decision& decision : recorded.decisions) {
    if (decision.stage != kApart) continue;
    decisions.push_back(decision);
    if (!decision.refused) apart.insert(decision.subject);
  }
  if (!apart.empty())
    split_fused(graph, [&](const std::string& layer) { return apart.contains(layer); });
  return decisions;
}

}  // namespace anneal
