#include "anneal/engine/compare/drawn_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "anneal/core/refuse.h"
#include "anneal/engine/builder/inputs/input_trials.h"
#include "anneal/engine/run/make_engine.h"

namespace anneal {

std::vector<Tensor> drawn_tensors(const Engine& engine, std::span<const SampleTensor> given) {
  const std::span<const TensorInfo> ports = engine.inputs();
  std::vector<std::optional<Tensor>> tensors(ports.size());
  for (const SampleTensor& each : given) {
    const auto port = std::ranges::find(ports, each.input, &TensorInfo::name);
    if (port == ports.end()) {
      std::string names;
      for (const TensorInfo& known : ports) names += (names.empty() ? "" : ", ") + known.name;
      refuse_argument(fmt::format("there is no input \"{}\"; there are {}", each.input, names));
    }
    auto& place = tensors[static_cast<size_t>(port - ports.begin())];
    if (place) refuse_argument(fmt::format("input \"{}\" is given twice", each.input));
    place = each.tensor;
  }
  std::vector<TrialInput> inputs;
  std::vector<std::optional<Dims>> dims_given(ports.size());
  for (size_t i = 0; i < ports.size(); ++i) {
    if (!tensors[i]) tensors[i] = ports[i].default_value;
    if (tensors[i]) dims_given[i] = tensors[i]->dims();
    inputs.push_back({tensors[i], i});
  }
  const auto is_known = [](const auto& each) { return each.has_value(); };
  const Plan& plan = plan_of(engine, profile_for(engine, dims_given));
  const bool is_tried = !std::ranges::all_of(tensors, is_known) && may_refuse_values(plan);
  InputTrials trials(engine, std::move(inputs));
  TrialRun run;
  if (is_tried) run = [&](std::span<const Dims> tried) { return trials.run(tried); };
  std::vector<Dims> dims;
  if (std::ranges::all_of(dims_given, is_known))
    for (const auto& each : dims_given) dims.push_back(*each);
  else
    dims = choose_input_dims(plan, weights_of(engine), SizeChoice::kOptimal, dims_given, run);
  return trials.draw(dims);
}

}  // namespace anneal
