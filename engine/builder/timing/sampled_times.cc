#include "anneal/engine/builder/timing/sampled_times.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace anneal {
namespace {

constexpr size_t kSamples = 7, kFewestSamples = 2;
constexpr double kHopelessOnGpu = 3;  // times as long as the best
constexpr double kSteadyClock = 0.05;
constexpr int kMostRepetitions = 2;

std::vector<double> times_now(LayerBench& bench, size_t kernels) {
  std::vector<double> times;
  double best = std::numeric_limits<double>::infinity();
  for (size_t kernel = 0; kernel < kernels; ++kernel) {
    std::vector<double> samples;
    while (samples.size() < kSamples) {
      samples.push_back(bench.microseconds(kernel));
      if (samples.size() >= kFewestSamples &&
          *std::ranges::min_element(samples) > kHopelessOnGpu * best)
        break;
    }
    times.push_back(rounded_time(median_time(samples)));
    best = std::min(best, times.back());
  }
  return times;
}

bool is_steady(std::optional<unsigned> before, std::optional<unsigned> after) {
  if (!before || !after) return true;
  return std::abs(static_cast<double>(*after) - *before) <= kSteadyClock * *before;
}

}  // namespace

double median_time(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double rounded_time(double microseconds) { return std::round(microseconds * 100) / 100; }

std::vector<double> sampled_times(LayerBench& bench, size_t kernels,
                                  const std::function<std::optional<unsigned>()>& clock) {
  std::optional<unsigned> before = clock();
  std::vector<double> times = times_now(bench, kernels);
  for (int repetition = 0; repetition < kMostRepetitions; ++repetition) {
    const std::optional<unsigned> after = clock();
    if (is_steady(before, after)) break;
    before = after;
    times = times_now(bench, kernels);
  }
  return times;
}

}  // namespace anneal
