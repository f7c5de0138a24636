#include "anneal/engine/builder/timing/kernel_timer.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "anneal/core/fail.h"
#include "anneal/core/parallel.h"
#include "anneal/core/version.h"
#include "anneal/engine/builder/timing/cpu_bench.h"
#include "anneal/engine/builder/timing/sampled_times.h"
#include "anneal/kernels/unfilled_constants.h"

namespace anneal {
namespace {

constexpr double kMostMicroseconds = 30'000;  // of a kernel's timed runs
constexpr int kFewestRounds = 3, kMostRounds = 25;
constexpr double kHopeless = 4;  // times as long as the fastest: is not timed further

}  // namespace

// A kernel that can run the layer, and its runs.
struct KernelTimer::Candidate {
  const KernelEntry* entry = nullptr;
  bool is_heuristic = false;
  std::unique_ptr<Kernel> kernel;
  size_t number = 0;              // on the bench
  std::vector<double> runs = {};  // microseconds
  bool is_hopeless = false;

  double best() const { return *std::min_element(runs.begin(), runs.end()); }
};

// Makes the kernels anew, with their constants. A library may refuse only when it packs them.
void KernelTimer::pack_constants(Request request, std::vector<Candidate>& candidates) {
  request.ignore_speed_heuristics = true;
  request.packed = nullptr;
  std::erase_if(candidates, [&](Candidate& each) {
    KernelResult made = each.entry->make(request);
    const bool is_refused = !made;
    if (is_refused && each.is_heuristic)
      fail(ErrorCode::kUnsupported, fmt::format("{}: {}", each.entry->name, made.reason()));
    if (!is_refused) each.kernel = *std::move(made);
    return is_refused;
  });
}

KernelTimes KernelTimer::measure(const Request& request, std::vector<Candidate>& candidates) const {
  CpuBench bench(request, options_.threads);
  pack_constants(request, candidates);
  for (size_t i = 0; i < candidates.size(); ++i) {
    candidates[i].number = i;
    bench.add(*candidates[i].kernel);
  }
  const auto take_turns = [&](int rounds) {
    for (int round = 0; round < rounds; ++round) {
      for (Candidate& each : candidates)
        if (!each.is_hopeless) each.runs.push_back(bench.microseconds(each.number));
      std::ranges::reverse(candidates);  // none always runs behind the same one
    }
  };
  take_turns(kFewestRounds);
  double fastest = std::numeric_limits<double>::infinity(), slowest = 1;
  for (const Candidate& each : candidates) fastest = std::min(fastest, each.best());
  for (Candidate& each : candidates) {
    // Three runs that others disturbed must not cost the heuristic's kernel its place.
    each.is_hopeless = !each.is_heuristic && each.best() > kHopeless * fastest;
    if (!each.is_hopeless) slowest = std::max(slowest, each.best());
  }
  take_turns(static_cast<int>(std::min(kMostMicroseconds / slowest, double{kMostRounds})) -
             kFewestRounds);
  KernelTimes times;
  for (const Candidate& each : candidates)
    times.emplace(each.entry->name, rounded_time(median_time(each.runs)));
  return times;
}

std::vector<KernelTimer::Candidate> KernelTimer::candidates(const Backend& backend, Request request,
                                                            KernelChoice& chosen) const {
  UnfilledConstants unfilled;
  request.ignore_speed_heuristics = true;
  request.packed = &unfilled;
  std::vector<Candidate> found;
  for (const KernelFamily family : backend.families) {
    for (const KernelEntry& entry : family()) {
      if (entry.op != request.op.index() || !why_left_out(entry, options_.kernels).empty())
        continue;
      if (&entry == chosen.entry) {
        found.push_back(
            {.entry = &entry, .is_heuristic = true, .kernel = std::move(chosen.kernel)});
      } else if (!is_reference(backend, entry)) {
        KernelResult made = entry.make(request);
        if (made) found.push_back({.entry = &entry, .kernel = *std::move(made)});
      }
    }
  }
  return found;
}

const KernelTimes* KernelTimer::times_of(const Request& request,
                                         std::vector<Candidate>& candidates) {
  const TimingKey key{std::string(version()), request.device.machine(), options_.threads,
                      timing_text(request)};
  const auto known = known_.layers.find(key);
  const bool complete =
      known != known_.layers.end() && std::ranges::all_of(candidates, [&](const Candidate& each) {
        return known->second.contains(each.entry->name);
      });
  if (complete) return &known->second;
  if (!options_.measure) return nullptr;
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
  if (options_.seconds > 0 && passed.count() >= options_.seconds)
    fail(ErrorCode::kLimit, fmt::format("the limit of {} seconds is reached", options_.seconds));
  const KernelTimes& times = measured_.layers[key] = measure(request, candidates);
  return &(known_.layers[key] = times);
}

std::optional<Decision> KernelTimer::choose(const Backend& backend, const Request& request,
                                            const std::string& layer, KernelChoice& chosen) {
  has_chosen_by_times_ = false;
  std::vector<Candidate> found = candidates(backend, request, chosen);
  const auto take = [&](const KernelEntry* entry) {
    const auto winner = std::ranges::find(found, entry, &Candidate::entry);
    chosen.entry = entry;
    chosen.kernel = std::move(winner->kernel);
  };
  const KernelEntry* const heuristic = chosen.entry;
  if (found.size() < 2) {
    take(heuristic);
    return std::nullopt;
  }
  const KernelTimes* times = nullptr;
  std::string why_not = "the timing cache has no times of it";
  try {
    times = times_of(request, found);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) throw;
    why_not = error.what();
  }
  if (times == nullptr) {
    take(heuristic);
    return Decision{std::string(kTiming), layer, fmt::format("is not timed: {}", why_not), true};
  }
  has_chosen_by_times_ = true;
  const auto time_of = [&](const Candidate& each) { return times->find(each.entry->name)->second; };
  std::ranges::sort(found, [&](const Candidate& a, const Candidate& b) {
    return std::pair(time_of(a), a.entry->name) < std::pair(time_of(b), b.entry->name);
  });
  const double limit = (1 - kTimingNoise) * times->find(heuristic->name)->second;
  const bool is_better = time_of(found[0]) < limit;
  std::string text = is_better
                         ? fmt::format("{} instead of {}:", found[0].entry->name, heuristic->name)
                         : fmt::format("{} stays:", heuristic->name);
  for (const Candidate& each : found)
    text += fmt::format("{} {} {} us", &each == found.data() ? "" : ",", each.entry->name,
                        time_of(each));
  text += fmt::format(", with {} thread{}", options_.threads, options_.threads == 1 ? "" : "s");
  if (has_open_sizes(request)) text += ", at the sizes to optimize for";
  take(is_better ? found[0].entry : heuristic);
  return Decision{std::string(kTiming), layer, std::move(text), !is_better};
}

int timing_threads(const KernelTiming& timing) {
  const int threads = timing.threads > 0 ? timing.threads : hardware_threads();
  if (threads > largest_team())
    fail(ErrorCode::kInvalidArgument,
         fmt::format("kernels cannot be timed with {} threads: this process has {}", threads,
                     largest_team()));
  return threads;
}

}  // namespace anneal
