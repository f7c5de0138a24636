#include "anneal/engine/tune/metric/drop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "anneal/core/fail.h"
#include "anneal/engine/tune/metric/bootstrap.h"

namespace anneal {
namespace {

// For right and wrong answers: two pairs are added, half lost and half gained.
DropInterval drop_of_shares(std::span<const SampleScore> samples,
                            std::span<const SampleScore> reference) {
  constexpr double kDeviations = 1.959963984540054;
  double lost = 0, gained = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    lost += reference[i][0] > samples[i][0] ? 1 : 0;
    gained += reference[i][0] < samples[i][0] ? 1 : 0;
  }
  const auto all = static_cast<double>(samples.size());
  const double changed = lost + gained + 1, more = all + 2;
  const double centre = (lost - gained) / more;
  const double half =
      kDeviations * std::sqrt(changed - (lost - gained) * (lost - gained) / more) / more;
  return {100 * (lost - gained) / all, 100 * std::max(centre - half, -1.0),
          100 * std::min(centre + half, 1.0)};
}

}  // namespace

DropInterval drop_of(const Metric& metric, std::span<const SampleScore> samples,
                     std::span<const SampleScore> reference) {
  if (samples.size() != reference.size() || samples.empty())
    fail(ErrorCode::kInvalidArgument,
         fmt::format("a drop is between scores of the same samples, at least one; given are {} and "
                     "{}",
                     samples.size(), reference.size()));
  if (metric.is_share()) return drop_of_shares(samples, reference);
  std::vector<const SampleScore*> drawn, reference_drawn;
  size_t numbers = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    drawn.push_back(&samples[i]);
    reference_drawn.push_back(&reference[i]);
    numbers += 2 + samples[i].size() + reference[i].size();
  }
  constexpr double kMost = std::numeric_limits<double>::max();  // that a journal can keep
  // NaN: the reference has no score.
  const auto drop = [&] {
    const double score = metric.score(drawn), reference_score = metric.score(reference_drawn);
    if (!std::isfinite(reference_score)) return std::numeric_limits<double>::quiet_NaN();
    return std::isnan(score) ? kMost : std::clamp(reference_score - score, -kMost, kMost);
  };
  const double whole = drop();
  if (std::isnan(whole))
    fail(ErrorCode::kInvalidArgument,
         fmt::format("the metric {} gives the model in f32 no finite score, so that there is "
                     "nothing to compare with",
                     metric.name()));

  constexpr size_t kDrawsPerNumber = 8;  // what a score takes of each, in the time of draws
  Resampler resampler(samples.size());
  std::vector<double> drops;
  for (size_t left = resample_count(kDrawsPerNumber * numbers); left > 0; --left) {
    for (size_t i = 0; i < samples.size(); ++i) {
      const size_t k = resampler.next();
      drawn[i] = &samples[k];
      reference_drawn[i] = &reference[k];
    }
    if (const double one = drop(); !std::isnan(one)) drops.push_back(one);
  }
  if (drops.empty()) return {whole, whole, whole};
  const Interval interval = middle_of(std::move(drops));
  return {whole, interval.low, interval.high};
}

}  // namespace anneal
