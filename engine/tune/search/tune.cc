#include "anneal/engine/tune/search/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "anneal/engine/builder/builder.h"
#include "anneal/engine/builder/target_support.h"
#include "anneal/engine/run/engine.h"
#include "anneal/engine/tune/calibration/calibrate.h"
#include "anneal/engine/tune/calibration/prepared_graph.h"
#include "anneal/engine/tune/metric/judge.h"
#include "anneal/engine/tune/samples/sample_cache.h"
#include "anneal/engine/tune/search/mix_front.h"
#include "anneal/engine/tune/search/precision_groups.h"
#include "anneal/engine/tune/search/step_times.h"
#include "anneal/engine/tune/search/tune_journal.h"
#include "anneal/engine/tune/search/tune_subject.h"
#include "anneal/kernels/cpu/backend.h"

namespace anneal {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;
using Precisions = std::vector<Precision>;
using Table = std::optional<std::shared_ptr<const CalibrationTable>>;

constexpr size_t kKeptBytes = size_t{512} << 20;  // of samples, each of two sets
constexpr int64_t kFewestUnsure = 16, kMostUnsure = 64;
constexpr size_t kEvenly = 6, kAroundBudget = 5;  // mixes that are judged
constexpr double kTimedSeconds = 0.6;             // each mix
// Of the seconds given, when looking at single groups ends, and when trying mixes does.
constexpr double kGroupsShare = 0.6, kMixesShare = 0.8;
constexpr double kMostNumber = 1e18;  // of milliseconds and bytes that were written down
// Of the whole work, for progress.
constexpr double kCalibrated = 0.1, kGroupsDone = 0.5, kMixesDone = 0.65, kConfirming = 0.75;

// So many numbers from 0 on, as they were written; nothing if it is something else.
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

class Tuner {
 public:
  Tuner(const Graph& model, const TuneSamples& samples, const TuneOptions& options)
      : model_(model),
        options_(options),
        metric_(*options.metric),
        samples_{samples.calibrate, kept_samples(samples.search, kKeptBytes),
                 kept_samples(samples.confirm, kKeptBytes)},
        is_timed_(!options.is_modelled && can_be_timed(options.target)),
        precisions_(options.precisions.empty() ? usual_precisions() : options.precisions),
        journal_(options.journal.empty()
                     ? TuneJournal()
                     : TuneJournal(options.journal, tuning_subject(model, samples_, options,
                                                                   precisions_, is_timed_))) {
    std::erase(precisions_, Precision::kF32);
    frontier_.model = model.name;
    frontier_.target = options.target;
    frontier_.metric = metric_.name();
    frontier_.unit = metric_.unit();
    frontier_.budget = options.budget;
    frontier_.budget_is_score = !metric_.has_drop();
    frontier_.threads = options.threads;
  }

  TuneResult run() {
    frontier_.groups =
        precision_groups(prepared_for_precision(model_, options_.passes), options_.most_groups);
    if (groups().empty())
      fail(Code::kInvalidArgument,
           "the model has no convolution or product to choose a precision for");
    if (std::ranges::none_of(groups(), &PrecisionGroup::can_be_int8))
      std::erase(precisions_, Precision::kI8);
    // What cannot be judged fails before the long work.
    judge_.emplace(options_.metric, engine(all(Precision::kF32)), samples_.search, judge_options());
    check_journal();
    calibrate_samples();
    time_groups();
    damage_groups();
    try_mixes();
    time_points();
    choose();
    confirm();
    claim_scores(frontier_);
    explain();
    warn();
    frontier_.symmetric = options_.passes.precision.symmetric;
    if (table_) frontier_.calibration = anneal::to_string(*table_);
    TuneResult tuned{std::move(frontier_), {}, journal_.was_resumed()};
    const Frontier& found = tuned.frontier;
    tuned.engine = file(found.points[found.chosen].precisions, options_.target, found.groups);
    return tuned;
  }

