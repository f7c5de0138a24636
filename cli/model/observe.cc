#include "anneal/cli/model/observe.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/cli/model/inspect_text.h"
#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/print.h"
#include "anneal/cli/output/tensor_summary.h"
#include "anneal/engine/run/debug.h"

namespace anneal {
namespace {

constexpr int64_t kValuesShown = 3;

bool is_output(const Engine& engine, std::string_view name) {
  const auto outputs = engine.outputs();
  return std::any_of(outputs.begin(), outputs.end(),
                     [&](const TensorInfo& port) { return port.name == name; });
}

std::string step_text(const Observation& observed) {
  std::string text = observed.step.empty() ? "before all steps" : std::string(observed.step);
  for (const LoopIteration& loop : observed.iterations)
    text += fmt::format("{} {} of {}", &loop == observed.iterations.data() ? " in iteration" : ",",
                        loop.number, loop.step);
  return text;
}

// "w.iteration-2-0": each iteration's tensor has a file of its own.
std::string file_name(const Observation& observed) {
  std::string name(observed.name);
  for (const LoopIteration& loop : observed.iterations)
    name +=
        fmt::format("{}-{}", &loop == observed.iterations.data() ? ".iteration" : "", loop.number);
  return name;
}

void add_vanished(const ExecutionContext& context, const NamePattern& pattern, Rows& rows) {
  for (const auto& [name, step, why] : plan_facts(context).vanished) {
    if (!pattern.matches(name)) continue;
    rows.push_back(step.empty() ? std::vector<std::string>{name, "-", "-", why}
                                : std::vector<std::string>{name, "-", step,
                                                           "fused into this step, not stored"});
  }
}

}  // namespace

void observe_run(const Engine& engine, ExecutionContext& context, const NamePattern& pattern,
                 TensorFiles* files) {
  Rows rows = {{"tensor", "type", "step", "values"}};
  observe(context, [&](const Observation& observed) {
    if (!pattern.matches(observed.name)) return;
    const Tensor tensor = dense_copy(observed.value);
    rows.push_back({std::string(observed.name),
                    fmt::format("{}{}", to_string(tensor.dtype()), to_string(tensor.dims())),
                    step_text(observed), summary_text(tensor, kValuesShown)});
    if (files && (!observed.iterations.empty() || !is_output(engine, observed.name)))
      files->write(file_name(observed), tensor.view());
  });
  context.run();
  observe(context, {});
  add_vanished(context, pattern, rows);
  if (rows.size() == 1)
    fail(ErrorCode::kInvalidArgument,
         "--observe matches no tensor of the engine; anneal inspect --plan lists them as slots");
  fmt::print("\n{}", table_text(rows, {false, false, false, false}));
}

}  // namespace anneal
