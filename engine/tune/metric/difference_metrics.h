// Metrics of the difference between outputs and those of the f32 model, for outputs of any meaning.
#pragma once
#include <memory>
#include <string>

#include "anneal/engine/tune/metric/metric.h"

namespace anneal {

// Of the output of that name, which may be of integers; empty: of all of floats.
std::shared_ptr<const Metric> cosine_metric(std::string output);
std::shared_ptr<const Metric> sqnr_metric(std::string output);
std::shared_ptr<const Metric> max_error_metric(std::string output);

}  // namespace anneal
