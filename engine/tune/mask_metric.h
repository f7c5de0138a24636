// Mean intersection over union of masks with those of the model in f32.
#pragma once
#include <memory>
#include <string>

#include "anneal/engine/tune/metric.h"

namespace anneal {

// Of the output of that name; empty: the first that is one of masks.
std::shared_ptr<const Metric> mask_metric(std::string output);

}  // namespace anneal
