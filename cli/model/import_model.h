// Reading an ONNX file for a command that builds it, with the shapes that flags give its inputs.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "anneal/importer/importer.h"

namespace anneal {

// --shapes, --min-shapes, --opt-shapes, --max-shapes as they were written.
struct ShapeFlags {
  std::string shapes, min, opt, max;
  std::vector<std::string> default_inputs = {};  // --default-inputs
};
void add_shape_flags(CLI::App& command, ShapeFlags& flags);

// Fails with kInvalidArgument on flags that contradict each other or the model, else as
// import_file().
ImportResult import_model(const std::string& path, const ShapeFlags& flags);

}  // namespace anneal
