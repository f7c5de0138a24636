// Accuracy of a classifier, and the loss of one against another, with confidence intervals.
#pragma once
#include <cstdint>
#include <vector>

#include "anneal/engine/tune/metric/interval.h"

namespace anneal {

// The 95 % interval of a share, by Wilson's score. REQUIRES: 0 <= right <= all, all > 0
Interval wilson_interval(int64_t right, int64_t all);

// Of the same samples, judged twice.
struct NetLoss {
  int64_t lost = 0;       // right by the reference alone
  int64_t gained = 0;     // wrong by the reference alone
  Interval net_interval;  // of lost - gained, 95 %, by a paired bootstrap over the samples
  int64_t net() const { return lost - gained; }
};
// The same on every machine. REQUIRES: as many of both, not none
NetLoss net_loss(const std::vector<bool>& right, const std::vector<bool>& reference_right);

}  // namespace anneal
