#include "anneal/cli/model/sample_inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "anneal/cli/flags/shape_flags.h"
#include "anneal/cli/model/open_engine.h"
#include "anneal/core/fail.h"
#include "anneal/engine/builder/inputs/input_trials.h"
#include "anneal/engine/data/sample_file.h"
#include "anneal/engine/plan.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/engine/symbols.h"

namespace anneal {
namespace {

// More is hardly meant: a profile with a wild opt size, or a damaged one.
constexpr double kLargestGuessedInput = 1 << 30;

bool has_default(const TensorInfo& port) { return port.default_value.has_value(); }

// Nothing for inputs that keep their default values.
std::vector<std::optional<InputFlag>> flag_per_input(std::span<const TensorInfo> ports,
                                                     const std::vector<std::string>& names,
                                                     const std::vector<std::string>& texts) {
  std::vector<std::optional<InputFlag>> found(names.size());
  std::optional<InputFlag> rest;
  std::string only = names.size() == 1 ? names[0] : "";
  if (std::ranges::count(ports, false, has_default) == 1)
    only = std::ranges::find(ports, false, has_default)->name;
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
    if (found[i] || has_default(ports[i])) continue;
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

void check_guessed_size(const TensorInfo& port, const Dims& dims) {
  double bytes = static_cast<double>(size_of(port.dtype));
  for (const int64_t dim : dims) bytes *= static_cast<double>(dim);
  if (bytes > kLargestGuessedInput)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("input \"{}\" of the sizes that the engine was optimized for, {}, would have "
                     "{:.1f} GiB: give its sizes with --shapes",
                     port.name, to_string(dims), bytes / kLargestGuessedInput));
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
                           const std::string& shapes_flag, std::string_view flag) {
  const Plan& plan = plan_of(engine);
  const auto names = input_names(engine);
  const auto flags = flag_per_input(engine.inputs(), names, input_flags);
  const auto shapes = parse_shapes(shapes_flag);
  check_names(shapes, names, flag);

  std::vector<std::optional<Tensor>> tensors(names.size());
  std::vector<std::optional<Dims>> dims_given(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    const TensorInfo& port = engine.inputs()[i];
    const auto given = shape_for(shapes, names[i], names.size());
    dims_given[i] = given;
    if (!flags[i]) {
      if (given && *given != port.default_value->dims())
        fail(ErrorCode::kInvalidArgument,
             fmt::format("{} says {} for input \"{}\", whose default value is {}; add --input "
                         "{}=FILE or --input {}=random",
                         flag, to_string(*given), names[i], to_string(port.default_value->dims()),
                         names[i], names[i]));
      tensors[i] = port.default_value;
      dims_given[i] = tensors[i]->dims();
      continue;
    }
    if (flags[i]->file.empty()) continue;
    const bool open = std::find(port.dims.begin(), port.dims.end(), -1) != port.dims.end();
    const RawFormat raw{port.dtype, given ? given : open ? std::nullopt : std::optional(port.dims)};
    tensors[i] = read_sample(flags[i]->file, raw);
    if (given && *given != tensors[i]->dims())
      fail(ErrorCode::kInvalidArgument,
           fmt::format("{} says {} for input \"{}\", but {} holds {}", flag, to_string(*given),
                       names[i], flags[i]->file, to_string(tensors[i]->dims())));
    dims_given[i] = tensors[i]->dims();
  }
  std::vector<TrialInput> trial_inputs;
  for (size_t i = 0; i < names.size(); ++i)
    trial_inputs.push_back({tensors[i], flags[i] ? flags[i]->seed.value_or(0) : 0});
  const auto is_set = [](const auto& one) { return one.has_value(); };
  const bool is_drawn = !std::ranges::all_of(tensors, is_set);
  const bool is_tried = is_drawn && may_refuse_values(plan);
  InputTrials trials(engine, std::move(trial_inputs));
  std::vector<Dims> dims;
  if (std::ranges::all_of(dims_given, is_set)) {
    for (const auto& one : dims_given) dims.push_back(*one);
    if (is_tried) trials.run(dims);
  } else {
    TrialRun run;
    if (is_tried) run = [&](std::span<const Dims> tried) { return trials.run(tried); };
    dims = choose_input_dims(plan, weights_of(engine), SizeChoice::kOptimal, dims_given, run);
  }
  for (size_t i = 0; i < names.size(); ++i)
    if (!dims_given[i]) check_guessed_size(engine.inputs()[i], dims[i]);

  SampleInputs inputs;
  inputs.tensors = trials.draw(dims);
  inputs.is_drawn = is_drawn;
  inputs.runs_tried = trials.runs();
  for (size_t i = 0; i < names.size(); ++i)
    if (!dims_given[i] && !known(port_shape(plan, plan.inputs[i])))
      inputs.guessed += fmt::format("{}\"{}\" of {}", inputs.guessed.empty() ? "" : ", ", names[i],
                                    to_string(dims[i]));
  for (const auto& flag_of_input : flags) inputs.is_default.push_back(!flag_of_input);
  return inputs;
}

}  // namespace anneal
