#include "anneal/engine/builder/builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/core/version.h"
#include "anneal/engine/builder/choose_groups.h"
#include "anneal/engine/builder/emit.h"
#include "anneal/engine/builder/fused_values.h"
#include "anneal/engine/builder/lifetimes.h"
#include "anneal/engine/builder/make_batch_dynamic.h"
#include "anneal/engine/builder/memory_check.h"
#include "anneal/engine/builder/replay/gpu_choices.h"
#include "anneal/engine/builder/replay/recorded_kernels.h"
#include "anneal/engine/builder/state_ports.h"
#include "anneal/engine/builder/target_support.h"
#include "anneal/engine/builder/timing/gpu_bench.h"
#include "anneal/engine/builder/timing/gpu_tuner.h"
#include "anneal/engine/builder/timing/kernel_timer.h"
#include "anneal/engine/builder/timing/plan_code.h"
#include "anneal/engine/builder/timing/timing_card.h"
#include "anneal/engine/plan_check.h"
#include "anneal/engine/symbols.h"
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
    passes.weights_may_change = options.weights_apart;
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

std::string fallbacks_text(const Plan& plan) {
  std::string layers;
  for (const Decision& decision : plan.decisions)
    if (decision.stage == kFallback)
      layers += fmt::format("\n  layer \"{}\": {}", decision.subject, decision.text);
  for (const Plan& body : plan.bodies) layers += fallbacks_text(body);
  return layers;
}

// Kernels of a GPU are chosen for one size of an axis, and the user may not have named any.
// `anneal build` prints what this stage says.
void note_undeclared_sizes(Plan& plan) {
  std::string sizes;
  std::vector<uint32_t> named;
  for (const uint32_t input : plan.inputs)
    for (const Size size : port_shape(plan, input))
      for (const uint32_t symbol : plan.sizes->symbols_in(size)) {
        const auto& [name, bounds] = plan.sizes->symbols()[symbol];
        if (bounds.max != Bounds{}.max || std::ranges::find(named, symbol) != named.end()) continue;
        named.push_back(symbol);
        sizes += fmt::format("{}{} = {}", sizes.empty() ? "" : ", ", name, bounds.opt);
      }
  if (!sizes.empty())
    plan.decisions.push_back({"opt_shapes", plan.name, "kernels are chosen for " + sizes});
}

void refuse_fallbacks(const Plan& plan) {
  const std::string layers = fallbacks_text(plan);
  if (!layers.empty())
    fail(ErrorCode::kUnsupported,
         fmt::format("target {}: some layers would fall back to the CPU, which is not allowed:{}",
                     plan.target, layers));
}

// What times kernels; all null unless times choose kernels.
struct Timers {
  std::unique_ptr<KernelTimer> cpu = {};
  std::unique_ptr<GpuTimingMachine> machine = {};
  std::unique_ptr<GpuTuner> gpu = {};
};
Timers timers_for(const GraphBuildOptions& options, const KernelOptions& kernels) {
  const KernelTiming& timing = options.timing;
  if (!timing.chooses()) return {};
  const int threads = timing_threads(timing);
  const TimingCache known = timing.cache.empty() ? TimingCache() : read_timing_cache(timing.cache);
  Timers timers;
  timers.cpu = std::make_unique<KernelTimer>(
      known, KernelTimer::Options{timing.measure, threads, kernels, timing.seconds});
  timers.machine = std::make_unique<GpuTimingMachine>();
  timers.gpu = std::make_unique<GpuTuner>(
      known,
      GpuTunerOptions{timing.measure, timing.level, timing.seconds, kernels, options.progress},
      *timers.machine);
  return timers;
}

void keep_times(const KernelTiming& timing, const Timers& timers) {
  if (!timers.cpu || timing.cache.empty()) return;
  TimingCache measured = timers.cpu->measured();
  merge(timers.gpu->measured(), measured);
  if (!measured.empty()) add_to_timing_cache(timing.cache, measured);
}

// Below this level fused layers stay fused: timing both forms takes twice as long.
constexpr int kLevelOfGroups = 4;

// Fused layers of a GPU's graph that are faster apart, or were in the recorded plan.
std::vector<Decision> split_groups(Graph& graph, const Target& target, const Timers& timers,
                                   const GraphBuildOptions& options, const Plan* recorded) {
  if (!target.is_cuda) return {};
  if (recorded != nullptr) return repeat_groups(graph, *recorded);
  if (!timers.gpu || options.timing.level < kLevelOfGroups) return {};
  Device& device = *target.devices[0];
  const TimingCard card = open_timing_card(target.name, device);
  return choose_groups(graph, target, {cuda_backend(), device, card.device.get(), card.why_not},
                       *timers.gpu);
}