 private:
  const std::vector<PrecisionGroup>& groups() const { return frontier_.groups; }
  Precisions all(Precision precision) const {
    Precisions precisions(groups().size(), precision);
    for (size_t i = 0; i < precisions.size(); ++i)
      if (!may_be(i, precision)) precisions[i] = Precision::kF32;
    return precisions;
  }
  static bool is_f32(const FrontierPoint& point) {
    return std::ranges::all_of(point.precisions,
                               [](Precision each) { return each == Precision::kF32; });
  }
  bool may_be(size_t group, Precision precision) const {
    return precision != Precision::kI8 || groups()[group].can_be_int8;
  }

  Precisions usual_precisions() const {
    if (!options_.target.starts_with("cpu"))
      return {Precision::kF16, Precision::kBF16, Precision::kI8};
    if (open_target(options_.target, cpu_backend()).native.bf16)
      return {Precision::kBF16, Precision::kI8};
    return {Precision::kI8};
  }

  double spent() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  bool has_time(double share) const {
    return options_.seconds == 0 || spent() < share * options_.seconds;
  }
  void tell(std::string what, double share) const {
    TuneProgress progress{std::move(what), share, std::nullopt};
    // What was known already took no time.
    if (share > 0.05 && spent() > 2) {
      progress.seconds_left = spent() / share * (1 - share);
      if (options_.seconds > 0)
        progress.seconds_left =
            std::min(*progress.seconds_left, std::max(options_.seconds - spent(), 0.0));
    }
    options_.progress(progress);
  }

  JudgeOptions judge_options() const {
    return {.threads = options_.threads, .data_threads = options_.data_threads};
  }

  // Accuracy is that of the target where it is here, else of the CPU, which rounds as that does.
  std::string judged_target() const {
    return can_be_timed(options_.target) ? options_.target : "cpu";
  }

  EngineFile file(const Precisions& precisions, const std::string& target,
                  std::span<const PrecisionGroup> groups) const {
    BuildOptions build_options;
    build_options.targets = {target};
    build_options.passes = options_.passes;
    build_options.passes.precision =
        mix_options(groups, precisions, table_, options_.passes.precision.symmetric);
    build_options.skip_kernels = options_.skip_kernels;
    return build(model_.clone(), build_options);
  }
  std::shared_ptr<const Engine> engine(const Precisions& precisions) const {
    const std::string target = judged_target();
    return Engine::make(
        file(precisions, target, groups()),
        {.device = target.starts_with("sm_") ? "cuda" : target, .threads = options_.threads});
  }

  // What f32 gave before it must give again: else the data, or what judges, is another.
  void check_journal() {
    const std::string f32 = to_string(judge_->reference());
    const std::string* known = journal_.known("f32");
    if (known && *known != f32) journal_.forget();
    if (!journal_.known("f32")) journal_.remember("f32", f32);
  }

  // What `find` gives, or the journal has of it: as text that `parse` makes something of.
  template <class Find, class Parse>
  auto found(const std::string& name, const Find& find, const Parse& parse) {
    if (const std::string* known = journal_.known(name))
      if (auto parsed = parse(*known)) return *parsed;
    journal_.remember(name, find());
    return *parse(*journal_.known(name));
  }
  auto judgement_of(const Dataset& samples) const {
    return [&](const std::string& text) {
      return parse_judgement(text, static_cast<size_t>(samples.size()));
    };
  }

  void calibrate_samples() {
    if (std::ranges::find(precisions_, Precision::kI8) == precisions_.end()) return;
    if (options_.ranges) {
      table_ = options_.ranges;
      return;
    }
    const auto find = [&] {
      CalibrationOptions calibration;
      calibration.passes = options_.passes;
      calibration.range.symmetric = options_.passes.precision.symmetric;
      calibration.threads = options_.threads;
      calibration.data_threads = options_.data_threads;
      calibration.progress = [&](int64_t done, int64_t of) {
        tell(fmt::format("calibrating: {} of {} samples", done, of),
             kCalibrated * static_cast<double>(done) / static_cast<double>(of));
      };
      return anneal::to_string(calibrate(model_, samples_.calibrate, calibration).table);
    };
    table_ = found("calibration", find, [](const std::string& text) -> Table {
      try {
        return std::make_shared<const CalibrationTable>(parse_calibration_table(text));
      } catch (const Error&) {
        return std::nullopt;
      }
    });
  }

