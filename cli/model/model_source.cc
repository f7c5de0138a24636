#include "anneal/cli/model/model_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <utility>

#include "anneal/cli/flags/library_flag.h"
#include "anneal/cli/flags/shape_flags.h"
#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/text_file.h"
#include "anneal/engine/onnx/onnx_builder.h"

namespace anneal {
namespace {

namespace fs = std::filesystem;

void check_no_range(const ShapeFlags& flags) {
  const std::pair<const char*, const std::vector<std::string>&> others[] = {
      {"--min-shapes", flags.min}, {"--opt-shapes", flags.opt}, {"--max-shapes", flags.max}};
  const bool has_range =
      std::ranges::any_of(others, [](const auto& each) { return !each.second.empty(); });
  if (flags.open_batch && (has_range || !flags.shapes.empty()))
    refuse_argument(
        "--open-batch leaves the batch open: to limit or fix it, leave this flag out and give "
        "shapes "
        "with another batch, --max-shapes NAME:16x3x224x224");
  if (flags.shapes.empty()) return;
  for (const auto& [name, value] : others)
    if (!value.empty())
      refuse_argument(
          fmt::format("--shapes and {} are both given: --shapes fixes sizes, --min-shapes, "
                      "--opt-shapes and --max-shapes give a range; use one kind",
                      name));
}

// The nth --min-shapes, --opt-shapes and --max-shapes are the nth profile.
std::vector<Profile> profiles_of(const ShapeFlags& flags) {
  if (!flags.shapes.empty()) return {{.opt = parse_shapes(flags.shapes)}};
  const size_t count = std::max({flags.min.size(), flags.opt.size(), flags.max.size(), size_t{1}});
  std::vector<Profile> profiles(count);
  const auto add = [&](const char* flag, const std::vector<std::string>& given,
                       std::map<std::string, Dims> Profile::*shapes) {
    if (!given.empty() && given.size() != count)
      refuse_argument(fmt::format(
          "{} is given {}, but there are {} profiles: repeat it for each, or leave it out", flag,
          given.size() == 1 ? "once" : fmt::format("{} times", given.size()), count));
    for (size_t i = 0; i < given.size(); ++i) profiles[i].*shapes = parse_shapes(given[i]);
  };
  add("--min-shapes", flags.min, &Profile::min);
  add("--opt-shapes", flags.opt, &Profile::opt);
  add("--max-shapes", flags.max, &Profile::max);
  return profiles;
}

// Axis 0 of the inputs that have the first fixed batch; other open sizes do not change.
Profile with_open_batch(const std::vector<DataInput>& inputs) {
  const auto has_batch = [](const DataInput& input) {
    return input.dims.rank() > 0 && input.dims[0] > 0;
  };
  const auto first = std::ranges::find_if(inputs, has_batch);
  Profile profile;
  for (const DataInput& input : inputs) {
    if (first == inputs.end() || !has_batch(input) || input.dims[0] != first->dims[0]) continue;
    const auto sizes = [&](int64_t batch, int64_t open) {
      Dims dims = input.dims;
      for (int64_t& size : dims) size = size < 0 ? open : size;
      dims[0] = batch;
      return dims;
    };
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    profile.min[input.name] = sizes(1, 0);
    profile.opt[input.name] = sizes(input.dims[0], 1);
    profile.max[input.name] = sizes(kMost, kMost);
  }
  return profile;
}

// Whether the model can have an input of this name with a default value.
bool takes_default_input(const OnnxModel& model, BuildOptions options, const std::string& name) {
  options.default_inputs.insert(name);
  try {
    onnx_inputs(model, options);
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    return false;  // the run refuses the name, and lists the inputs
  }
}

}  // namespace

void add_shape_flags(CLI::App& command, ShapeFlags& flags, HelpGroup range_group) {
  const auto add = [&](const char* flag, auto& value, const char* text, HelpGroup group) {
    return command.add_option(flag, value, text)->type_name("SHAPES")->group(group(help::kShapes));
  };
  add("--shapes", flags.shapes, "Fix open sizes of inputs: NAME:1x3x224x224,OTHER:1x10", often);
  add("--min-shapes", flags.min, "Smallest sizes of a run; repeat for several profiles",
      range_group)
      ->allow_extra_args(false);
  add("--opt-shapes", flags.opt, "Sizes to optimize for; likewise", range_group)
      ->allow_extra_args(false);
  add("--max-shapes", flags.max, "Largest sizes of a run; likewise", range_group)
      ->allow_extra_args(false);
  command
      .add_flag("--open-batch", flags.open_batch,
                "Open the batch of a model whose inputs have it fixed: axis 0")
      ->group(range_group(help::kShapes));
  command
      .add_option("--default-inputs", flags.default_inputs,
                  "Initializers that stay inputs, with a default value; all: each that\n"
                  "the model lists as an input. The others become constants")
      ->delimiter(',')
      ->type_name("NAME,...")
      ->group(rarely(help::kShapes));
  add_library_flag(command, flags.libraries);
}

ModelFile::ModelFile(const std::string& path) : path_(path) {
  std::error_code error;
  is_pipe_ = fs::is_fifo(path, error);
  if (is_pipe_) bytes_ = read_text(path);
}

OnnxModel ModelFile::model() const {
  if (!is_pipe_) return path_;
  const std::string folder = fs::path(path_).parent_path().string();
  return {std::as_bytes(std::span(bytes_)), folder.empty() ? "." : folder};
}

void set_shapes(const ShapeFlags& flags, const OnnxModel& model, BuildOptions& options) {
  check_no_range(flags);
  options.profiles = profiles_of(flags);
  options.libraries = flags.libraries;
  for (const std::string& name : flags.default_inputs)
    options.default_inputs.insert(name == "all" ? "*" : name);
  if (flags.open_batch) options.profiles = {with_open_batch(onnx_inputs(model, options))};
}

void set_shapes_for_inputs(const std::string& path, const ShapeFlags& flags,
                           std::span<const std::string> inputs, BuildOptions& options) {
  set_shapes(flags, OnnxModel(path), options);
  const auto names_one = [](const std::string& input) {
    return input.find('=') != std::string::npos;
  };
  if (std::ranges::none_of(inputs, names_one)) return;
  const OnnxModel model(path);
  const std::vector<DataInput> known = onnx_inputs(model, options);
  for (const std::string& input : inputs) {
    const bool is_known = std::ranges::any_of(
        known, [&](const DataInput& port) { return input.starts_with(port.name + "="); });
    if (is_known || !names_one(input)) continue;
    const std::string name = input.substr(0, input.find('='));
    if (takes_default_input(model, options, name)) options.default_inputs.insert(name);
  }
}

}  // namespace anneal
