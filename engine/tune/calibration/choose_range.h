// The choice of a tensor's quantized range from the histogram of its elements.
#pragma once
#include <optional>
#include <string_view>

#include "anneal/engine/builder/build_options.h"
#include "anneal/engine/tune/calibration/histogram.h"
#include "anneal/optimizer/calibration_table.h"

namespace anneal {

std::optional<RangeMethod> range_method(std::string_view name);  // nullopt: there is none

struct RangeOptions {
  RangeMethod method = RangeMethod::kAuto;
  double percentile = 99.99;  // of kPercentile: of the elements, the others lie outside
  bool symmetric = false;     // the zero point will be 0
};

// The mean of the squared difference that quantizing to 8 bits over [min, max] makes. Within a bin
// values count as spread evenly; zeros cost nothing, since 0 has an integer of its own.
double quantization_error(const Histogram& values, float min, float max, bool symmetric);

// method of the result: the one that was taken. seen_min and seen_max are the histogram's.
TensorRange choose_range(const Histogram& values, const RangeOptions& options);

}  // namespace anneal
