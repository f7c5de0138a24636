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
  const auto records = run_pipeline(graph, default_pipeline(), options.passes, options.after_pass);

  WeightPool weights;
  for (const std::string& target : options.targets) {
    options.progress(fmt::format("choosing kernels for {}", target));
    const auto device = cpu_backend().open(target);
    Plan plan = emit(graph, cpu_backend(), *device, weights);
    std::vector<Decision> decisions;
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
