// Interval: the two ends of a confidence interval.
#pragma once

namespace anneal {

struct Interval {
  double low = 0, high = 0;
};

}  // namespace anneal
