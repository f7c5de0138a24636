#include "anneal/engine/tune/search/tune.h"

#include <algorithm>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/engine/tune/calibration/prepared_graph.h"
#include "anneal/engine/tune/frontier/frontier_forms.h"
#include "anneal/engine/tune/search/precision_groups.h"
#include "anneal/engine/tune/search/tune_phases.h"

namespace anneal {
namespace {

void form_groups(TuneState& state) {
  state.frontier.groups =
      precision_groups(prepared_for_precision(state.model, state.passes), state.tuning.most_groups);
  if (state.groups().empty())
    fail(ErrorCode::kInvalidArgument,
         "the model has no convolution or product to choose a precision for");
  if (std::ranges::none_of(state.groups(), &PrecisionGroup::can_be_int8))
    std::erase(state.lower, Precision::kI8);
}

// The judgement of f32 must be that of the journal: else the data or the metric has changed, and
// its findings are worth nothing.
void check_journal(TuneState& state) {
  const std::string f32 = to_string(state.judge->reference());
  const std::string* known = state.journal.known("f32");
  if (known && *known != f32) state.journal.forget();
  if (!state.journal.known("f32")) state.journal.remember("f32", f32);
}

}  // namespace

TuneResult tune(const Graph& model, const TuneSamples& samples,
                const std::shared_ptr<const Metric>& metric, const BuildOptions& options,
                const RecipeOfPrecision& recipe) {
  TuneState state(model, samples, metric, options);
  state.recipe = recipe;
  form_groups(state);
  // A metric that does not fit the model fails before the long work.
  state.judge.emplace(metric, state.judged_engine(state.all(Precision::kF32)), state.samples.search,
                      state.judge_options());
  check_journal(state);
  calibrate_samples(state);
  time_groups(state);
  measure_group_errors(state);
  judge_mixes(state);
  time_mixes(state);
  choose_mix(state);
  confirm_choice(state);
  claim_scores(state.frontier);
  explain_choice(state);
  warn_of_doubts(state);
  state.frontier.symmetric = options.precision.symmetric;
  if (state.ranges) state.frontier.calibration = to_string(*state.ranges);
  const Precisions& chosen = state.frontier.points[state.frontier.chosen].precisions;
  EngineFile engine = state.build_mix(chosen, state.target);
  return {std::move(state.frontier), std::move(engine), state.journal.was_resumed()};
}

}  // namespace anneal
