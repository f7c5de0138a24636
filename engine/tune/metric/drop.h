// The loss of a metric against a reference, with its confidence interval.
#pragma once
#include <span>

#include "anneal/engine/tune/metric/metric.h"

namespace anneal {

// 95 % interval of reference's score - score; finite. Shares: Agresti and Min (2005) for paired
// samples, which has a width even if no answer changed. Others: a paired bootstrap, the same on
// every machine, which skips resamples without a reference score; if only the other model has none,
// the drop counts as infinite. REQUIRES: both have the same number of samples, at least one
struct DropInterval {
  double drop = 0, low = 0, high = 0;
};
DropInterval drop_of(const Metric& metric, std::span<const SampleScore> samples,
                     std::span<const SampleScore> reference);

}  // namespace anneal
