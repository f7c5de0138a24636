// Times of kernels from samples: their medians, on a GPU with the clock watched.
#pragma once
#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "anneal/engine/builder/timing/layer_bench.h"

namespace anneal {

// A kernel that is faster by a smaller share is not chosen.
inline constexpr double kTimingNoise = 0.02;

// REQUIRES: not empty
double median_time(std::vector<double> values);
// As a cache has it, so that what is decided by it now is decided by it again.
double rounded_time(double microseconds);

// The time of each kernel on the bench: the median of 7 samples. A kernel that takes three times as
// long as the best before it is left at two samples. `clock` is read before and after; where it has
// changed by more than 5 %, all kernels are timed again, at most twice.
std::vector<double> sampled_times(LayerBench& bench, size_t kernels,
                                  const std::function<std::optional<unsigned>()>& clock);

}  // namespace anneal
