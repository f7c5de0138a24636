#include "anneal/cli/model/import_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "anneal/cli/flags/shape_flags.h"
#include "anneal/core/fail.h"
#include "anneal/engine/onnx/import_model.h"

namespace anneal {
namespace {

namespace fs = std::filesystem;

void check_no_range(const ShapeFlags& flags) {
  if (flags.shapes.empty()) return;
  const std::pair<const char*, const std::string&> others[] = {
      {"--min-shapes", flags.min}, {"--opt-shapes", flags.opt}, {"--max-shapes", flags.max}};
  for (const auto& [name, value] : others)
    if (!value.empty())
      fail(ErrorCode::kInvalidArgument,
           fmt::format("--shapes and {} are both given: --shapes fixes sizes, --min-shapes, "
                       "--opt-shapes and --max-shapes give a range; use one kind",
                       name));
}

bool is_named(const std::string& name, std::span<const std::string> inputs) {
  return std::ranges::any_of(
      inputs, [&](const std::string& input) { return input.starts_with(name + "="); });
}

}  // namespace

void add_shape_flags(CLI::App& command, ShapeFlags& flags) {
  const auto add = [&](const char* flag, std::string& value, const char* help) {
    command.add_option(flag, value, help)->type_name("NAME:1x3x224x224,...");
  };
  add("--shapes", flags.shapes, "Fix sizes of inputs that the model leaves open");
  add("--min-shapes", flags.min, "The smallest sizes that will be run");
  add("--opt-shapes", flags.opt, "The sizes to be fastest at");
  add("--max-shapes", flags.max, "The largest sizes that will be run");
  command
      .add_option("--default-inputs", flags.default_inputs,
                  "Initializers that the model lists as inputs, too, and that runs may be given; "
                  "all: every one. Others are constants")
      ->delimiter(',')
      ->type_name("NAME,...|all");
}

ModelFile::ModelFile(const std::string& path) : path_(path) {
  std::error_code error;
  is_pipe_ = fs::is_fifo(path, error);
  if (is_pipe_) bytes_ = read_file(path);
}

OnnxModel ModelFile::model() const {
  if (!is_pipe_) return path_;
  const std::string folder = fs::path(path_).parent_path().string();
  return {bytes_.bytes, folder.empty() ? "." : folder};
}

void set_shapes(const ShapeFlags& flags, BuildOptions& options) {
  check_no_range(flags);
  Profile profile{.min = parse_shapes(flags.min),
                  .opt = parse_shapes(flags.shapes.empty() ? flags.opt : flags.shapes),
                  .max = parse_shapes(flags.max)};
  options.profiles = {std::move(profile)};
  for (const std::string& name : flags.default_inputs)
    options.default_inputs.insert(name == "all" ? "*" : name);
}

void set_shapes_for_inputs(const std::string& path, const ShapeFlags& flags,
                           std::span<const std::string> inputs, BuildOptions& options) {
  set_shapes(flags, options);
  const auto names_one = [](const std::string& input) {
    return input.find('=') != std::string::npos;
  };
  if (std::ranges::none_of(inputs, names_one)) return;
  std::ranges::copy_if(import_model(OnnxModel(path), options).constant_inputs,
                       std::inserter(options.default_inputs, options.default_inputs.end()),
                       [&](const std::string& name) { return is_named(name, inputs); });
}

ImportResult import_model(const std::string& path, const ShapeFlags& flags) {
  BuildOptions options;
  set_shapes(flags, options);
  return import_model(OnnxModel(path), options);
}

ImportResult import_model_for_inputs(const std::string& path, const ShapeFlags& flags,
                                     std::span<const std::string> inputs) {
  BuildOptions options;
  set_shapes(flags, options);
  ImportResult imported = import_model(OnnxModel(path), options);
  const size_t asked = options.default_inputs.size();
  std::ranges::copy_if(imported.constant_inputs,
                       std::inserter(options.default_inputs, options.default_inputs.end()),
                       [&](const std::string& name) { return is_named(name, inputs); });
  return options.default_inputs.size() == asked ? std::move(imported)
                                                : import_model(OnnxModel(path), options);
}

}  // namespace anneal