// Kernels by their times, or those of the recorded plan, and then the code of all.
void finish_gpu_plan(const EngineFile& file, Plan& plan, const Target& target, GpuTuner* tuner,
                     const Plan* recorded) {
  Device& device = *target.devices[0];
  if (recorded != nullptr) {
    take_gpu_choices(*recorded, plan);
  } else if (tuner != nullptr) {
    const TimingCard card = open_timing_card(target.name, device);
    tuner->tune(file, plan, {cuda_backend(), device, card.device.get(), card.why_not});
  }
  const std::span<const std::byte> code =
      recorded != nullptr ? recorded->code : std::span<const std::byte>();
  if (recorded != nullptr || tuner != nullptr) plan.code = code_of_steps(file, plan, device, code);
  plan.code = with_fallback_code(file, plan, device, code);
}

// Written so that NaN is refused.
void check_numbers(const BuildOptions& options) {
  if (options.threads < 0 || options.data_threads < 0)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("threads are {} and data_threads {}: give 0 (one per core) or more",
                     options.threads, options.data_threads));
  if (!(options.precision.max_layer_error >= 0))
    fail(ErrorCode::kInvalidArgument, fmt::format("precision.max_layer_error is {}: give 0 or more",
                                                  options.precision.max_layer_error));
  if (!(options.self_check.most_work >= 0))
    fail(ErrorCode::kInvalidArgument,
         fmt::format("self_check.most_work is {}: give 0 or more", options.self_check.most_work));
  const auto require_precision = [](Precision precision, std::string_view where) {
    if (std::ranges::find(kAllPrecisions, precision) == std::end(kAllPrecisions))
      fail(ErrorCode::kInvalidArgument,
           fmt::format("{} has {}, which is no Precision", where, static_cast<int>(precision)));
  };
  for (const Precision precision : options.precision.types)
    require_precision(precision, "precision.types");
  for (const LayerPrecision& layer : options.precision.layers)
    require_precision(layer.precision, "precision.layers");
  if (options.optimization_level < 0 || options.optimization_level > 5)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("optimization_level is {}: give 0 to 5", options.optimization_level));
  if (!(options.time_seconds >= 0))
    fail(ErrorCode::kInvalidArgument,
         fmt::format("time_seconds is {}: give 0 (no limit) or more", options.time_seconds));
  const TuneOptions& tuning = options.tuning;
  if (!std::isfinite(tuning.budget))
    fail(ErrorCode::kInvalidArgument,
         fmt::format("tuning.budget is {}: give a finite number", tuning.budget));
  if (tuning.most_groups == 0)
    fail(ErrorCode::kInvalidArgument, "tuning.most_groups is 0: give 1 or more");
  const CalibrationOptions& calibration = options.calibration;
  if (calibration.method > RangeMethod::kAuto)
    fail(ErrorCode::kInvalidArgument, "calibration.method is no RangeMethod");
  for (const auto& [choice, name] : {std::pair(calibration.fit_weights, "fit_weights"),
                                     std::pair(calibration.correct_bias, "correct_bias"),
                                     std::pair(calibration.equalize, "equalize")})
    if (choice > FitChoice::kAuto)
      fail(ErrorCode::kInvalidArgument, fmt::format("calibration.{} is no FitChoice", name));
  if (!(tuning.seconds >= 0))
    fail(ErrorCode::kInvalidArgument,
         fmt::format("tuning.seconds is {}: give 0 (no limit) or more", tuning.seconds));
}

}  // namespace

KernelOptions kernel_options(const GraphBuildOptions& options) {
  for (const std::string& name : options.skip_kernels)
    if (!find_kernel(cpu_backend(), name) && !find_kernel(cuda_backend(), name))
      fail(ErrorCode::kInvalidArgument,
           fmt::format(
               "there is no kernel \"{}\" to skip; anneal inspect ENGINE shows which ones an "
               "engine runs",
               name));
  KernelOptions kernels{.exact = options.passes.exact, .skip = options.skip_kernels};
  if (options.tf32) return kernels;
  for (const KernelFamily family : cuda_backend().families)
    for (const KernelEntry& entry : family())
      if (entry.name.ends_with(".tf32")) kernels.skip.emplace_back(entry.name);
  return kernels;
}

