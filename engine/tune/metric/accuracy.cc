#include "anneal/engine/tune/metric/accuracy.h"

#include <cmath>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/engine/tune/metric/bootstrap.h"

namespace anneal {

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
  Resampler resampler(change.size());
  std::vector<double> nets(resample_count(change.size()));
  for (double& net : nets) {
    int64_t sum = 0;
    for (size_t i = 0; i < change.size(); ++i) sum += change[resampler.next()];
    net = static_cast<double>(sum);
  }
  loss.net_interval = middle_of(std::move(nets));
  return loss;
}

}  // namespace anneal