  // Milliseconds of each group, all being in one precision.
  std::vector<double> times_in(Precision precision) {
    const auto find = [&] {
      std::vector<double> of_groups(groups().size() + 1);
      std::vector<double> of_steps;
      std::vector<size_t> group_of_step;
      if (is_timed_) {
        const auto timed = engine(all(precision));
        of_steps = measured_step_times(timed, samples_.search->read(0), options_.threads);
        group_of_step = groups_of_steps(timed->plan(), groups());
      } else {
        const EngineFile built = file(all(precision), options_.target, groups());
        of_steps = modelled_step_times(built.plans[0]);
        group_of_step = groups_of_steps(built.plans[0], groups());
      }
      for (size_t i = 0; i < of_steps.size(); ++i) of_groups[group_of_step[i]] += of_steps[i];
      return Json(of_groups).dump();
    };
    return found(fmt::format("times in {}", to_string(precision)), find,
                 [&](const std::string& text) { return parse_numbers(text, groups().size() + 1); });
  }

  void time_groups() {
    times_[Precision::kF32] = times_in(Precision::kF32);
    for (const Precision precision : precisions_) {
      tell(fmt::format("timing groups in {}", to_string(precision)), kCalibrated);
      times_[precision] = times_in(precision);
    }
  }

  // Those that the model is least sure of, for what changes its answers shows in them.
  std::shared_ptr<const Dataset> unsure_samples() const {
    const auto& margins = judge_->margins();
    std::vector<int64_t> order(margins.size());
    std::iota(order.begin(), order.end(), int64_t{0});
    std::ranges::stable_sort(order, {}, [&](int64_t i) { return margins[static_cast<size_t>(i)]; });
    const auto most =
        std::clamp<int64_t>(static_cast<int64_t>(order.size()) / 2, kFewestUnsure, kMostUnsure);
    order.resize(static_cast<size_t>(std::min(most, static_cast<int64_t>(order.size()))));
    std::ranges::sort(order);
    return subset(samples_.search, std::move(order));
  }

  void damage_groups() {
    std::optional<Judge> unsure;
    const size_t all_of_them = groups().size() * precisions_.size();
    size_t done = 0;
    for (const Precision precision : precisions_)
      for (size_t i = 0; i < groups().size(); ++i, ++done) {
        if (!may_be(i, precision)) continue;
        const std::string what =
            fmt::format("output_error by {} in {}", to_string(precision), groups()[i].name);
        if (!journal_.known(what) && !has_time(kGroupsShare)) {
          ++unmeasured_;
          continue;
        }
        tell(fmt::format("group {} of {} in {}", i + 1, groups().size(), to_string(precision)),
             kCalibrated + (kGroupsDone - kCalibrated) * static_cast<double>(done) /
                               static_cast<double>(all_of_them));
        const auto find = [&] {
          if (!unsure)
            unsure.emplace(options_.metric, engine(all(Precision::kF32)), unsure_samples(),
                           judge_options());
          Precisions one = all(Precision::kF32);
          one[i] = precision;
          return Json{unsure->judge(engine(one)).output_error()}.dump();
        };
        const auto numbers =
            found(what, find, [](const std::string& text) { return parse_numbers(text, 1); });
        damages_[{i, precision}] = numbers[0];
      }
  }

  Precisions precisions_of(const Mix& mix) const {
    Precisions precisions;
    for (size_t i = 0; i < mix.choices.size(); ++i)
      precisions.push_back(choices_[i][mix.choices[i]]);
    return precisions;
  }

