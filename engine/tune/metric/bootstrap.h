// A bootstrap over samples: the confidence interval of a number that is computed from them.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "anneal/engine/tune/metric/interval.h"

namespace anneal {

// Draws samples with replacement, the same on every machine.
class Resampler {
 public:
  explicit Resampler(size_t samples) : samples_(samples) {}  // REQUIRES: 0 < samples < 2^32
  size_t next() {                                            // splitmix64
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    const uint64_t upper = (z ^ (z >> 31)) >> 32;
    return upper * samples_ >> 32;
  }

 private:
  const uint64_t samples_;
  uint64_t state_ = 0;
};

// How many resamples there is time for. cost: of one, in draws. REQUIRES: cost > 0
inline size_t resample_count(size_t cost) {
  constexpr size_t kFewest = 1'000, kMost = 10'000, kMostDraws = 200'000'000;
  return std::clamp(kMostDraws / cost, kFewest, kMost);
}

// The interval of the middle 95 % of the values. REQUIRES: at least one, none NaN
inline Interval middle_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    return values[static_cast<size_t>(std::lround(share * static_cast<double>(values.size() - 1)))];
  };
  return {at(0.025), at(0.975)};
}

}  // namespace anneal
