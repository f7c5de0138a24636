// Reading an ONNX file for a command that builds it, with the shapes that flags give its inputs.
#pragma once
#include <CLI/CLI.hpp>
#include <span>
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
// The same for runs with these values of --input: an initializer that the model lists as an input,
// too, is an input where one names it.
ImportResult import_model_for_inputs(const std::string& path, ShapeFlags flags,
                                     std::span<const std::string> inputs);

}  // namespace anneal
