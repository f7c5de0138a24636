#include "anneal/cli/model/sample_inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "anneal/cli/flags/shape_flags.h"
#include "anneal/cli/model/open_engine.h"
#include "anneal/engine/builder/inputs/drawn_inputs.h"
#include "anneal/engine/data/sample_file.h"
#include "anneal/engine/plan.h"
#include "anneal/engine/run/engine_internals.h"
#include "anneal/engine/symbols.h"

namespace anneal {
namespace {

// More is hardly meant: a profile with a wild opt size, or a damaged one.
constexpr double kLargestGuessedInput = 1 << 30;

std::vector<InputFlag> flag_per_input(const std::vector<std::string>& names,
                                      const std::vector<std::string>& texts) {
  std::vector<std::optional<InputFlag>> found(names.size());
  std::optional<InputFlag> rest;
  for (const std::string& text : texts) {
    const InputFlag flag = parse_input(text, names);
    auto& place = flag.name.empty()
                      ? rest
                      : found[static_cast<size_t>(std::find(names.begin(), names.end(), flag.name) -
                                                  names.begin())];
    if (place) fail(Code::kInvalidArgument, fmt::format("--input {} is given twice", text));
    place = flag;
  }
  std::vector<InputFlag> flags;
  for (size_t i = 0; i < names.size(); ++i) {
    if (!found[i] && !rest)
      fail(Code::kInvalidArgument,
           fmt::format(
               "nothing is given for the input \"{}\"; add --input {}=FILE or --input {}=random",
               names[i], names[i], names[i]));
    flags.push_back(found[i] ? *found[i] : *rest);
    // Inputs that share one flag differ all the same.
    if (!found[i] && rest->seed) *flags.back().seed += i;
  }
  return flags;
}

void check_guessed_size(const TensorInfo& port, const Dims& dims) {
  double bytes = static_cast<double>(size_of(port.dtype));
  for (const int64_t dim : dims) bytes *= static_cast<double>(dim);
  if (bytes > kLargestGuessedInput)
    fail(Code::kInvalidArgument,
         fmt::format("input \"{}\" of the sizes that the engine was optimized for, {}, would have "
                     "{:.1f} GiB: give its sizes with --shapes",
                     port.name, to_string(dims), bytes / kLargestGuessedInput));
}

// Of dims that do not bind nothing is known; the run tells what is wrong with them.
std::vector<InputRange> ranges_at(const Plan& plan, std::span<const Tensor> weights,
                                  std::span<const Dims> dims) {
  try {
    return input_ranges(plan, weights, dims);
  } catch (const Error& error) {
    if (error.code() != Code::kInvalidArgument) throw;
    std::vector<InputRange> ranges;
    for (size_t i = 0; i < dims.size(); ++i) ranges.push_back({0, 9});
    return ranges;
  }
}

}  // namespace

SampleInputs sample_inputs(const Engine& engine, const std::vector<std::string>& input_flags,
                           const std::string& shapes_flag, std::string_view flag) {
  const Plan& plan = plan_of(engine);
  const auto names = input_names(engine);
  const auto flags = flag_per_input(names, input_flags);
  const auto shapes = parse_shapes(shapes_flag);
  check_names(shapes, names, flag);

  std::vector<std::optional<Tensor>> tensors(names.size());
  std::vector<std::optional<Dims>> dims_given(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    const TensorInfo& port = engine.inputs()[i];
    const auto given = shape_for(shapes, names[i], names.size());
    dims_given[i] = given;
    if (flags[i].file.empty()) continue;
    const bool open = std::find(port.dims.begin(), port.dims.end(), -1) != port.dims.end();
    const RawFormat raw{port.dtype, given ? given : open ? std::nullopt : std::optional(port.dims)};
    tensors[i] = read_sample(flags[i].file, raw);
    if (given && *given != tensors[i]->dims())
      fail(Code::kInvalidArgument,
           fmt::format("{} says {} for input \"{}\", but {} holds {}", flag, to_string(*given),
                       names[i], flags[i].file, to_string(tensors[i]->dims())));
    dims_given[i] = tensors[i]->dims();
  }
  const auto is_set = [](const auto& one) { return one.has_value(); };
  const bool all_given = std::ranges::all_of(dims_given, is_set);
  const bool is_drawn = !std::ranges::all_of(tensors, is_set);
  std::vector<Dims> dims;
  if (all_given)
    for (const auto& one : dims_given) dims.push_back(*one);
  else
    dims = choose_input_dims(plan, weights_of(engine), SizeChoice::kOptimal, dims_given);
  for (size_t i = 0; i < names.size(); ++i)
    if (!dims_given[i]) check_guessed_size(engine.inputs()[i], dims[i]);
  std::vector<InputRange> ranges(names.size());
  if (is_drawn) ranges = ranges_at(plan, weights_of(engine), dims);

  SampleInputs inputs;
  for (size_t i = 0; i < names.size(); ++i) {
    if (!tensors[i]) {
      if (!dims_given[i] && !known(port_shape(plan, plan.inputs[i])))
        inputs.guessed += fmt::format("{}\"{}\" of {}", inputs.guessed.empty() ? "" : ", ",
                                      names[i], to_string(dims[i]));
      tensors[i] = draw_input(engine.inputs()[i].dtype, dims[i], ranges[i], *flags[i].seed);
    }
    inputs.tensors.push_back(std::move(*tensors[i]));
  }
  return inputs;
}

}  // namespace anneal
