// The kernels of a layer that are timed, each with its tactics.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/engine/builder/timing/timing_cache.h"
#include "anneal/kernels/kernel.h"

namespace anneal {

struct TimedCandidate {
  const KernelEntry* entry = nullptr;
  Tactic tactic = {};
  std::string name = {};  // timing_name()
  bool operator==(const TimedCandidate&) const = default;
};

// As times are kept: "cuda.conv.direct{64x64x16, 4x4 a thread, 1 slice}", and of a library
// "cudnn.conv{engine 41 #1f0c9d3a5b7e2468}", with tactic_digest(); the kernel alone without tactic.
std::string timing_name(std::string_view kernel, const Tactic& tactic, KernelSource source);

// How many tactics of each kernel are timed at an optimization level: 1, 2, 4, 8, all.
size_t most_tactics(int level);

// The heuristic's first, then those of each kernel of the op that is not left out, in the order of
// the table; at most `most` tactics of each.
std::vector<TimedCandidate> candidates_of(const Backend& backend, const Request& request,
                                          const KernelOptions& options,
                                          const TimedCandidate& heuristic, size_t most);
// Adds those of libraries for the op that have times, and whose tactics the cache has.
void add_known_tactics(const Backend& backend, size_t op, const KernelOptions& options,
                       const TimingCache& cache, const KernelTimes& times,
                       std::vector<TimedCandidate>& candidates);

}  // namespace anneal
