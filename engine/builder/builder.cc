#include "anneal/engine/builder/builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/fail.h"
#include "anneal/core/parallel.h"
#include "anneal/core/version.h"
#include "anneal/engine/builder/emit.h"
#include "anneal/engine/builder/fused_values.h"
#include "anneal/engine/builder/kernel_timer.h"
#include "anneal/engine/builder/make_batch_dynamic.h"
#include "anneal/engine/builder/memory_check.h"
#include "anneal/engine/builder/target_support.h"
#include "anneal/engine/plan_check.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/kernels/cuda/backend.h"
#include "anneal/optimizer/pipeline/pipeline.h"
#include "anneal/optimizer/precision/quantizable.h"

namespace anneal {

namespace {

// The graph as targets that compute in the same types want it.
struct TargetGraph {
  const Target* first;  // of them
  Graph graph;
  std::vector<PassRecord> records;

  bool is_for(const Target& target) const {
    return target.is_cuda == first->is_cuda && target.native == first->native;
  }
};
const TargetGraph* find(const std::vector<TargetGraph>& graphs, const Target& target) {
  for (const TargetGraph& each : graphs)
    if (each.is_for(target)) return &each;
  return nullptr;
}

// One graph for each kind of target: GPUs compute in f16 and bf16, some CPUs in bf16.
// Takes the graph, so that the last kind frees the weights that passes replace as it goes.
std::vector<TargetGraph> optimize(Graph graph, const GraphBuildOptions& options,
                                  const std::vector<Target>& targets) {
  std::vector<TargetGraph> result;
  for (const Target& first : targets) {
    if (find(result, first) != nullptr) continue;
    TargetGraph& made = result.emplace_back(TargetGraph{&first, Graph(), {}});
    std::vector<const Target*> kind;
    std::string names;
    for (const Target& target : targets)
      if (made.is_for(target)) {
        kind.push_back(&target);
        names += (names.empty() ? "" : ",") + target.name;
      }
    const bool is_last = std::ranges::all_of(
        targets, [&](const Target& target) { return find(result, target) != nullptr; });
    made.graph = is_last ? std::move(graph) : graph.clone();
    PassOptions passes = options.passes;
    passes.native = first.native;
    passes.max_memory = options.max_memory;
    passes.ask_targets = ask_targets(std::move(kind));
    AfterPass after_pass;
    if (options.after_pass)
      after_pass = [&](const PassEvent& event) { options.after_pass(event, names); };
    made.records =
        run_pipeline(made.graph, options.reference ? std::span<const Pass>() : default_pipeline(),
                     passes, after_pass);
  }
  return result;
}

KernelOptions kernel_options(const GraphBuildOptions& options) {
  for (const std::string& name : options.skip_kernels)
    if (!find_kernel(cpu_backend(), name) && !find_kernel(cuda_backend(), name))
      fail(ErrorCode::kInvalidArgument,
           fmt::format(
               "there is no kernel \"{}\" to skip; anneal inspect ENGINE shows which ones an "
               "engine runs",
               name));
  return {.exact = options.passes.exact, .skip = options.skip_kernels};
}

void refuse_fallbacks(const Plan& plan) {
  std::string layers;
  for (const Decision& decision : plan.decisions)
    if (decision.stage == kFallback)
      layers += fmt::format("\n  layer \"{}\": {}", decision.subject, decision.text);
  if (!layers.empty())
    fail(ErrorCode::kUnsupported,
         fmt::format("target {} does not run everything itself, and falling back to the CPU is not "
                     "allowed:{}",
                     plan.target, layers));
}

// Null unless times choose kernels.
std::unique_ptr<KernelTimer> timer_for(const KernelTiming& timing, const KernelOptions& kernels) {
  if (!timing.measure && timing.cache.empty()) return nullptr;
  const int threads = timing.threads > 0 ? timing.threads : hardware_threads();
  if (threads > largest_team())
    fail(ErrorCode::kInvalidArgument,
         fmt::format("kernels cannot be timed with {} threads: this process has {}", threads,
                     largest_team()));
  TimingCache known = timing.cache.empty() ? TimingCache() : read_timing_cache(timing.cache);
  return std::make_unique<KernelTimer>(std::move(known),
                                       KernelTimer::Options{timing.measure, threads, kernels});
}

}  // namespace

GraphBuildOptions graph_options(const BuildOptions& options) {
  if (options.threads < 0 || options.data_threads < 0)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("threads are {} and data_threads {}: give 0 (one per core) or more",
                     options.threads, options.data_threads));
  GraphBuildOptions result;
  result.targets = options.targets;
  result.passes.skip = options.skip_passes;
  result.passes.only = options.only_passes;
  result.passes.exact = options.exact;
  result.passes.threads = options.threads;
  result.passes.precision = options.precision;
  result.max_memory = options.max_memory;
  result.skip_kernels = options.skip_kernels;
  result.allow_fallback = options.allow_fallback;
  result.timing = {options.time_kernels, options.timing_cache, options.threads};
  return result;
}

