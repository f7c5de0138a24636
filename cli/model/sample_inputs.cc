#include "anneal/cli/model/sample_inputs.h"
#include "anneal/engine/run/engine_internals.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "anneal/cli/flags/shape_flags.h"
#include "anneal/cli/model/open_engine.h"
#include "anneal/engine/data/made_samples.h"
#include "anneal/engine/data/sample_file.h"
#include "anneal/engine/plan.h"

namespace anneal {
namespace {

// More is hardly meant: a profile with a wild opt size, or a damaged one.
constexpr double kLargestGuessedInput = 1 << 30;

using SymbolValues = std::vector<std::optional<int64_t>>;

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

void learn_symbols(const Plan& plan, size_t input, const Dims& dims, SymbolValues& values) {
  const Shape& shape = plan.slots[plan.inputs[input]].type.shape;
  for (int axis = 0; axis < std::min(shape.rank(), dims.rank()); ++axis)
    if (const auto symbol = plan.sizes->symbol_index(shape[axis])) values[*symbol] = dims[axis];
}

bool depends_on(const Shape& shape, const std::vector<bool>& symbols, const SizeTable& sizes) {
  return std::any_of(shape.begin(), shape.end(), [&](Size size) {
    const auto found = sizes.symbols_in(size);
    return std::any_of(found.begin(), found.end(), [&](uint32_t one) { return symbols[one]; });
  });
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

}  // namespace

SampleInputs sample_inputs(const Engine& engine, const std::vector<std::string>& input_flags,
                           const std::string& shapes_flag, std::string_view flag) {
  const Plan& plan = plan_of(engine);
  const auto names = input_names(engine);
  const auto flags = flag_per_input(names, input_flags);
  const auto shapes = parse_shapes(shapes_flag);
  check_names(shapes, names, flag);

  SymbolValues values(plan.sizes->symbols().size());
  std::vector<std::optional<Tensor>> tensors(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    const TensorInfo& port = engine.inputs()[i];
    const auto given = shape_for(shapes, names[i], names.size());
    if (!flags[i].file.empty()) {
      const bool open = std::find(port.dims.begin(), port.dims.end(), -1) != port.dims.end();
      const RawFormat raw{port.dtype, given  ? given
                                      : open ? std::nullopt
                                             : std::optional(port.dims)};
      tensors[i] = read_sample(flags[i].file, raw);
      if (given && *given != tensors[i]->dims())
        fail(Code::kInvalidArgument,
             fmt::format("{} says {} for input \"{}\", but {} holds {}", flag, to_string(*given),
                         names[i], flags[i].file, to_string(tensors[i]->dims())));
      learn_symbols(plan, i, tensors[i]->dims(), values);
    } else if (given) {
      learn_symbols(plan, i, *given, values);
    }
  }
  if (plan.batch_split && plan.batch_split->is_fixed)
    values[plan.batch_split->symbol] = plan.sizes->symbols()[plan.batch_split->symbol].bounds.max;
  std::vector<bool> is_guessed(values.size());
  for (size_t symbol = 0; symbol < values.size(); ++symbol) {
    if (values[symbol]) continue;
    values[symbol] = plan.sizes->symbols()[symbol].bounds.opt;
    is_guessed[symbol] = true;
  }

  SampleInputs inputs;
  for (size_t i = 0; i < names.size(); ++i) {
    if (!tensors[i]) {
      const auto given = shape_for(shapes, names[i], names.size());
      const Shape& shape = plan.slots[plan.inputs[i]].type.shape;
      const Dims dims = given ? *given : plan.sizes->evaluate(shape, values);
      if (!given) check_guessed_size(engine.inputs()[i], dims);
      if (!given && depends_on(shape, is_guessed, *plan.sizes))
        inputs.guessed += fmt::format("{}\"{}\" of {}", inputs.guessed.empty() ? "" : ", ",
                                      names[i], to_string(dims));
      tensors[i] = random_sample(engine.inputs()[i].dtype, dims, *flags[i].seed);
    }
    inputs.tensors.push_back(std::move(*tensors[i]));
  }
  return inputs;
}

}  // namespace anneal
