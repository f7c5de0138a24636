#include "anneal/engine/build/builder.h"

#include <fmt/format.h>

#include "anneal/core/version.h"
#include "anneal/engine/build/emit.h"
#include "anneal/engine/build/vanished.h"
#include "anneal/engine/plan_check.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/kernels/cuda/backend.h"

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
  const Backend& cpu = options.reference ? cpu_reference_backend() : cpu_backend();

  WeightPool weights;
  for (const std::string& target : options.targets) {
    options.progress(fmt::format("choosing kernels for {}", target));
    const bool is_cuda = is_cuda_target(target);
    const auto host = cpu.open(is_cuda ? "cpu" : target);
    const auto card = is_cuda ? cuda_backend().open(target) : nullptr;
    std::vector<Place> places;
    if (card) places.push_back({&cuda_backend(), card.get()});
    places.push_back({&cpu, host.get()});
    Plan plan = emit(graph, places, weights);
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
