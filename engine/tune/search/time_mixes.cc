#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "anneal/engine/builder/builder.h"
#include "anneal/engine/tune/search/step_times.h"
#include "anneal/engine/tune/search/tune_phases.h"
#include "anneal/engine/tune/search/tune_subject.h"

namespace anneal {
namespace {

constexpr double kTimedSeconds = 0.6;  // each mix
// For each mix: bytes of the engine; milliseconds, in the median and at the 99th percentile; bytes
// of memory.
constexpr size_t kNumbers = 4;

double seconds_for_each(const TuneState& state) {
  if (state.tuning.seconds <= 0) return kTimedSeconds;
  return std::clamp(
      (state.tuning.seconds - state.seconds_spent()) / 2 / static_cast<double>(state.tried.size()),
      0.0, kTimedSeconds);
}

std::vector<double> measure_mixes(const TuneState& state) {
  std::vector<double> numbers;
  std::vector<std::shared_ptr<const Engine>> engines;
  for (const Precisions& each : state.tried) {
    state.report_progress(
        fmt::format("building mix {} of {}", numbers.size() / kNumbers + 1, state.tried.size()),
        kMixesDone);
    EngineFile built = state.build_mix(each, state.target);
    double milliseconds = 0;
    if (state.is_timed) {
      engines.push_back(state.judged_engine(each));
    } else {
      const std::vector<double> steps = modelled_step_times(built.plans[0]);
      milliseconds = std::accumulate(steps.begin(), steps.end(), 0.0);
    }
    const auto bytes = static_cast<double>(save(built).size());
    numbers.insert(numbers.end(), {bytes, milliseconds, milliseconds, 0});
  }
  if (!state.is_timed) return numbers;
  state.report_progress(fmt::format("timing {} mixes in turn", state.tried.size()), kMixesDone);
  const std::vector<TimedEngine> timed = timed_in_turn(
      engines, state.samples.search->read(0), state.options.threads, seconds_for_each(state));
  for (size_t i = 0; i < timed.size(); ++i) {
    numbers[kNumbers * i + 1] = timed[i].milliseconds;
    numbers[kNumbers * i + 2] = timed[i].milliseconds_p99;
    numbers[kNumbers * i + 3] = static_cast<double>(timed[i].memory_bytes);
  }
  return numbers;
}

void mark_frontier(std::vector<FrontierPoint>& points) {
  double least = std::numeric_limits<double>::infinity();
  for (FrontierPoint& point : points) {
    point.is_on_frontier = point.output_error < least;
    least = std::min(least, point.output_error);
  }
}

void name_points(TuneState& state) {
  int mixes = 0;
  for (FrontierPoint& point : state.frontier.points) {
    for (const Precision precision :
         {Precision::kF32, Precision::kF16, Precision::kBF16, Precision::kI8})
      if (point.name.empty() && point.precisions == state.all(precision))
        point.name = to_string(precision);
    if (point.name.empty()) point.name = fmt::format("mix-{}", ++mixes);
  }
}

}  // namespace

void time_mixes(TuneState& state) {
  state.report_progress("timing the mixes", kMixesDone);
  std::string key = "timed";
  for (const Precisions& each : state.tried) key += " " + key_of(each);
  const std::vector<double> numbers = find_once(
      state.journal, key, [&] { return nlohmann::ordered_json(measure_mixes(state)).dump(); },
      [&](const std::string& text) { return parse_numbers(text, kNumbers * state.tried.size()); });
  std::vector<FrontierPoint>& points = state.frontier.points;
  for (size_t i = 0; i < state.tried.size(); ++i) {
    const Judgement& judgement = judge_mix(state, state.tried[i]);
    FrontierPoint point;
    point.precisions = state.tried[i];
    point.output_error = judgement.output_error();
    point.search = score_of(state.metric, judgement, state.judge->reference());
    point.engine_bytes = static_cast<uint64_t>(numbers[kNumbers * i]);
    point.milliseconds = numbers[kNumbers * i + 1];
    point.milliseconds_p99 = numbers[kNumbers * i + 2];
    point.memory_bytes = static_cast<uint64_t>(numbers[kNumbers * i + 3]);
    point.is_modelled = !state.is_timed;
    points.push_back(std::move(point));
  }
  std::ranges::stable_sort(points, {}, &FrontierPoint::milliseconds);
  mark_frontier(points);
  name_points(state);
}

}  // namespace anneal