  // A mix judged on the search samples.
  const Judgement& judged(const Precisions& precisions) {
    const std::string key = key_of(precisions);
    if (const auto known = judgements_.find(key); known != judgements_.end()) return known->second;
    tried_.push_back(precisions);
    return judgements_[key] = found(
               "judged " + key, [&] { return to_string(judge_->judge(engine(precisions))); },
               judgement_of(*samples_.search));
  }
  MeasuredScore score_of(const Judgement& judgement, const Judgement& reference) const {
    const DropInterval drop = drop_of(metric_, judgement.scores, reference.scores);
    std::vector<const SampleScore*> scores;
    for (const SampleScore& score : judgement.scores) scores.push_back(&score);
    return {static_cast<int64_t>(scores.size()), metric_.score(scores), drop.drop, drop.low,
            drop.high};
  }
  bool is_within(const MeasuredScore& score) const {
    constexpr double kRounding = 1e-9;  // of sums
    return frontier_.budget_is_score ? score.score >= options_.budget
                                     : score.drop <= options_.budget + kRounding;
  }

  void try_mixes() {
    std::vector<std::vector<ChoiceCost>> costs(groups().size());
    choices_.assign(groups().size(), {});
    for (size_t i = 0; i < groups().size(); ++i) {
      const auto add = [&](Precision precision, double output_error) {
        choices_[i].push_back(precision);
        costs[i].push_back({times_.at(precision)[i], output_error});
      };
      add(Precision::kF32, 0);
      for (const Precision precision : precisions_)
        if (const auto found = damages_.find({i, precision}); found != damages_.end())
          add(precision, found->second);
    }
    const std::vector<Mix> front = mix_front(costs);
    judged(all(Precision::kF32));
    for (const Precision precision : precisions_)
      if (has_time(kMixesShare)) judged(all(precision));
    const auto try_at = [&](size_t i, const char* why) -> const Judgement& {
      tell(fmt::format("judging mixes {}", why),
           kGroupsDone + (kMixesDone - kGroupsDone) *
                             std::min(1.0, static_cast<double>(tried_.size()) /
                                               static_cast<double>(kEvenly + kAroundBudget + 3)));
      return judged(precisions_of(front[i]));
    };
    // From the fastest to f32, in steps of equal time.
    std::set<size_t> even;
    for (size_t k = 0; k < kEvenly && has_time(kMixesShare); ++k) {
      const double at = front.front().milliseconds +
                        (front.back().milliseconds - front.front().milliseconds) *
                            static_cast<double>(k) / static_cast<double>(kEvenly - 1);
      size_t i = 0;
      while (i + 1 < front.size() && front[i + 1].milliseconds <= at) ++i;
      if (even.insert(i).second) try_at(i, "along the front");
    }
    // The fastest within the budget is between a mix that is not and the next that is.
    size_t outside = 0, within = front.size() - 1;
    for (const size_t i : even) {
      if (is_within(score_of(judged(precisions_of(front[i])), judge_->reference()))) {
        within = i;
        break;
      }
      outside = i;
    }
    for (size_t k = 0; k < kAroundBudget && outside + 1 < within && has_time(kMixesShare); ++k) {
      const size_t middle = (outside + within) / 2;
      const bool holds =
          is_within(score_of(try_at(middle, "around the budget"), judge_->reference()));
      (holds ? within : outside) = middle;
    }
  }

