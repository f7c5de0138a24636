#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "anneal/engine/data/subset.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/engine/tune/calibration/calibrate.h"
#include "anneal/engine/tune/search/precision_groups.h"
#include "anneal/engine/tune/search/step_times.h"
#include "anneal/engine/tune/search/tune_phases.h"

namespace anneal {
namespace {

using Json = nlohmann::ordered_json;
using Table = std::optional<std::shared_ptr<const CalibrationTable>>;

constexpr int64_t kFewestUnsure = 16, kMostUnsure = 64;

Table parse_table(const std::string& text) {
  try {
    return std::make_shared<const CalibrationTable>(parse_calibration_table(text));
  } catch (const Error&) {
    return std::nullopt;  // the journal is a file, which may have been edited
  }
}

// Milliseconds of each group, all being in one precision.
std::vector<double> times_in(TuneState& state, Precision precision) {
  const size_t count = state.groups().size() + 1;  // the last: steps of no group
  const auto find = [&] {
    std::vector<double> of_groups(count);
    std::vector<double> of_steps;
    std::vector<size_t> group_of_step;
    if (state.is_timed) {
      const auto timed = state.judged_engine(state.all(precision));
      of_steps = measured_step_times(timed, state.samples.search->read(0), state.options.threads);
      group_of_step = groups_of_steps(plan_of(*timed), state.groups());
    } else {
      const EngineFile built = state.build_mix(state.all(precision), state.target);
      of_steps = modelled_step_times(built.plans[0]);
      group_of_step = groups_of_steps(built.plans[0], state.groups());
    }
    for (size_t i = 0; i < of_steps.size(); ++i) of_groups[group_of_step[i]] += of_steps[i];
    return Json(of_groups).dump();
  };
  return find_once(state.journal, fmt::format("times in {}", to_string(precision)), find,
                   [&](const std::string& text) { return parse_numbers(text, count); });
}

// The samples with the smallest margins: they show first that the model's answers change.
std::shared_ptr<const Dataset> unsure_samples(const TuneState& state) {
  const auto& margins = state.judge->margins();
  std::vector<int64_t> order(margins.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::ranges::stable_sort(order, {}, [&](int64_t i) { return margins[static_cast<size_t>(i)]; });
  const auto most =
      std::clamp<int64_t>(static_cast<int64_t>(order.size()) / 2, kFewestUnsure, kMostUnsure);
  order.resize(static_cast<size_t>(std::min(most, static_cast<int64_t>(order.size()))));
  std::ranges::sort(order);
  return subset(state.samples.search, std::move(order));
}

}  // namespace

void calibrate_samples(TuneState& state) {
  if (std::ranges::find(state.lower, Precision::kI8) == state.lower.end()) return;
  if (state.options.precision.ranges) {
    state.ranges = state.options.precision.ranges;
    return;
  }
  const auto find = [&] {
    BuildOptions calibrating = state.options;
    calibrating.progress = [&](const Progress& at) {
      state.report_progress(at.what, kCalibrated * at.share);
      return true;
    };
    return to_string(calibrate(state.model, state.samples.calibrate, calibrating).table);
  };
  state.ranges = find_once(state.journal, "calibration", find, parse_table);
}

void time_groups(TuneState& state) {
  state.times[Precision::kF32] = times_in(state, Precision::kF32);
  for (const Precision precision : state.lower) {
    state.report_progress(fmt::format("timing groups in {}", to_string(precision)), kCalibrated);
    state.times[precision] = times_in(state, precision);
  }
}

void measure_group_errors(TuneState& state) {
  std::optional<Judge> unsure;
  const size_t count = state.groups().size();
  const size_t choices = count * state.lower.size();
  size_t done = 0;
  for (const Precision precision : state.lower)
    for (size_t i = 0; i < count; ++i, ++done) {
      if (!state.may_be(i, precision)) continue;
      const std::string what =
          fmt::format("output_error by {} in {}", to_string(precision), state.groups()[i].name);
      if (!state.journal.known(what) && !state.has_time(kGroupsShare)) {
        ++state.unmeasured;
        continue;
      }
      state.report_progress(fmt::format("group {} of {} in {}", i + 1, count, to_string(precision)),
                            kCalibrated + (kGroupsDone - kCalibrated) * static_cast<double>(done) /
                                              static_cast<double>(choices));
      const auto find = [&] {
        if (!unsure)
          unsure.emplace(state.shared_metric, state.judged_engine(state.all(Precision::kF32)),
                         unsure_samples(state), state.judge_options());
        Precisions one = state.all(Precision::kF32);
        one[i] = precision;
        return Json{unsure->judge(state.judged_engine(one)).output_error()}.dump();
      };
      const auto numbers = find_once(state.journal, what, find, [](const std::string& text) {
        return parse_numbers(text, 1);
      });
      state.errors[{i, precision}] = numbers[0];
    }
}

}  // namespace anneal
