#include "anneal/engine/tune/search/tune_state.h"
#include "anneal/engine/run/make_engine.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "anneal/engine/builder/builder.h"
#include "anneal/engine/builder/target_support.h"
#include "anneal/engine/tune/samples/sample_cache.h"
#include "anneal/engine/tune/search/step_times.h"
#include "anneal/engine/tune/search/tune_subject.h"
#include "anneal/kernels/cpu/backend.h"

namespace anneal {
namespace {

using Json = nlohmann::json;

constexpr size_t kKeptBytes = size_t{512} << 20;  // of samples, each of two sets
constexpr double kMostNumber = 1e18;  // of milliseconds and bytes that were written down

// Those that are fast, and 8 bits: where they are not, some layers may still gain.
Precisions usual_precisions(const std::string& target) {
  Precisions precisions = fast_precisions(target);
  if (std::ranges::find(precisions, Precision::kI8) == precisions.end())
    precisions.push_back(Precision::kI8);
  return precisions;
}

}  // namespace

TuneState::TuneState(const Graph& tuned, const TuneSamples& given, const TuneOptions& how)
    : model(tuned),
      options(how),
      metric(*options.metric),
      samples{given.calibrate, kept_samples(given.search, kKeptBytes),
              kept_samples(given.confirm, kKeptBytes)},
      is_timed(!options.is_modelled && can_be_timed(options.target)),
      lower(options.precisions.empty() ? usual_precisions(options.target) : options.precisions),
      journal(options.journal.empty()
                  ? TuneJournal()
                  : TuneJournal(options.journal,
                                tuning_subject(model, samples, options, lower, is_timed))) {
  std::erase(lower, Precision::kF32);
  frontier.model = model.name;
  frontier.target = options.target;
  frontier.metric = metric.name();
  frontier.unit = metric.unit();
  frontier.budget = options.budget;
  frontier.budget_is_score = !metric.has_drop();
  frontier.threads = options.threads;
}

Precisions TuneState::all(Precision precision) const {
  Precisions precisions(groups().size(), precision);
  for (size_t i = 0; i < precisions.size(); ++i)
    if (!may_be(i, precision)) precisions[i] = Precision::kF32;
  return precisions;
}

bool TuneState::is_within_budget(const MeasuredScore& score) const {
  constexpr double kRounding = 1e-9;  // of sums
  return frontier.budget_is_score ? score.score >= options.budget
                                  : score.drop <= options.budget + kRounding;
}

JudgeOptions TuneState::judge_options() const {
  return {.threads = options.threads, .data_threads = options.data_threads};
}

double TuneState::seconds_spent() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void TuneState::report_progress(std::string what, double share) const {
  TuneProgress progress{std::move(what), share, std::nullopt};
  // Findings of the journal took no time.
  const double spent = seconds_spent();
  if (share > 0.05 && spent > 2) {
    progress.seconds_left = spent / share * (1 - share);
    if (options.seconds > 0)
      progress.seconds_left =
          std::min(*progress.seconds_left, std::max(options.seconds - spent, 0.0));
  }
  options.progress(progress);
}

EngineFile TuneState::build_mix(const Precisions& precisions, const std::string& target) const {
  GraphBuildOptions build_options;
  build_options.targets = {target};
  build_options.passes = options.passes;
  build_options.passes.precision =
      mix_options(groups(), precisions, ranges, options.passes.precision.symmetric);
  build_options.skip_kernels = options.skip_kernels;
  return build(model.clone(), build_options);
}

std::shared_ptr<const Engine> TuneState::judged_engine(const Precisions& precisions) const {
  const std::string target = can_be_timed(options.target) ? options.target : "cpu";
  return make_engine(
      build_mix(precisions, target),
      {.device = target.starts_with("sm_") ? "cuda" : target, .threads = options.threads});
}

std::optional<std::vector<double>> parse_numbers(const std::string& text, size_t count) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_array() || json.size() != count) return std::nullopt;
  std::vector<double> numbers;
  for (const Json& each : json) {
    if (!each.is_number() || !(each.get<double>() >= 0 && each.get<double>() < kMostNumber))
      return std::nullopt;
    numbers.push_back(each.get<double>());
  }
  return numbers;
}

}  // namespace anneal