EngineFile build(Graph graph, const GraphBuildOptions& options) {
  if (options.targets.empty()) fail(ErrorCode::kInvalidArgument, "no target to build for");
  for (size_t i = 1; i < options.targets.size(); ++i)
    if (std::find(options.targets.begin(), options.targets.begin() + static_cast<ptrdiff_t>(i),
                  options.targets[i]) != options.targets.begin() + static_cast<ptrdiff_t>(i))
      fail(ErrorCode::kInvalidArgument,
           fmt::format("target {} is given twice", options.targets[i]));
  const KernelOptions kernels = kernel_options(options);
  const std::unique_ptr<KernelTimer> timer = timer_for(options.timing, kernels);
  EngineFile file;
  file.producer = fmt::format("anneal {}", version());
  file.model_name = graph.name;
  check_precision(options.passes, graph);
  check_tensor_sizes(graph, options.max_memory);
  const std::vector<NamedValue> values = named_values(graph);
  options.progress("optimizing");
  const Backend& cpu = options.reference ? cpu_reference_backend() : cpu_backend();
  std::vector<Target> targets;
  for (const std::string& name : options.targets)
    targets.push_back(open_target(name, cpu, kernels));
  const std::vector<TargetGraph> graphs = optimize(std::move(graph), options, targets);
  if (options.reference_kernels)
    for (Target& target : targets) target = open_target(target.name, cpu_reference_backend());

  WeightPool weights;
  for (const Target& target : targets) {
    options.progress(fmt::format("choosing kernels for {}", target.name));
    const TargetGraph& optimized = *find(graphs, target);
    Plan plan = emit(optimized.graph, target.places, weights, timer.get());
    if (timer && target.is_cuda)
      plan.decisions.push_back(
          {std::string(kTiming), plan.name,
           fmt::format("kernels for {} are not timed, only the CPU's", target.name), true});
    std::vector<Decision> decisions;
    decisions.reserve(optimized.records.size());
    for (const PassRecord& record : optimized.records)
      decisions.push_back({std::string(record.pass), record.subject, record.text, record.refused,
                           record.saved.launches, record.saved.bytes});
    plan.decisions.insert(plan.decisions.begin(), decisions.begin(), decisions.end());
    record_vanished(values, plan);
    plan.is_exact = kernels.exact;
    if (!options.allow_fallback) refuse_fallbacks(plan);
    file.plans.push_back(std::move(plan));
  }
  if (timer && !options.timing.cache.empty() && !timer->measured().empty())
    add_to_timing_cache(options.timing.cache, timer->measured());
  file.weights = weights.take();
  for (const Plan& plan : file.plans) {
    check_arena_sizes(plan);
    try {
      check_plan(plan, file.weights);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInvalidArgument) throw;  // sizes that no memory holds
      fail(ErrorCode::kInternal,
           fmt::format("the plan made for {} is wrong: {}", plan.target, error.what()));
    }
  }
  for (Plan& plan : file.plans) {
    check_plan_memory(plan, file.weights, options.max_memory);
    decide_batch_split(plan, file);
  }
  return file;
}

}  // namespace anneal
