// Reading an ONNX file for a command that builds it, with the shapes that flags give its inputs.
#pragma once
#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <vector>

#include "anneal/core/file.h"
#include "anneal/engine/builder/build_options.h"
#include "anneal/engine/onnx/onnx_model.h"
#include "anneal/importer/importer.h"

namespace anneal {

// --shapes, --min-shapes, --opt-shapes, --max-shapes as they were written.
struct ShapeFlags {
  std::string shapes, min, opt, max;
  std::vector<std::string> default_inputs = {};  // --default-inputs
};
void add_shape_flags(CLI::App& command, ShapeFlags& flags);

// A model that a command reads several times. A pipe gives it once, so its bytes are kept.
class ModelFile {
 public:
  explicit ModelFile(const std::string& path);  // fails as reading does
  OnnxModel model() const;

 private:
  std::string path_;
  FileBytes bytes_ = {};  // of a pipe
  bool is_pipe_ = false;
};

// Sets the profile and the inputs with default values. Fails with kInvalidArgument on flags that
// contradict each other.
void set_shapes(const ShapeFlags& flags, BuildOptions& options);
// The same for runs with these values of --input: an initializer that the model lists as an input,
// too, is an input where one names it. Reads the model.
void set_shapes_for_inputs(const std::string& path, const ShapeFlags& flags,
                           std::span<const std::string> inputs, BuildOptions& options);

// Fails as set_shapes() and import_file() do.
ImportResult import_model(const std::string& path, const ShapeFlags& flags);
ImportResult import_model_for_inputs(const std::string& path, const ShapeFlags& flags,
                                     std::span<const std::string> inputs);

}  // namespace anneal
