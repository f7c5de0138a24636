#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "anneal/engine/tune/search/mix_front.h"
#include "anneal/engine/tune/search/tune_phases.h"
#include "anneal/engine/tune/search/tune_subject.h"

namespace anneal {
namespace {

constexpr size_t kEvenly = 6, kAroundBudget = 5;  // mixes that are judged

// All mixes that could be best, from the fastest on.
class MixFront {
 public:
  explicit MixFront(const TuneState& state) : choices_(state.groups().size()) {
    std::vector<std::vector<ChoiceCost>> costs(choices_.size());
    for (size_t i = 0; i < choices_.size(); ++i) {
      const auto add = [&](Precision precision, double output_error) {
        choices_[i].push_back(precision);
        costs[i].push_back({state.times.at(precision)[i], output_error});
      };
      add(Precision::kF32, 0);
      for (const Precision precision : state.lower)
        if (const auto found = state.errors.find({i, precision}); found != state.errors.end())
          add(precision, found->second);
    }
    mixes_ = mix_front(costs);
  }

  size_t size() const { return mixes_.size(); }
  Precisions operator[](size_t index) const {
    Precisions precisions;
    for (size_t i = 0; i < choices_.size(); ++i)
      precisions.push_back(choices_[i][mixes_[index].choices[i]]);
    return precisions;
  }
  // The slowest mix of the first `step` of `steps` parts of the time between the ends.
  size_t at(size_t step, size_t steps) const {
    const double fastest = mixes_.front().milliseconds, slowest = mixes_.back().milliseconds;
    const double at =
        fastest + (slowest - fastest) * static_cast<double>(step) / static_cast<double>(steps);
    size_t i = 0;
    while (i + 1 < mixes_.size() && mixes_[i + 1].milliseconds <= at) ++i;
    return i;
  }

 private:
  std::vector<Precisions> choices_;  // of each group
  std::vector<Mix> mixes_;
};

}  // namespace

MeasuredScore score_of(const Metric& metric, const Judgement& judgement,
                       const Judgement& reference) {
  // The reference loses nothing against itself, whatever the samples.
  const DropInterval drop = &judgement == &reference
                                ? DropInterval{}
                                : drop_of(metric, judgement.scores, reference.scores);
  std::vector<const SampleScore*> scores;
  for (const SampleScore& score : judgement.scores) scores.push_back(&score);
  return {static_cast<int64_t>(scores.size()), metric.score(scores), drop.drop, drop.low,
          drop.high};
}

const Judgement& judge_mix(TuneState& state, const Precisions& precisions) {
  const std::string key = key_of(precisions);
  if (const auto known = state.judgements.find(key); known != state.judgements.end())
    return known->second;
  state.tried.push_back(precisions);
  const auto find = [&] { return to_string(state.judge->judge(state.judged_engine(precisions))); };
  const auto parse = [&](const std::string& text) {
    return parse_judgement(text, static_cast<size_t>(state.samples.search->size()));
  };
  return state.judgements[key] = find_once(state.journal, "judged " + key, find, parse);
}

void judge_mixes(TuneState& state) {
  const MixFront front(state);
  judge_mix(state, state.all(Precision::kF32));
  for (const Precision precision : state.lower)
    if (state.has_time(kMixesShare)) judge_mix(state, state.all(precision));
  const auto report = [&](const char* why) {
    const double done =
        static_cast<double>(state.tried.size()) / static_cast<double>(kEvenly + kAroundBudget + 3);
    state.report_progress(fmt::format("judging mixes {}", why),
                          kGroupsDone + (kMixesDone - kGroupsDone) * std::min(1.0, done));
  };
  const auto is_within = [&](size_t i) {
    return state.is_within_budget(
        score_of(state.metric, judge_mix(state, front[i]), state.judge->reference()));
  };
  // From the fastest to f32, in steps of equal time.
  std::set<size_t> even;
  for (size_t k = 0; k < kEvenly && state.has_time(kMixesShare); ++k) {
    const size_t i = front.at(k, kEvenly - 1);
    if (!even.insert(i).second) continue;
    report("along the front");
    judge_mix(state, front[i]);
  }
  // The fastest within the budget is between a mix that is not and the next that is.
  size_t outside = 0, within = front.size() - 1;
  for (const size_t i : even) {
    if (is_within(i)) {
      within = i;
      break;
    }
    outside = i;
  }
  for (size_t k = 0; k < kAroundBudget && outside + 1 < within && state.has_time(kMixesShare);
       ++k) {
    const size_t middle = (outside + within) / 2;
    report("around the budget");
    (is_within(middle) ? within : outside) = middle;
  }
}

}  // namespace anneal
