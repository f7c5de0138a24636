#include "anneal/cli/model/sample_inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "anneal/cli/flags/shape_flags.h"
#include "anneal/cli/model/open_engine.h"
#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/tensor_files.h"
#include "anneal/engine/builder/inputs/choose_inputs.h"

namespace anneal {
namespace {

bool is_kept(const TensorInfo& port, StateInputs states) {
  return states == StateInputs::kKept && !port.state_output.empty();
}

// Nothing for inputs that keep their default values, and for states that are kept.
std::vector<std::optional<InputFlag>> flag_per_input(std::span<const TensorInfo> ports,
                                                     const std::vector<std::string>& names,
                                                     const std::vector<std::string>& texts,
                                                     StateInputs states) {
  std::vector<std::optional<InputFlag>> found(names.size());
  std::optional<InputFlag> rest;
  std::string only = names.size() == 1 ? names[0] : "";
  const auto needs_none = [&](const TensorInfo& port) {
    return port.default_value.has_value() || is_kept(port, states);
  };
  if (std::ranges::count(ports, false, needs_none) == 1)
    only = std::ranges::find(ports, false, needs_none)->name;
  for (const std::string& text : texts) {
    const InputFlag flag = parse_input(text, names, only);
    auto& place = flag.name.empty()
                      ? rest
                      : found[static_cast<size_t>(std::find(names.begin(), names.end(), flag.name) -
                                                  names.begin())];
    if (place) fail(ErrorCode::kInvalidArgument, fmt::format("--input {} is given twice", text));
    place = flag;
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (found[i] || needs_none(ports[i])) continue;
    if (!rest)
      fail(ErrorCode::kInvalidArgument,
           fmt::format(
               "nothing is given for the input \"{}\"; add --input {}=FILE or --input {}=random",
               names[i], names[i], names[i]));
    found[i] = *rest;
    // Inputs that share one flag differ all the same.
    if (rest->seed) *found[i]->seed += i;
  }
  return found;
}

// The dims of a state that begins: those given, else the least where no other input has the size.
// has_dims: by input, whether it is more than a state without dims of its own.
Dims first_dims(const Engine& engine, const TensorInfo& state, const std::optional<Dims>& given,
                const std::vector<bool>& has_dims) {
  if (given) return *given;
  Dims dims = state.dims;
  for (int axis = 0; axis < dims.rank(); ++axis) {
    const std::string& name = state.dim_names[static_cast<size_t>(axis)];
    bool follows = false;
    for (size_t i = 0; i < has_dims.size(); ++i)
      follows |= has_dims[i] && std::ranges::count(engine.inputs()[i].dim_names, name) > 0;
    if (dims[axis] < 0 && !follows) dims[axis] = state.min_dims[axis];
  }
  return dims;
}

}  // namespace

std::string SampleInputs::context() const {
  std::string text;
  if (!guessed.empty())
    text = "with guessed sizes, " + guessed +
           " (--shapes gives others, --input NAME=FILE other values)";
  else if (is_drawn)
    text = "with random inputs (--input NAME=FILE gives others)";
  if (runs_tried > 1) text += fmt::format(", after {} other runs", runs_tried - 1);
  return text;
}

SampleInputs sample_inputs(const Engine& engine, const std::vector<std::string>& input_flags,
                           const std::string& shapes_flag, int profile, std::string_view flag,
                           StateInputs states) {
  const auto names = input_names(engine);
  const auto flags = flag_per_input(engine.inputs(), names, input_flags, states);
  const auto shapes = parse_shapes(shapes_flag);
  check_names(shapes, names, flag);

  std::vector<bool> has_dims;
  for (size_t i = 0; i < names.size(); ++i)
    has_dims.push_back(flags[i] || !is_kept(engine.inputs()[i], states) ||
                       shape_for(shapes, names[i], names.size()));
  std::vector<WantedInput> wanted(names.size());
  SampleInputs inputs;
  for (size_t i = 0; i < names.size(); ++i) {
    const TensorInfo& port = engine.inputs()[i];
    const auto given = shape_for(shapes, names[i], names.size());
    std::optional<Tensor>& tensor = wanted[i].tensor;
    wanted[i].dims = given;
    inputs.state_dims.emplace_back();
    const bool begins = !flags[i] && is_kept(port, states);
    if (begins) inputs.state_dims[i] = given.value_or(Dims::filled(port.dims.rank(), -1));
    // A state of one shape begins with its default value, as the context has it.
    if (begins && ((given && given != port.dims) || !port.default_value)) {
      wanted[i].dims = first_dims(engine, port, given, has_dims);
      inputs.is_default.push_back(false);
      continue;
    }
    inputs.is_default.push_back(!flags[i]);
    if (!flags[i]) {
      if (given && *given != port.default_value->dims())
        fail(ErrorCode::kInvalidArgument,
             fmt::format("{} says {} for input \"{}\", whose default value is {}; add --input "
                         "{}=FILE or --input {}=random",
                         flag, to_string(*given), names[i], to_string(port.default_value->dims()),
                         names[i], names[i]));
      tensor = port.default_value;
      continue;
    }
    wanted[i].seed = flags[i]->seed.value_or(0);
    inputs.is_drawn |= flags[i]->file.empty();
    if (flags[i]->file.empty()) continue;
    const bool open = std::find(port.dims.begin(), port.dims.end(), -1) != port.dims.end();
    const std::optional<Dims> raw_dims = given  ? given
                                         : open ? std::nullopt
                                                : std::optional(port.dims);
    tensor = read_tensor(flags[i]->file, port.dtype, raw_dims);
    if (given && *given != tensor->dims())
      fail(ErrorCode::kInvalidArgument,
           fmt::format("{} says {} for input \"{}\", but {} holds {}", flag, to_string(*given),
                       names[i], flags[i]->file, to_string(tensor->dims())));
  }
  ChosenInputs chosen =
      choose_inputs(engine, wanted, profile < 0 ? std::nullopt : std::optional<size_t>(profile));
  for (size_t i = 0; i < names.size(); ++i)
    if (chosen.is_guessed[i])
      inputs.guessed += fmt::format("{}\"{}\" of {}", inputs.guessed.empty() ? "" : ", ", names[i],
                                    to_string(chosen.tensors[i].dims()));
  inputs.tensors = std::move(chosen.tensors);
  for (size_t i = 0; i < names.size(); ++i) {
    if (!inputs.state_dims[i] || inputs.is_default[i]) continue;
    Tensor& tensor = inputs.tensors[i];
    const std::vector<std::byte> zeros(tensor.bytes().size());
    tensor = Tensor::copy_of(tensor.dtype(), tensor.dims(), zeros);
  }
  inputs.runs_tried = chosen.runs_tried;
  return inputs;
}

}  // namespace anneal
