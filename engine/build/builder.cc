#include "anneal/engine/build/builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/version.h"
#include "anneal/engine/build/emit.h"
#include "anneal/engine/build/vanished.h"
#include "anneal/engine/plan_check.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/kernels/cuda/backend.h"

namespace anneal {

namespace {

struct Optimized {
  Graph graph;
  std::vector<PassRecord> records;
};

bool has_half(const Graph& graph) {
  for (const LayerId id : graph.order())
    for (const ValueId output : graph.layer(id).outputs) {
      const DataType dtype = graph.value(output).type().dtype;
      if (dtype == DataType::kF16 || dtype == DataType::kBF16) return true;
    }
  return std::any_of(graph.bodies().begin(), graph.bodies().end(), has_half);
}

// One for all targets; or, of a model with half precision for both kinds, one for CPUs, which
// compute in f32, and one for GPUs, which compute in half precision.
std::vector<Optimized> optimize(Graph graph, const BuildOptions& options) {
  const auto passes = options.reference ? std::span<const Pass>() : default_pipeline();
  const auto is_cuda = [](const std::string& target) { return is_cuda_target(target); };
  const bool any_cuda = std::any_of(options.targets.begin(), options.targets.end(), is_cuda);
  const bool all_cuda = std::all_of(options.targets.begin(), options.targets.end(), is_cuda);
  std::vector<Optimized> result;
  if (any_cuda && !all_cuda && has_half(graph)) result.push_back({graph.clone(), {}});
  result.push_back({std::move(graph), {}});
  for (size_t i = 0; i < result.size(); ++i) {
    PassOptions pass_options = options.passes;
    if (result.size() > 1 ? i == 1 : any_cuda) pass_options.half_is_native = true;
    result[i].records = run_pipeline(result[i].graph, passes, pass_options, options.after_pass);
  }
  return result;
}

void refuse_fallbacks(const Plan& plan) {
  std::string layers;
  for (const Decision& decision : plan.decisions)
    if (decision.stage == kFallback)
      layers += fmt::format("\n  layer \"{}\": {}", decision.subject, decision.text);
  if (!layers.empty())
    fail(Code::kUnsupported,
         fmt::format("target {} does not run everything itself, and falling back to the CPU is not "
                     "allowed:{}",
                     plan.target, layers));
}

}  // namespace

EngineFile build(Graph graph, const BuildOptions& options) {
  if (options.targets.empty()) fail(Code::kInvalidArgument, "no target to build for");
  for (size_t i = 1; i < options.targets.size(); ++i)
    if (std::find(options.targets.begin(), options.targets.begin() + static_cast<ptrdiff_t>(i),
                  options.targets[i]) != options.targets.begin() + static_cast<ptrdiff_t>(i))
      fail(Code::kInvalidArgument, fmt::format("target {} is given twice", options.targets[i]));
  EngineFile file;
  file.producer = fmt::format("anneal {}", version());
  file.model_name = graph.name;
  const std::vector<NamedValue> values = named_values(graph);
  options.progress("optimizing");
  const std::vector<Optimized> graphs = optimize(std::move(graph), options);
  const Backend& cpu = options.reference ? cpu_reference_backend() : cpu_backend();

  WeightPool weights;
  for (const std::string& target : options.targets) {
    options.progress(fmt::format("choosing kernels for {}", target));
    const bool is_cuda = is_cuda_target(target);
    if (!is_cuda && !target.starts_with("cpu"))
      fail(
          Code::kInvalidArgument,
          fmt::format("\"{}\" is no target: use cpu, cpu:avx2 and the like, sm_80 and the like, or "
                      "emulated",
                      target));
    const Optimized& optimized = graphs.size() > 1 && is_cuda ? graphs[1] : graphs[0];
    const auto host = cpu.open(is_cuda ? "cpu" : target);
    const auto card = is_cuda ? cuda_backend().open(target) : nullptr;
    std::vector<Place> places;
    if (card) places.push_back({&cuda_backend(), card.get()});
    places.push_back({&cpu, host.get()});
    Plan plan = emit(optimized.graph, places, weights);
    std::vector<Decision> decisions;
    decisions.reserve(optimized.records.size());
    for (const PassRecord& record : optimized.records)
      decisions.push_back({std::string(record.pass), record.subject, record.text, record.refused,
                           record.saved.launches, record.saved.bytes});
    plan.decisions.insert(plan.decisions.begin(), decisions.begin(), decisions.end());
    record_vanished(values, plan);
    if (!options.allow_fallback) refuse_fallbacks(plan);
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
