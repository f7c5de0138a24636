// The phases of tuning, in their order. Each reads and extends the state.
#pragma once
#include "anneal/engine/tune/search/tune_state.h"

namespace anneal {

// group_costs.cc: time and output error of each group in each precision.
void calibrate_samples(TuneState& state);
void time_groups(TuneState& state);
void measure_group_errors(TuneState& state);

// judge_mixes.cc
// Judges mixes along the front of all that could be best, and around the budget.
void judge_mixes(TuneState& state);
// The mix on the search samples.
const Judgement& judge_mix(TuneState& state, const Precisions& precisions);
MeasuredScore score_of(const Metric& metric, const Judgement& judgement,
                       const Judgement& reference);

// time_mixes.cc: makes a point of the frontier of each mix that was judged.
void time_mixes(TuneState& state);

// choose_mix.cc
// The fastest within the budget on the search samples. Fails with kInvalidArgument if there is
// none.
void choose_mix(TuneState& state);
// On samples held out from the search; chooses the next mix that holds there.
void confirm_choice(TuneState& state);

// explain_choice.cc
// Why groups of the chosen mix are not in the lowest precision.
void explain_choice(TuneState& state);
void warn_of_doubts(TuneState& state);

}  // namespace anneal
