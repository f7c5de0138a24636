#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/fail.h"
#include "anneal/engine/tune/frontier/frontier_forms.h"
#include "anneal/engine/tune/search/tune_phases.h"
#include "anneal/engine/tune/search/tune_subject.h"

namespace anneal {
namespace {

bool is_f32(const FrontierPoint& point) {
  return std::ranges::all_of(point.precisions,
                             [](Precision each) { return each == Precision::kF32; });
}

// Judges points on the samples that confirm, each once.
class Confirmer {
 public:
  explicit Confirmer(TuneState& state) : state_(state) {}

  void confirm(FrontierPoint& point) {
    if (point.confirmed) return;
    state_.report_progress("confirming " + point.name,
                           kConfirming + (1 - kConfirming) * static_cast<double>(done_++) /
                                             static_cast<double>(state_.frontier.points.size()));
    if (!reference_)
      reference_ = find("confirmed f32", [](Judge& judge) { return judge.reference(); });
    const Judgement judgement = find("confirmed " + key_of(point.precisions), [&](Judge& judge) {
      return judge.judge(state_.judged_engine(point.precisions));
    });
    point.confirmed = score_of(state_.metric, judgement, *reference_);
  }

 private:
  template <class By>
  Judgement find(const std::string& name, const By& by) {
    const auto judged = [&] {
      if (!judge_)
        judge_.emplace(state_.shared_metric, state_.judged_engine(state_.all(Precision::kF32)),
                       state_.samples.confirm, state_.judge_options());
      return to_string(by(*judge_));
    };
    return find_once(state_.journal, name, judged, [&](const std::string& text) {
      return parse_judgement(text, static_cast<size_t>(state_.samples.confirm->size()));
    });
  }

  TuneState& state_;
  size_t done_ = 0;
  std::optional<Judge> judge_;
  std::optional<Judgement> reference_;
};

}  // namespace

void choose_mix(TuneState& state) {
  Frontier& frontier = state.frontier;
  for (size_t i = 0; i < frontier.points.size(); ++i)
    if (state.is_within_budget(frontier.points[i].search)) {
      frontier.chosen = i;
      return;
    }
  fail(ErrorCode::kInvalidArgument,
       fmt::format("nothing meets the budget, not even f32, whose {} is {:.4g} {}",
                   state.metric.name(), f32_point(frontier)->search.score, state.metric.unit()));
}

void confirm_choice(TuneState& state) {
  Confirmer confirmer(state);
  Frontier& frontier = state.frontier;
  std::vector<FrontierPoint>& points = frontier.points;
  // Slower mixes mostly lose less.
  const size_t wanted = frontier.chosen;
  for (size_t i = wanted; i < points.size(); ++i) {
    if (!state.is_within_budget(points[i].search)) continue;
    confirmer.confirm(points[i]);
    frontier.chosen = i;
    if (state.is_within_budget(*points[i].confirmed)) break;
    if (!is_f32(points[i])) ++frontier.turned_down;
  }
  if (frontier.chosen != wanted)
    frontier.warnings.push_back(
        fmt::format("{} meets the budget on the search samples, but not on the held-out samples; "
                    "{} does on both",
                    points[wanted].name, points[frontier.chosen].name));
  if (!state.is_within_budget(*points[frontier.chosen].confirmed))
    frontier.warnings.push_back("no mix meets the budget on the held-out samples");
  for (FrontierPoint& point : points)
    if (state.has_time(1)) confirmer.confirm(point);
}

}  // namespace anneal
