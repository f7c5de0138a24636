#include "anneal/engine/build/builder.h"

#include <fmt/format.h>

#include "anneal/core/version.h"
#include "anneal/engine/build/emit.h"
#include "anneal/engine/build/vanished.h"
#include "anneal/engine/plan_check.h"
#include "anneal/kernels/cpu/backend.h"

namespace anneal {

EngineFile build(Graph graph, const BuildOptions& options) {
  if (options.targets.empty()) fail(Code::kInvalidArgument, "no target to build for");
  EngineFile file;
  file.producer = fmt::format("anneal {}", version());
  file.model_name = graph.name;
  const std::vector<NamedValue> values = named_values(graph);
  options.progress("optimizing");
  const auto passes = options.reference ? std::span<const Pass>() : default_pipeline();
  const auto records = run_pipeline(graph, passes, options.passes, options.after_pass);
  const Backend& backend = options.reference ? cpu_reference_backend() : cpu_backend();

  WeightPool weights;
  for (const std::string& target : options.targets) {
    options.progress(fmt::format("choosing kernels for {}", target));
    const auto device = backend.open(target);
    Plan plan = emit(graph, backend, *device, weights);
    std::vector<Decision> decisions;
    decisions.reserve(records.size());
    for (const PassRecord& record : records)
      decisions.push_back({std::string(record.pass), record.subject, record.text});
    plan.decisions.insert(plan.decisions.begin(), decisions.begin(), decisions.end());
    record_vanished(values, plan);
    file.plans.push_back(std::move(plan));
  }
  file.weights = weights.take();
  for (const Plan& plan : file.plans) {
    try {
      check_plan(plan, file.weights);
    } catch (const Error& error) {
      fail(Code::kInternal,
           fmt::format("the plan made for {} is wrong: {}", plan.target, error.what()));
    }
  }
  return file;
}

}  // namespace anneal
