#include "anneal/cli/measure/turns.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "anneal/cli/output/print.h"
#include "anneal/cli/output/stopwatch.h"

namespace anneal {
namespace {

constexpr int kRounds = 5;

// One round's part of the amount. The first rounds have one run more if the number does not divide.
Amount part_of(const Amount& amount, int round, int rounds) {
  if (!amount.runs) return {std::nullopt, amount.seconds / rounds};
  return {*amount.runs / rounds + (round < *amount.runs % rounds ? 1 : 0), 0};
}

bool is_over(const Amount& amount, int runs, const Stopwatch& watch) {
  if (amount.runs) return runs >= *amount.runs;
  return runs >= 1 && watch.seconds() >= amount.seconds;
}

double timed_run(ExecutionContext& context, bool counts_waiting) {
  const double waited = counts_waiting ? 0 : waited_seconds();
  const Stopwatch watch;
  context.run();
  const double milliseconds = watch.milliseconds();
  if (counts_waiting) return milliseconds;
  return std::max(milliseconds - 1000 * (waited_seconds() - waited), 0.0);
}

}  // namespace

Turns measure_in_turns(std::span<const std::unique_ptr<ExecutionContext>> contexts,
                       const TurnOptions& options,
                       const std::function<void(std::string_view)>& progress) {
  Turns turns;
  turns.milliseconds.resize(contexts.size());
  turns.round_medians.resize(contexts.size());
  turns.rounds = std::min(kRounds, options.measured.runs.value_or(kRounds));
  progress("warming up");
  for (const auto& context : contexts) {
    const Stopwatch watch;
    for (int runs = 0; !is_over(options.warmup, runs, watch); ++runs) context->run();
  }

  const ProcessorTime before = processor_time();
  const double waited_before = waited_seconds();
  const Stopwatch all;
  for (int round = 0; round < turns.rounds; ++round) {
    progress(fmt::format("measuring, round {} of {}", round + 1, turns.rounds));
    for (size_t i = 0; i < contexts.size(); ++i) {
      const size_t at = (i + static_cast<size_t>(round)) % contexts.size();
      const Amount part = part_of(options.measured, round, turns.rounds);
      std::vector<double> of_round;
      contexts[at]->run();
      const Stopwatch watch;
      for (int runs = 0; !is_over(part, runs, watch); ++runs)
        of_round.push_back(timed_run(*contexts[at], options.counts_waiting));
      std::ranges::copy(of_round, std::back_inserter(turns.milliseconds[at]));
      turns.round_medians[at].push_back(median(std::move(of_round)));
    }
  }
  const double seconds = all.seconds();
  const double waited = waited_seconds() - waited_before;
  turns.load = load_between(before, processor_time(), seconds, seconds > 0 ? waited / seconds : 0);
  return turns;
}

}  // namespace anneal
