// Mean intersection over union of masks: with the truth, or with what the model in f32 gives.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "anneal/engine/tune/metric/metric.h"

namespace anneal {

// What masks are compared with.
enum class MasksOf : uint8_t { kSamples, kReference };

// Of the output of that name; empty: the first that is one of masks.
std::shared_ptr<const Metric> mask_metric(std::string output, MasksOf truth);

}  // namespace anneal