  void time_points() {
    tell("timing the mixes", kMixesDone);
    std::vector<std::shared_ptr<const Engine>> engines;
    std::vector<TimedEngine> timed;
    std::string key = "timed";
    for (const Precisions& each : tried_) key += " " + key_of(each);
    // Of each: bytes of the engine, milliseconds, those of the 99th percentile, bytes of memory.
    constexpr size_t kNumbers = 4;
    const auto find = [&] {
      std::vector<double> all;
      for (const Precisions& each : tried_) {
        tell(fmt::format("building mix {} of {}", all.size() / kNumbers + 1, tried_.size()),
             kMixesDone);
        EngineFile built = file(each, options_.target, groups());
        double milliseconds = 0;
        if (is_timed_) {
          engines.push_back(engine(each));
        } else {
          const std::vector<double> steps = modelled_step_times(built.plans[0]);
          milliseconds = std::accumulate(steps.begin(), steps.end(), 0.0);
        }
        const auto bytes = static_cast<double>(save(built).size());
        all.insert(all.end(), {bytes, milliseconds, milliseconds, 0});
      }
      if (is_timed_) {
        tell(fmt::format("timing {} mixes in turn", tried_.size()), kMixesDone);
        double seconds = kTimedSeconds;
        if (options_.seconds > 0)
          seconds =
              std::clamp((options_.seconds - spent()) / 2 / static_cast<double>(tried_.size()), 0.0,
                         kTimedSeconds);
        timed = timed_in_turn(engines, samples_.search->read(0), options_.threads, seconds);
        for (size_t i = 0; i < timed.size(); ++i) {
          all[kNumbers * i + 1] = timed[i].milliseconds;
          all[kNumbers * i + 2] = timed[i].milliseconds_p99;
          all[kNumbers * i + 3] = static_cast<double>(timed[i].memory_bytes);
        }
      }
      return Json(all).dump();
    };
    const std::vector<double> numbers = found(key, find, [&](const std::string& text) {
      return parse_numbers(text, kNumbers * tried_.size());
    });
    for (size_t i = 0; i < tried_.size(); ++i) {
      FrontierPoint point;
      point.precisions = tried_[i];
      point.output_error = judged(tried_[i]).output_error();
      point.search = score_of(judged(tried_[i]), judge_->reference());
      point.engine_bytes = static_cast<uint64_t>(numbers[kNumbers * i]);
      point.milliseconds = numbers[kNumbers * i + 1];
      point.milliseconds_p99 = numbers[kNumbers * i + 2];
      point.memory_bytes = static_cast<uint64_t>(numbers[kNumbers * i + 3]);
      point.is_modelled = !is_timed_;
      frontier_.points.push_back(std::move(point));
    }
    std::ranges::stable_sort(frontier_.points, {}, &FrontierPoint::milliseconds);
    double least = std::numeric_limits<double>::infinity();
    for (FrontierPoint& point : frontier_.points) {
      point.is_on_frontier = point.output_error < least;
      least = std::min(least, point.output_error);
    }
    int mixes = 0;
    for (FrontierPoint& point : frontier_.points) {
      for (const Precision precision :
           {Precision::kF32, Precision::kF16, Precision::kBF16, Precision::kI8})
        if (point.name.empty() && point.precisions == all(precision))
          point.name = to_string(precision);
      if (point.name.empty()) point.name = fmt::format("mix-{}", ++mixes);
    }
  }

  void choose() {
    for (size_t i = 0; i < frontier_.points.size(); ++i)
      if (is_within(frontier_.points[i].search)) {
        frontier_.chosen = i;
        return;
      }
    fail(Code::kInvalidArgument,
         fmt::format("nothing keeps to the budget, not even f32, whose {} is {:.4g} {}",
                     metric_.name(), f32_point(frontier_)->search.score, metric_.unit()));
  }

  void confirm() {
    size_t done = 0;
    std::optional<Judge> judge;
    std::optional<Judgement> reference;
    const auto confirmed = [&](FrontierPoint& point) {
      if (point.confirmed) return;
      tell("confirming " + point.name,
           kConfirming + (1 - kConfirming) * static_cast<double>(done++) /
                             static_cast<double>(frontier_.points.size()));
      const auto by_judge = [&](const std::string& name, const auto& find) {
        const auto with_judge = [&] {
          if (!judge)
            judge.emplace(options_.metric, engine(all(Precision::kF32)), samples_.confirm,
                          judge_options());
          return to_string(find());
        };
        return found(name, with_judge, judgement_of(*samples_.confirm));
      };
      if (!reference) reference = by_judge("confirmed f32", [&] { return judge->reference(); });
      point.confirmed = score_of(by_judge("confirmed " + key_of(point.precisions),
                                          [&] { return judge->judge(engine(point.precisions)); }),
                                 *reference);
    };
    // Those that are slower lose less, mostly.
    const size_t wanted = frontier_.chosen;
    for (size_t i = wanted; i < frontier_.points.size(); ++i) {
      if (!is_within(frontier_.points[i].search)) continue;
      confirmed(frontier_.points[i]);
      frontier_.chosen = i;
      if (is_within(*frontier_.points[i].confirmed)) break;
      if (!is_f32(frontier_.points[i])) ++frontier_.turned_down;
    }
    if (frontier_.chosen != wanted)
      frontier_.warnings.push_back(fmt::format(
          "{} kept to the budget on the samples searched with, but not on those that confirm; {} "
          "does on both",
          frontier_.points[wanted].name, frontier_.points[frontier_.chosen].name));
    if (!is_within(*frontier_.points[frontier_.chosen].confirmed))
      frontier_.warnings.push_back("no mix keeps to the budget on the samples that confirm");
    for (FrontierPoint& point : frontier_.points)
      if (has_time(1)) confirmed(point);
  }

