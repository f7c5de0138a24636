#include "anneal/cli/model/import_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "anneal/cli/flags/shape_flags.h"
#include "anneal/core/fail.h"
#include "anneal/core/file.h"

namespace anneal {
namespace {

std::vector<std::string> graph_input_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const ValueId input : graph.inputs()) names.push_back(graph.value(input).name);
  return names;
}

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

ImportResult import_model(const std::string& path, const ShapeFlags& flags) {
  check_no_range(flags);
  const auto opt = parse_shapes(flags.shapes.empty() ? flags.opt : flags.shapes);
  ImportOptions options;
  options.bounds = merge_bounds(parse_shapes(flags.min), opt, parse_shapes(flags.max));
  for (const std::string& name : flags.default_inputs)
    options.default_inputs.insert(name == "all" ? "*" : name);
  if (auto unnamed = options.bounds.extract(""); !unnamed.empty()) {
    // The only input's name is known after a first look at the model, which a pipe gives once.
    const FileBytes file = read_file(path);
    const auto import = [&](const ImportOptions& with) {
      const std::string folder = std::filesystem::path(path).parent_path().string();
      return with_context(
          [&] { return path; },
          [&] { return import_bytes(file.bytes, folder.empty() ? "." : folder, with); });
    };
    const auto inputs = graph_input_names(import({}).graph);
    check_names({{"", unnamed.mapped().opt}}, inputs, "--shapes");
    unnamed.key() = inputs[0];
    if (!options.bounds.insert(std::move(unnamed)).inserted)
      fail(ErrorCode::kInvalidArgument, fmt::format("two shapes are given for \"{}\"", inputs[0]));
    return import(options);
  }
  return import_file(path, options);
}

ImportResult import_model_for_inputs(const std::string& path, ShapeFlags flags,
                                     std::span<const std::string> inputs) {
  ImportResult imported = import_model(path, flags);
  const auto is_given = [&](const std::string& name) {
    return std::ranges::any_of(
        inputs, [&](const std::string& input) { return input.starts_with(name + "="); });
  };
  const size_t asked = flags.default_inputs.size();
  std::ranges::copy_if(imported.constant_inputs, std::back_inserter(flags.default_inputs),
                       is_given);
  return flags.default_inputs.size() == asked ? std::move(imported) : import_model(path, flags);
}

}  // namespace anneal
