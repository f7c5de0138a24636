// How calibration decides: the method for ranges, and what else is fitted to the samples.
#pragma once
#include <string_view>

namespace anneal {

// How the range of a tensor follows from the histogram of its values.
enum class RangeMethod {
  kMinMax,      // the extremes
  kEntropy,     // where the distribution of the integers diverges least from that of the values
  kPercentile,  // the extremes without the share of the elements that lies farthest out
  kMse,         // where the mean of the squared errors is least
  kAuto,        // the one of the above with the least measured error
};
std::string_view to_string(RangeMethod method);  // "minmax"

// Whether something is done; kAuto: where it makes the measured error less.
enum class Use {
  kOff,
  kOn,
  kAuto,  // where it makes the measured error less
};

}  // namespace anneal
