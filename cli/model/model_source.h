// An ONNX file that a command builds, with the shapes that flags give its inputs.
#pragma once
#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <vector>

#include "anneal/cli/flags/help.h"
#include "anneal/engine/builder/build_options.h"
#include "anneal/engine/onnx/onnx_model.h"

namespace anneal {

// --shapes, --min-shapes, --opt-shapes, --max-shapes as they were written. The last three once for
// each profile.
struct ShapeFlags {
  std::string shapes;
  std::vector<std::string> min, opt, max;
  std::vector<std::string> default_inputs = {};  // --default-inputs
  std::vector<std::string> libraries = {};       // --library, which gives operators their shapes
  bool open_batch = false;                       // --open-batch
};
// range_group: whether --help shows the flags of ranges.
void add_shape_flags(CLI::App& command, ShapeFlags& flags, HelpGroup range_group = rarely);

// A model that a command reads several times. A pipe gives it once, so its bytes are kept.
class ModelFile {
 public:
  explicit ModelFile(const std::string& path);  // fails as reading does
  OnnxModel model() const;

 private:
  std::string path_;
  std::string bytes_;  // of a pipe
  bool is_pipe_ = false;
};

// Sets the profiles and the inputs with default values. Reads the model to open its batch. Fails
// with kInvalidArgument on flags that contradict each other.
void set_shapes(const ShapeFlags& flags, const OnnxModel& model, BuildOptions& options);
// The same for runs with these values of --input: an initializer that the model lists as an input,
// too, is an input where one names it. Reads the model if one names no other input of it.
void set_shapes_for_inputs(const std::string& path, const ShapeFlags& flags,
                           std::span<const std::string> inputs, BuildOptions& options);

}  // namespace anneal
