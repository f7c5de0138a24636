#include "anneal/engine/tune/calibration/finite_range.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace anneal {
namespace {

// Elements are checked in groups of this size, by loops of known length, which compilers make
// vectors of.
constexpr size_t kFloatLanes = 16;

bool is_finite(float value) { return std::abs(value) <= std::numeric_limits<float>::max(); }

}  // namespace

FiniteRange finite_range(std::span<const float> values) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::array<float, kFloatLanes> low, high;
  std::array<int32_t, kFloatLanes> finite{};
  low.fill(kInfinity);
  high.fill(-kInfinity);
  const auto look_at = [&](const float* block) {
    for (size_t k = 0; k < kFloatLanes; ++k) {
      const float value = block[k];
      const bool counts = is_finite(value);
      const float upper = counts ? value : kInfinity, lower = counts ? value : -kInfinity;
      finite[k] += counts ? 1 : 0;
      low[k] = upper < low[k] ? upper : low[k];
      high[k] = lower > high[k] ? lower : high[k];
    }
  };
  size_t done = 0;
  for (; done + kFloatLanes <= values.size(); done += kFloatLanes) look_at(values.data() + done);
  std::array<float, kFloatLanes> rest;
  rest.fill(kInfinity);
  std::ranges::copy(values.subspan(done), rest.begin());
  look_at(rest.data());
  FiniteRange range;
  for (size_t k = 0; k < kFloatLanes; ++k) {
    range.count += finite[k];
    range.min = std::min(range.min, low[k]);
    range.max = std::max(range.max, high[k]);
  }
  return range;
}

}  // namespace anneal
