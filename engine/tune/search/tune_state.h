// TuneState: the findings of tuning so far, and the options and tools that its phases share.
#pragma once
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "anneal/engine/builder/build_options.h"
#include "anneal/engine/plan.h"
#include "anneal/engine/run/engine.h"
#include "anneal/engine/tune/frontier/frontier.h"
#include "anneal/engine/tune/metric/judge.h"
#include "anneal/engine/tune/search/split_samples.h"
#include "anneal/engine/tune/search/tune_journal.h"
#include "anneal/graph/graph.h"
#include "anneal/optimizer/pass.h"

namespace anneal {

using Precisions = std::vector<Precision>;  // of the groups

// Of the seconds given, when looking at single groups ends, and when trying mixes does.
inline constexpr double kGroupsShare = 0.6, kMixesShare = 0.8;
// Of the whole work, for progress.
inline constexpr double kCalibrated = 0.1, kGroupsDone = 0.5, kMixesDone = 0.65, kConfirming = 0.75;

struct TuneState {
  // Opens the journal. Fails as that and reading samples do.
  TuneState(const Graph& tuned, const TuneSamples& given, std::shared_ptr<const Metric> judged_by,
            const BuildOptions& how);

  const Graph& model;
  const BuildOptions& options;
  const TuneOptions& tuning;  // of the options
  const std::string& target;  // the only one
  const PassOptions passes;   // of all builds; of its precision `symmetric` alone counts
  const std::shared_ptr<const Metric> shared_metric;
  const Metric& metric;
  const TuneSamples samples;  // kept in memory if they are small
  const bool is_timed;        // else latencies are modelled
  Precisions lower;           // the precisions to choose from beside f32
  TuneJournal journal;
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

  std::function<std::string(const PrecisionOptions&)> recipe = {};  // of engines; empty: none
  Frontier frontier;
  SharedTable ranges;
  std::optional<Judge> judge;                             // on the search samples
  std::map<Precision, std::vector<double>> times;         // milliseconds of each group
  std::map<std::pair<size_t, Precision>, double> errors;  // of the output, by one group alone
  size_t unmeasured = 0;                                  // choices for which there was no time
  std::vector<Precisions> tried;                          // mixes, judged
  std::map<std::string, Judgement> judgements;            // by key_of()

  const std::vector<PrecisionGroup>& groups() const { return frontier.groups; }
  bool may_be(size_t group, Precision precision) const {
    return precision != Precision::kI8 || groups()[group].can_be_int8;
  }
  // Every group that can be is in the precision, the others in f32.
  Precisions all(Precision precision) const;
  bool is_within_budget(const MeasuredScore& score) const;
  JudgeOptions judge_options() const;

  double seconds_spent() const;
  // Before that share of the seconds given.
  bool has_time(double share) const {
    return tuning.seconds == 0 || seconds_spent() < share * tuning.seconds;
  }
  void report_progress(std::string what, double share) const;

  EngineFile build_mix(const Precisions& precisions, const std::string& for_target) const;
  // Accuracy is that of the target where it is here, else of the CPU, which rounds as that does.
  std::shared_ptr<const Engine> judged_engine(const Precisions& precisions) const;
};

// The journal's entry under the name, or else the result of `find`: text that `parse` reads.
template <class Find, class Parse>
auto find_once(TuneJournal& journal, const std::string& name, const Find& find,
               const Parse& parse) {
  if (const std::string* known = journal.known(name))
    if (auto parsed = parse(*known)) return *parsed;
  journal.remember(name, find());
  return *parse(*journal.known(name));
}

// Numbers from 0 on in a list of JSON; nullopt if the text is anything else, or of another length.
std::optional<std::vector<double>> parse_numbers(const std::string& text, size_t count);

}  // namespace anneal
