// The choice among kernels of a layer whose times are known.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "anneal/engine/builder/timing/candidates.h"
#include "anneal/engine/builder/timing/timing_cache.h"

namespace anneal {

struct ChoiceByTimes {
  size_t chosen = 0;
  std::optional<size_t> runner_up = {};  // of a library's kernel: the best own one
  std::string text = {};  // "b instead of a: b 80 us, a 100 us", with the fastest five
};

// candidates: the heuristic's first. The fastest own kernel replaces the heuristic's if it takes
// less than 98 % of its time, and a library's replaces that on the same condition. Those without a
// time, or with wrong results, are not chosen. Nullopt if none has a time.
std::optional<ChoiceByTimes> choose_by_times(std::span<const TimedCandidate> candidates,
                                             const KernelTimes& times);

// The time of a kernel in the text of a choice: `name` as timing_name() gives it.
std::optional<double> time_in(std::string_view text, std::string_view name);
// The name of the fastest kernel in the text that is not `name`; empty if there is none.
std::string fastest_other_in(std::string_view text, std::string_view name);

}  // namespace anneal