  void explain() {
    const FrontierPoint& chosen = frontier_.points[frontier_.chosen];
    for (size_t i = 0; i < groups().size(); ++i) {
      const Precision is = chosen.precisions[i];
      if (is == Precision::kI8) continue;
      // The fastest that it could be in.
      std::optional<Precision> other;
      for (const Precision precision : precisions_)
        if (precision != is && damages_.contains({i, precision}) &&
            (!other || times_.at(precision)[i] < times_.at(*other)[i]))
          other = precision;
      KeptHigh kept{i, is, {}};
      if (!other) {
        kept.why = may_be(i, Precision::kI8) ? "there was no time to look at it"
                                             : "it cannot be computed in 8 bits";
      } else if (const double saved = times_.at(is)[i] - times_.at(*other)[i]; saved <= 0) {
        kept.why = fmt::format("{} is no faster: {:.4g} against {:.4g} ms", to_string(*other),
                               times_.at(*other)[i], times_.at(is)[i]);
      } else {
        const auto own = damages_.find({i, is});
        kept.why =
            fmt::format("{} would save {:.4g} ms, and do {:.1e} of output_error instead of {:.1e}",
                        to_string(*other), saved, damages_.at({i, *other}),
                        own == damages_.end() ? 0 : own->second);
      }
      frontier_.kept_high.push_back(std::move(kept));
    }
  }

  void warn() {
    const FrontierPoint& chosen = frontier_.points[frontier_.chosen];
    const std::string& unit = frontier_.unit;
    if (!frontier_.budget_is_score) {
      const auto one = 100.0 / static_cast<double>(chosen.search.samples);
      if (metric_.is_share() && one > options_.budget && options_.budget > 0)
        frontier_.warnings.push_back(
            fmt::format("one of {} samples is {:.2g} points, more than the budget of {:.2g}: more "
                        "samples would tell mixes apart",
                        chosen.search.samples, one, options_.budget));
      const MeasuredScore& judged = chosen.confirmed ? *chosen.confirmed : chosen.search;
      if (judged.drop_high > options_.budget)
        frontier_.warnings.push_back(fmt::format(
            "{} samples are too few to be sure of the budget: the drop is between {:.2f} and "
            "{:.2f} "
            "{} (95 %)",
            judged.samples, judged.drop_low, judged.drop_high, unit == "%" ? "points" : unit));
    }
    if (unmeasured_ > 0)
      frontier_.warnings.push_back(fmt::format(
          "time ran out: {} of {} choices for single groups were not looked at, and left "
          "out",
          unmeasured_, groups().size() * precisions_.size()));
    if (!is_timed_)
      frontier_.warnings.push_back(
          "latencies are modelled from published figures: the target is not here, or was not to be "
          "timed");
  }

  const Graph& model_;
  const TuneOptions& options_;
  const Metric& metric_;
  const TuneSamples samples_;
  const bool is_timed_;
  Precisions precisions_;  // but f32
  TuneJournal journal_;
  const Clock::time_point start_ = Clock::now();

  Frontier frontier_;
  std::shared_ptr<const CalibrationTable> table_;
  std::optional<Judge> judge_;  // on the search samples
  std::map<Precision, std::vector<double>> times_;
  std::map<std::pair<size_t, Precision>, double> damages_;
  size_t unmeasured_ = 0;
  std::vector<Precisions> choices_;
  std::vector<Precisions> tried_;
  std::map<std::string, Judgement> judgements_;
};

}  // namespace

TuneResult tune(const Graph& model, const TuneSamples& samples, const TuneOptions& options) {
  check(options.metric != nullptr, "tuning wants a metric");
  return Tuner(model, samples, options).run();
}

}  // namespace anneal
