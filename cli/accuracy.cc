#include "anneal/cli/accuracy.h"

#include <algorithm>
#include <cmath>

#include "anneal/core/error.h"

namespace anneal {
namespace {

constexpr size_t kMostResamples = 10'000, kFewestResamples = 1'000;
constexpr size_t kMostDraws = 200'000'000;

}  // namespace

Interval wilson_interval(int64_t right, int64_t all) {
  check(all > 0 && right >= 0 && right <= all, "a share");
  constexpr double z = 1.959963984540054;
  const auto n = static_cast<double>(all);
  const double share = static_cast<double>(right) / n;
  const double centre = (share + z * z / (2 * n)) / (1 + z * z / n);
  const double half =
      z / (1 + z * z / n) * std::sqrt(share * (1 - share) / n + z * z / (4 * n * n));
  return {right == 0 ? 0 : centre - half, right == all ? 1 : centre + half};
}

NetLoss net_loss(const std::vector<bool>& right, const std::vector<bool>& reference_right) {
  check(right.size() == reference_right.size() && !right.empty(), "the same samples");
  NetLoss loss;
  std::vector<int8_t> change(right.size());
  for (size_t i = 0; i < right.size(); ++i) {
    change[i] = static_cast<int8_t>(int{reference_right[i]} - int{right[i]});
    loss.lost += change[i] > 0 ? 1 : 0;
    loss.gained += change[i] < 0 ? 1 : 0;
  }
  std::vector<int64_t> nets(
      std::clamp(kMostDraws / change.size(), kFewestResamples, kMostResamples));
  uint64_t state = 0;  // splitmix64
  for (int64_t& net : nets) {
    for (size_t i = 0; i < change.size(); ++i) {
      uint64_t z = state += 0x9e3779b97f4a7c15u;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
      const uint64_t upper = (z ^ (z >> 31)) >> 32;
      net += change[upper * change.size() >> 32];
    }
  }
  std::sort(nets.begin(), nets.end());
  const auto at = [&](double share) {
    return static_cast<double>(
        nets[static_cast<size_t>(std::lround(share * static_cast<double>(nets.size() - 1)))]);
  };
  loss.net_interval = {at(0.025), at(0.975)};
  return loss;
}

}  // namespace anneal