GraphBuildOptions graph_options(const BuildOptions& options) {
  check_numbers(options);
  GraphBuildOptions result;
  result.targets = options.targets;
  result.passes.skip = options.skip_passes;
  result.passes.only = options.only_passes;
  result.passes.exact = options.exact;
  result.passes.threads = options.threads;
  result.passes.precision = resolved_precision(options);
  result.max_memory = options.max_memory;
  result.states = options.states;
  result.skip_kernels = options.skip_kernels;
  result.tf32 = options.tf32;
  result.allow_fallback = options.allow_fallback;
  result.weights_apart = !options.weights_path.empty();
  result.timing = {options.time_kernels, options.timing_cache, options.threads,
                   options.optimization_level, options.time_seconds};
  if (std::ranges::count(options.targets, kReferenceTarget) == 0) return result;
  if (options.targets.size() != 1)
    fail(ErrorCode::kInvalidArgument,
         "the target \"reference\" is alone: build an engine of its own for it");
  result.reference = true;
  result.targets = {"cpu"};
  result.passes = {};
  result.skip_kernels.clear();
  return result;
}

EngineFile build(Graph graph, const GraphBuildOptions& options) {
  if (options.targets.empty()) fail(ErrorCode::kInvalidArgument, "no target to build for");
  for (size_t i = 1; i < options.targets.size(); ++i)
    if (std::find(options.targets.begin(), options.targets.begin() + static_cast<ptrdiff_t>(i),
                  options.targets[i]) != options.targets.begin() + static_cast<ptrdiff_t>(i))
      fail(ErrorCode::kInvalidArgument,
           fmt::format("target {} is given twice", options.targets[i]));
  check(options.recorded.empty() || options.recorded.size() == options.targets.size(),
        "a recorded plan for each target");
  const KernelOptions kernels = kernel_options(options);
  const Timers timers = timers_for(options, kernels);
  EngineFile file;
  file.producer = fmt::format("anneal {}", version());
  file.model_name = graph.name;
  check_precision(options.passes, graph);
  check_tensor_sizes(graph, options.max_memory);
  const std::vector<PortPair> states = state_ports(graph, options.states);
  const std::vector<NamedValue> values = named_values(graph);
  options.progress("optimizing");
  const Backend& cpu = options.reference ? cpu_reference_backend() : cpu_backend();
  std::vector<Target> targets;
  for (const std::string& name : options.targets)
    targets.push_back(open_target(name, cpu, kernels));
  const std::vector<TargetGraph> graphs = optimize(std::move(graph), options, targets);
  if (options.reference_kernels)
    for (Target& target : targets) target = open_target(target.name, cpu_reference_backend());
  for (Target& target : targets)
    for (Place& place : target.places) {
      place.general_first = options.without.kernel_choice;
      place.row_major = options.without.layouts;
    }

  WeightPool weights(options.weights_apart ? EqualWeights::kOfOneName : EqualWeights::kAll);
  for (size_t i = 0; i < targets.size(); ++i) {
    const Target& target = targets[i];
    options.progress(fmt::format("choosing kernels for {}", target.name));
    const TargetGraph& optimized = *find(graphs, target);
    std::optional<RecordedKernels> recorded;
    if (!options.recorded.empty()) recorded.emplace(options.recorded[i]);
    const bool code_follows = target.is_cuda && (recorded || timers.gpu);
    Graph apart;  // of a target that has layers apart
    std::vector<Decision> of_groups;
    if (code_follows) {
      apart = optimized.graph.clone();
      of_groups =
          split_groups(apart, target, timers, options, recorded ? &options.recorded[i] : nullptr);
    }
    Plan plan = emit(of_groups.empty() ? optimized.graph : apart, target.places, weights,
                     {recorded ? &*recorded : static_cast<KernelChooser*>(timers.cpu.get()),
                      !code_follows, options.without.placement, states});
    std::vector<Decision> decisions;
    decisions.reserve(optimized.records.size());
    for (const PassRecord& record : optimized.records)
      decisions.push_back({std::string(record.pass), record.subject, record.text, record.refused,
                           record.saved.launches, record.saved.bytes});
    std::ranges::move(of_groups, std::back_inserter(decisions));
    plan.decisions.insert(plan.decisions.begin(), decisions.begin(), decisions.end());
    record_vanished(values, plan);
    if (target.is_cuda) note_undeclared_sizes(plan);
    plan.is_exact = kernels.exact;
    if (!options.allow_fallback) refuse_fallbacks(plan);
    file.plans.push_back(std::move(plan));
  }
  file.weights = weights.take();
  file.weights_apart = options.weights_apart;
  for (size_t i = 0; i < file.plans.size(); ++i)
    if (targets[i].is_cuda)
      finish_gpu_plan(file, file.plans[i], targets[i], timers.gpu.get(),
                      options.recorded.empty() ? nullptr : &options.recorded[i]);
  keep_times(options.timing, timers);
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
    find_updated_ports(plan);
    plan.states = states;
  }
  return file;
}

}  // namespace anneal
