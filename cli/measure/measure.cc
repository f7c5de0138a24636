#include "anneal/cli/measure/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <exception>
#include <latch>
#include <numeric>
#include <thread>

#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/print.h"
#include "anneal/cli/output/stopwatch.h"

namespace anneal {
namespace {

using Clock = std::chrono::steady_clock;

bool done(const Amount& amount, int runs, const Stopwatch& watch, int fewest) {
  if (amount.runs) return runs >= *amount.runs;
  return runs >= fewest && watch.seconds() >= amount.seconds;
}

// What one context's thread found.
struct Lane {
  std::vector<double> milliseconds;
  int warmup_runs = 0;
  Clock::time_point begin, end;
  double waited_seconds = 0;
  std::exception_ptr error;
};

void warm_up(ExecutionContext& context, const Amount& amount, Lane& lane) {
  const Stopwatch watch;
  for (; !done(amount, lane.warmup_runs, watch, 0); ++lane.warmup_runs) context.run();
}

void run_measured(ExecutionContext& context, const Amount& amount, Lane& lane) {
  constexpr size_t kRoom = 1 << 16;
  lane.milliseconds.reserve(amount.runs ? static_cast<size_t>(*amount.runs) : kRoom);
  const double waited = waited_seconds();
  lane.begin = lane.end = Clock::now();
  const Stopwatch watch;
  for (int runs = 0; !done(amount, runs, watch, kFewestRuns); ++runs) {
    const auto start = Clock::now();
    context.run();
    lane.end = Clock::now();
    lane.milliseconds.push_back(
        std::chrono::duration<double, std::milli>(lane.end - start).count());
  }
  lane.waited_seconds = waited_seconds() - waited;
}

// All lanes start together, when every one is warm.
void run_lanes(std::vector<std::unique_ptr<ExecutionContext>>& contexts,
               const MeasureOptions& options, std::vector<Lane>& lanes) {
  std::latch warm(static_cast<ptrdiff_t>(contexts.size()));
  const auto work = [&](size_t i) {
    bool arrived = false;
    try {
      if (i > 0) contexts[i]->run();  // the first context has had its first run
      warm_up(*contexts[i], options.warmup, lanes[i]);
      arrived = true;
      warm.arrive_and_wait();
      run_measured(*contexts[i], options.measured, lanes[i]);
    } catch (...) {
      lanes[i].error = std::current_exception();
      if (!arrived) warm.count_down();
    }
  };
  std::vector<std::jthread> threads;
  for (size_t i = 1; i < contexts.size(); ++i) threads.emplace_back(work, i);
  work(0);
}

}  // namespace

Amount parse_amount(std::string_view text, std::string_view flag) {
  double value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(rest, static_cast<size_t>(text.data() + text.size() - rest));
  constexpr double kMost = 1e9;
  if (error == std::errc{} && value >= 0 && value <= kMost) {
    if (unit == "ms") return {std::nullopt, value / 1000};
    if (unit == "s") return {std::nullopt, value};
    if (unit.empty() && value == static_cast<int>(value)) return {static_cast<int>(value), 0};
  }
  fail(ErrorCode::kInvalidArgument,
       fmt::format("{} \"{}\": write a number of runs (10) or a time (200ms, 1.5s)", flag, text));
}

Measurement measure(const std::shared_ptr<const Engine>& engine, const std::vector<Tensor>& inputs,
                    const MeasureOptions& options,
                    const std::function<void(std::string_view)>& progress) {
  Measurement result;
  std::vector<std::unique_ptr<ExecutionContext>> contexts;
  const Stopwatch watch;
  for (int i = 0; i < options.contexts; ++i) {
    contexts.push_back(std::make_unique<ExecutionContext>(
        engine, ContextOptions{.threads = options.threads,
                               .max_memory = options.max_memory,
                               .spin = options.spin,
                               .micro_batch = options.micro_batch,
                               .profile = options.profile}));
    if (i == 0) result.context_milliseconds = watch.milliseconds();
    for (size_t k = 0; k < inputs.size(); ++k)
      contexts[static_cast<size_t>(i)]->set_input(engine->inputs()[k].name, inputs[k].view());
  }
  progress("first inference");
  const Stopwatch first;
  contexts[0]->run();
  result.first_milliseconds = first.milliseconds();
  result.arena_bytes = contexts[0]->arena_bytes();
  result.context_bytes = contexts[0]->memory_bytes();

  progress("measuring");
  std::vector<Lane> lanes(contexts.size());
  const ProcessorTime before = processor_time();
  const Stopwatch all;
  run_lanes(contexts, options, lanes);
  const double run_seconds = all.seconds();
  const ProcessorTime after = processor_time();

  Clock::time_point begin = Clock::time_point::max(), end = Clock::time_point::min();
  double measured = 0, waited = 0;
  for (const Lane& lane : lanes) {
    if (lane.error) std::rethrow_exception(lane.error);
    result.milliseconds.insert(result.milliseconds.end(), lane.milliseconds.begin(),
                               lane.milliseconds.end());
    result.warmup_runs += lane.warmup_runs;
    begin = std::min(begin, lane.begin);
    end = std::max(end, lane.end);
    measured += std::chrono::duration<double>(lane.end - lane.begin).count();
    waited += lane.waited_seconds;
  }
  result.seconds = std::chrono::duration<double>(end - begin).count();
  result.load = load_between(before, after, run_seconds, measured > 0 ? waited / measured : 0);
  result.context = std::move(contexts[0]);
  return result;
}

Latency latency_of(const std::vector<double>& milliseconds) {
  const auto [least, most] = std::minmax_element(milliseconds.begin(), milliseconds.end());
  const double sum = std::accumulate(milliseconds.begin(), milliseconds.end(), 0.0);
  return {.min = *least,
          .mean = sum / static_cast<double>(milliseconds.size()),
          .median = median(milliseconds),
          .p90 = percentile(milliseconds, 0.90),
          .p95 = percentile(milliseconds, 0.95),
          .p99 = percentile(milliseconds, 0.99),
          .max = *most};
}

}  // namespace anneal
