#include <fmt/format.h>

#include "anneal/engine/tune/search/tune_phases.h"

namespace anneal {

void explain_choice(TuneState& state) {
  Frontier& frontier = state.frontier;
  const FrontierPoint& chosen = frontier.points[frontier.chosen];
  for (size_t i = 0; i < state.groups().size(); ++i) {
    const Precision is = chosen.precisions[i];
    if (is == Precision::kI8) continue;
    // The fastest that it could be in.
    std::optional<Precision> other;
    for (const Precision precision : state.lower)
      if (precision != is && state.errors.contains({i, precision}) &&
          (!other || state.times.at(precision)[i] < state.times.at(*other)[i]))
        other = precision;
    KeptHigh kept{i, is, {}};
    if (!other) {
      kept.why = state.may_be(i, Precision::kI8)
                     ? "the time limit was reached before it was measured"
                     : "it cannot be computed in 8 bits";
    } else if (const double saved = state.times.at(is)[i] - state.times.at(*other)[i]; saved <= 0) {
      kept.why = fmt::format("{} is no faster: {:.4g} against {:.4g} ms", to_string(*other),
                             state.times.at(*other)[i], state.times.at(is)[i]);
    } else {
      const auto own = state.errors.find({i, is});
      kept.why =
          fmt::format("{} would save {:.4g} ms, with an output_error of {:.1e} instead of {:.1e}",
                      to_string(*other), saved, state.errors.at({i, *other}),
                      own == state.errors.end() ? 0 : own->second);
    }
    frontier.kept_high.push_back(std::move(kept));
  }
}

void warn_of_doubts(TuneState& state) {
  Frontier& frontier = state.frontier;
  const FrontierPoint& chosen = frontier.points[frontier.chosen];
  const std::string& unit = frontier.unit;
  if (!frontier.budget_is_score) {
    const auto one = 100.0 / static_cast<double>(chosen.search.samples);
    if (state.metric.is_share() && one > state.tuning.budget && state.tuning.budget > 0)
      frontier.warnings.push_back(
          fmt::format("one of {} samples is {:.2g} points, more than the budget of {:.2g}: more "
                      "samples would distinguish mixes",
                      chosen.search.samples, one, state.tuning.budget));
    const MeasuredScore& judged = chosen.confirmed ? *chosen.confirmed : chosen.search;
    if (judged.drop_high > state.tuning.budget)
      frontier.warnings.push_back(fmt::format(
          "{} samples are too few to be sure of the budget: the drop is between {:.2f} and "
          "{:.2f} {} (95 %)",
          judged.samples, judged.drop_low, judged.drop_high, unit == "%" ? "points" : unit));
  }
  if (state.unmeasured > 0)
    frontier.warnings.push_back(
        fmt::format("time ran out: {} of {} choices for single groups were not tested within the "
                    "time limit, and are left out",
                    state.unmeasured, state.groups().size() * state.lower.size()));
  if (!state.is_timed)
    frontier.warnings.push_back(
        "latencies are modelled, not measured: the target is not in this machine, or modelled "
        "times were requested");
}

}  // namespace anneal
