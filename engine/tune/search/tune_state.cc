#include "anneal/engine/tune/search/tune_state.h"
#include "anneal/engine/run/make_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "anneal/core/fail.h"
#include "anneal/engine/builder/builder.h"
#include "anneal/engine/builder/target_support.h"
#include "anneal/engine/tune/samples/sample_cache.h"
#include "anneal/engine/tune/search/mix_options.h"
#include "anneal/engine/tune/search/step_times.h"
#include "anneal/engine/tune/search/tune_subject.h"
#include "anneal/kernels/cpu/backend.h"

namespace anneal {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kKeptBytes = size_t{512} << 20;  // of samples, each of two sets
constexpr double kMostNumber = 1e18;  // of milliseconds and bytes that were written down

// Those that are fast, and 8 bits: where they are not, some layers may still gain.
Precisions usual_precisions(const std::string& target) {
  Precisions precisions = fast_precisions(target);
  if (std::ranges::find(precisions, Precision::kI8) == precisions.end())
    precisions.push_back(Precision::kI8);
  return precisions;
}

Precisions lower_precisions(const BuildOptions& options) {
  const PrecisionOptions& precision = options.precision;
  Precisions lower = precision.types.empty() || precision.best
                         ? usual_precisions(options.targets[0])
                         : Precisions(precision.types.begin(), precision.types.end());
  std::erase(lower, Precision::kF32);
  return lower;
}

PassOptions tuned_passes(const BuildOptions& options) {
  PassOptions passes = graph_options(options).passes;
  passes.precision = {.symmetric = options.precision.symmetric};
  return passes;
}

const std::string& only_target(const BuildOptions& options) {
  if (options.targets.size() != 1)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("tuning is for one target, not {}", options.targets.size()));
  return options.targets[0];
}

const Metric& metric_in(const std::shared_ptr<const Metric>& metric) {
  if (!metric) fail(ErrorCode::kInvalidArgument, "tuning needs a metric: make_metric(\"top1\")");
  return *metric;
}

}  // namespace

TuneState::TuneState(const Graph& tuned, const TuneSamples& given,
                     std::shared_ptr<const Metric> judged_by, const BuildOptions& how)
    : model(tuned),
      options(how),
      tuning(how.tuning),
      target(only_target(how)),
      passes(tuned_passes(how)),
      shared_metric(std::move(judged_by)),
      metric(metric_in(shared_metric)),
      samples{given.calibrate, kept_samples(given.search, kKeptBytes),
              kept_samples(given.confirm, kKeptBytes)},
      is_timed(!tuning.modelled_times && can_be_timed(target)),
      lower(lower_precisions(how)),
      journal(tuning.journal.empty()
                  ? TuneJournal()
                  : TuneJournal(tuning.journal,
                                tuning_subject(model, samples, metric, options, lower, is_timed))) {
  frontier.model = model.name;
  frontier.target = target;
  frontier.metric = metric.name();
  frontier.unit = metric.unit();
  frontier.budget = tuning.budget;
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
  return frontier.budget_is_score ? score.score >= tuning.budget
                                  : score.drop <= tuning.budget + kRounding;
}

JudgeOptions TuneState::judge_options() const {
  return {.threads = options.threads, .data_threads = options.data_threads};
}

double TuneState::seconds_spent() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void TuneState::report_progress(std::string what, double share) const {
  Progress progress{std::move(what), share, std::nullopt};
  // Findings of the journal took no time.
  const double spent = seconds_spent();
  if (share > 0.05 && spent > 2) {
    progress.seconds_left = spent / share * (1 - share);
    if (tuning.seconds > 0)
      progress.seconds_left =
          std::min(*progress.seconds_left, std::max(tuning.seconds - spent, 0.0));
  }
  if (options.progress && !options.progress(progress))
    fail(ErrorCode::kCancelled, "tuning was cancelled");
}

EngineFile TuneState::build_mix(const Precisions& precisions, const std::string& for_target) const {
  GraphBuildOptions build_options;
  build_options.targets = {for_target};
  build_options.passes = passes;
  build_options.passes.precision =
      mix_options(groups(), precisions, ranges, options.precision.symmetric);
  build_options.skip_kernels = options.skip_kernels;
  EngineFile built = build(model.clone(), build_options);
  if (recipe) built.recipe = recipe(build_options.passes.precision);
  return built;
}

std::shared_ptr<const Engine> TuneState::judged_engine(const Precisions& precisions) const {
  const std::string judged = can_be_timed(target) ? target : "cpu";
  return make_engine(
      build_mix(precisions, judged),
      {.device = judged.starts_with("sm_") ? "cuda" : judged, .threads = options.threads});
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
