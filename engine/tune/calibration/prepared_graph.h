// The graph on which decisions about precision are made.
#pragma once
#include <string_view>

#include "anneal/graph/graph.h"
#include "anneal/optimizer/pass.h"

namespace anneal {

// Where a model runs while the ranges of its values are measured.
inline constexpr const char* kCalibrationDevice = "cpu";
// The first pass that a calibration table decides about.
inline constexpr std::string_view kFirstOfPrecision = "equalize_channels";

// As the first pass that a calibration table decides about will see the model in a build for the
// CPU: batch normalizations are in the weights, layers are not joined yet. Fails as run_pipeline()
// does.
Graph prepared_for_precision(const Graph& model, const PassOptions& passes);

}  // namespace anneal
