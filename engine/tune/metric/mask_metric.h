// Mean intersection over union of masks, with true masks or with those of the f32 model.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "anneal/engine/tune/metric/metric.h"

namespace anneal {

// The masks to compare with.
enum class MasksOf : uint8_t { kSamples, kReference };

// Of the output of that name; empty: the first that is one of masks.
std::shared_ptr<const Metric> mask_metric(std::string output, MasksOf truth);

}  // namespace anneal
