#include "anneal/engine/builder/inputs/choose_inputs.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/fail.h"
#include "anneal/engine/builder/inputs/input_trials.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/engine/symbols.h"

namespace anneal {
namespace {

// More is hardly meant: a profile with a wild opt size, or a damaged one.
constexpr double kLargestGuessedInput = 1 << 30;

void check_guessed_size(const TensorInfo& port, const Dims& dims) {
  double bytes = static_cast<double>(size_of(port.dtype));
  for (const int64_t dim : dims) bytes *= static_cast<double>(dim);
  if (bytes > kLargestGuessedInput)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("input \"{}\" of the sizes that the engine was optimized for, {}, would have "
                     "{:.1f} GiB: give its sizes with --shapes",
                     port.name, to_string(dims), bytes / kLargestGuessedInput));
}

// Without those that have an open size.
std::vector<std::optional<Dims>> whole_dims(std::vector<std::optional<Dims>> given) {
  for (auto& dims : given)
    if (dims && std::ranges::count(*dims, -1) > 0) dims.reset();
  return given;
}

}  // namespace

ChosenInputs choose_inputs(const Engine& engine, std::span<const WantedInput> wanted,
                           std::optional<size_t> profile) {
  std::vector<TrialInput> trial_inputs;
  std::vector<std::optional<Dims>> given;
  for (const WantedInput& input : wanted) {
    trial_inputs.push_back({input.tensor, input.seed});
    given.push_back(input.tensor ? input.tensor->dims() : input.dims);
  }
  const std::vector<std::optional<Dims>> whole = whole_dims(given);
  if (!profile) profile = profile_for(engine, whole);
  if (*profile >= profile_count(engine))
    fail(ErrorCode::kInvalidArgument,
         fmt::format("there is no profile {}: this engine has {}, counted from 0", *profile,
                     profile_count(engine)));
  const Plan& plan = plan_of(engine, *profile);
  const bool is_drawn = !std::ranges::all_of(
      wanted, [](const WantedInput& input) { return input.tensor.has_value(); });
  const bool is_tried = is_drawn && may_refuse_values(plan);
  InputTrials trials(engine, std::move(trial_inputs));
  std::vector<Dims> dims;
  if (std::ranges::all_of(whole, [](const auto& one) { return one.has_value(); })) {
    for (const auto& one : whole) dims.push_back(*one);
    if (is_tried) trials.run(dims);
  } else {
    TrialRun run;
    if (is_tried) run = [&](std::span<const Dims> tried) { return trials.run(tried); };
    dims = choose_input_dims(plan, weights_of(engine), SizeChoice::kOptimal, given, run);
  }
  ChosenInputs chosen;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!whole[i]) check_guessed_size(engine.inputs()[i], dims[i]);
    chosen.is_guessed.push_back(!whole[i] && !known(port_shape(plan, plan.inputs[i])));
  }
  chosen.tensors = trials.draw(dims);
  chosen.runs_tried = trials.runs();
  return chosen;
}

}  // namespace anneal
