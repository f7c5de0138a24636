// The graph of an ONNX file, for commands that look into it.
#pragma once
#include <span>
#include <string>

#include "anneal/cli/model/model_source.h"
#include "anneal/importer/importer.h"

namespace anneal {

// Fails as set_shapes() and import_file() do.
ImportResult import_model(const std::string& path, const ShapeFlags& flags);
// As set_shapes_for_inputs().
ImportResult import_model_for_inputs(const std::string& path, const ShapeFlags& flags,
                                     std::span<const std::string> inputs);

}  // namespace anneal
