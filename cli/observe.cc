#include "anneal/cli/observe.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/cli/print.h"
#include "anneal/cli/tensor_summary.h"
#include "anneal/engine/data/elements.h"
#include "anneal/engine/plan.h"

namespace anneal {
namespace {

constexpr int64_t kValuesShown = 3;

bool is_output(const Engine& engine, std::string_view name) {
  const auto outputs = engine.outputs();
  return std::any_of(outputs.begin(), outputs.end(),
                     [&](const Port& port) { return port.name == name; });
}

void add_vanished(const Plan& plan, const NamePattern& pattern, Rows& rows) {
  for (const Decision& decision : plan.decisions) {
    if ((decision.stage != kInside && decision.stage != kGone) ||
        !pattern.matches(decision.subject))
      continue;
    rows.push_back(decision.stage == kInside
                       ? std::vector<std::string>{decision.subject, "-", decision.text,
                                                  "inside this step, without memory of its own"}
                       : std::vector<std::string>{decision.subject, "-", "-", decision.text});
  }
}

}  // namespace

void observe_run(const Engine& engine, ExecutionContext& context, const NamePattern& pattern,
                 TensorFiles* files) {
  Rows rows = {{"tensor", "type", "step", "values"}};
  context.observe([&](const Observed& observed) {
    if (!pattern.matches(observed.name)) return;
    const Tensor tensor = dense_copy(observed.value);
    rows.push_back({std::string(observed.name),
                    fmt::format("{}{}", name(tensor.dtype()), to_text(tensor.dims())),
                    observed.step.empty() ? "before all steps" : std::string(observed.step),
                    summary_text(tensor, kValuesShown)});
    if (files && !is_output(engine, observed.name))
      files->write(std::string(observed.name), tensor.view());
  });
  context.run();
  context.observe({});
  add_vanished(engine.plan(), pattern, rows);
  if (rows.size() == 1)
    fail(Code::kInvalidArgument,
         "--observe matches no tensor of the engine; anneal inspect --plan lists them as slots");
  fmt::print("\n{}", table_text(rows, {false, false, false, false}));
}

}  // namespace anneal
