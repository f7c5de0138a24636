// Reading an ONNX model for the options of a build.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "anneal/core/input_bounds.h"
#include "anneal/engine/builder/build_options.h"
#include "anneal/engine/onnx/onnx_model.h"
#include "anneal/importer/importer.h"

namespace anneal {

// The bounds of each input in all profiles together, with the opt of the first. An input without
// bounds in one profile has none. The name "" stays. Fails with kInvalidArgument on shapes that
// contradict each other.
InputBoundsByName bounds_of(const std::vector<Profile>& profiles);

// Fails as bounds_of(), the importer and settle_batch() do, and with kInvalidArgument on a shape
// without a name if the model has several inputs.
ImportResult import_model(const OnnxModel& model, const BuildOptions& options);

// Those of one profile. If there are several, each dumps graphs under a name of its own.
BuildOptions options_of_profile(const BuildOptions& options, size_t profile);

// "while reading model.onnx" or the like is added to errors: the path, or "the model in memory".
std::string name_of(const OnnxModel& model);

}  // namespace anneal
