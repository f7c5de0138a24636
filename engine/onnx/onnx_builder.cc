#include "anneal/engine/onnx/onnx_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/core/milliseconds.h"
#include "anneal/core/parallel.h"
#include "anneal/engine/builder/checked_build.h"
#include "anneal/engine/onnx/build_progress.h"
#include "anneal/engine/onnx/dumped_build.h"
#include "anneal/engine/onnx/import_model.h"
#include "anneal/engine/onnx/pass_log.h"
#include "anneal/engine/run/memory/activation_memory.h"
#include "anneal/engine/run/memory/bound_plan.h"
#include "anneal/engine/run/pack_weights.h"
#include "anneal/engine/tune/calibration/calibrate.h"
#include "anneal/engine/tune/search/tune.h"

namespace anneal {
namespace {

using Clock = std::chrono::steady_clock;

// Of the work, the share that calibration takes at most.
constexpr double kCalibrated = 0.7;

// 0: the sizes to optimize for do not go together.
uint64_t run_bytes_of(const Plan& plan, std::span<const Tensor> weights) {
  try {
    const ActivationMemory memory = activation_memory(plan, weights);
    return memory.arena_bytes + memory.port_bytes;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    return 0;
  }
}

BuildPlan plan_report(const Plan& plan, std::span<const Tensor> weights) {
  BuildPlan result{.target = plan.target,
                   .steps = {},
                   .decisions = {},
                   .fallbacks = {},
                   .gpu_steps = 0,
                   .copy_steps = 0,
                   .arena_bytes = fixed_arena_bytes(plan, weights),
                   .code_bytes = plan.code.size(),
                   .run_bytes = run_bytes_of(plan, weights)};
  for (const Step& step : plan.steps) {
    result.steps.push_back(
        {step.name, std::string(to_string(step.op)), step.kernel, plan.devices.at(step.device)});
    if (step.kernel == kTransfer)
      ++result.copy_steps;
    else if (step.device + 1u < plan.devices.size())
      ++result.gpu_steps;
  }
  for (const Decision& decision : plan.decisions) {
    const BuildDecision& made =
        result.decisions.emplace_back(decision.stage, decision.subject, decision.text);
    if (decision.stage == kFallback) result.fallbacks.push_back(made);
  }
  return result;
}

// The first samples as the self-check takes them; empty if one lacks an input.
std::vector<std::vector<Tensor>> first_samples(const Graph& model, const Dataset& samples) {
  std::vector<std::vector<Tensor>> first;
  const auto most = std::min<int64_t>(samples.size(), kMostCheckedSamples);
  for (int64_t i = 0; i < most; ++i) {
    const std::vector<SampleTensor> sample = samples.read(i);
    std::vector<Tensor>& inputs = first.emplace_back();
    for (const ValueId input : model.inputs()) {
      const auto found = std::ranges::find(sample, model.value(input).name, &SampleTensor::input);
      const auto& default_value = model.value(input).default_value;
      if (found == sample.end() && !default_value) return {};
      inputs.push_back(found != sample.end() ? found->tensor : *default_value);
    }
  }
  return first;
}

// Takes ranges and inputs for the self-check from options.calibration.samples.
void calibrate_for(const Graph& model, BuildOptions& options, BuildProgress& progress,
                   BuildReport& report) {
  const std::shared_ptr<const Dataset>& samples = options.calibration.samples;
  if (!samples && !options.precision.ranges && options.precision.allows(Precision::kI8))
    report.warnings.emplace_back(
        "int8 is allowed, but no layer of f32 can use it without ranges: set calibration.samples "
        "or precision.ranges");
  if (!samples || !options.precision.reduces()) return;
  if (!options.precision.ranges) {
    BuildOptions calibrating = options;
    calibrating.progress = progress.part(kCalibrated);
    Calibration found = calibrate(model, samples, calibrating);
    options.precision.ranges = std::move(found.table);
    report.warnings = std::move(found.warnings);
  }
  if (options.self_check.samples.empty())
    options.self_check.samples = first_samples(model, *samples);
}

// An application's samples for the self-check.
void check_samples(const Graph& model, const std::vector<std::vector<Tensor>>& samples) {
  for (const std::vector<Tensor>& sample : samples) {
    if (sample.size() != model.inputs().size())
      fail(ErrorCode::kInvalidArgument,
           fmt::format("a sample of self_check has {} tensors, the model has {} inputs",
                       sample.size(), model.inputs().size()));
    for (size_t i = 0; i < sample.size(); ++i) {
      const Value& input = model.value(model.inputs()[i]);
      const Type& type = input.type();
      if (sample[i].dtype() != type.dtype || sample[i].dims().rank() != type.shape.rank())
        fail(ErrorCode::kInvalidArgument,
             fmt::format("a sample of self_check has {}{} for input \"{}\", which is {} of rank {}",
                         to_string(sample[i].dtype()), to_string(sample[i].dims()), input.name,
                         to_string(type.dtype), type.shape.rank()));
    }
  }
}

BuiltEngine build_from(const OnnxModel& model, BuildOptions options, const GraphDumps& dumps) {
  BuiltEngine result;
  BuildReport& report = result.report;
  BuildProgress progress(options.progress);
  const auto start = Clock::now();
  progress.begin("importing the model");
  ImportResult imported = import_model(model, options);
  report.import_milliseconds = milliseconds_since(start);
  report.imported_layers = imported.graph.layer_count();
  const auto build_start = Clock::now();
  EngineFile file = with_context(
      [&] { return name_of(model); },
      [&] {
        check_samples(imported.graph, options.self_check.samples);
        calibrate_for(imported.graph, options, progress, report);
        GraphBuildOptions building = graph_options(options);
        PassLog log(dumps, imported.graph, building.passes, report.passes);
        building.progress = [&](std::string_view what) { progress.begin(what); };
        building.before_rebuild = [&] { log.begin_again(); };
        building.after_pass = [&](const PassEvent& event, std::string_view targets) {
          progress.begin(event.pass.name);
          log.add(event, targets);
        };
        CheckedBuild made = build_checked(std::move(imported.graph), building, options.self_check);
        log.finish();
        report.self_check = std::move(made.check);
        return std::move(made.file);
      });
  if (options.pack_weights) {
    progress.begin("packing weights");
    ThreadTeam team(options.threads > 0 ? options.threads : hardware_threads());
    pack_weights(file, team);
  }
  result.bytes = save(file);
  report.build_milliseconds = milliseconds_since(build_start);
  for (const Plan& plan : file.plans) report.plans.push_back(plan_report(plan, file.weights));
  for (const Tensor& weight : file.weights) report.weight_bytes += weight.bytes().size();
  report.engine_bytes = result.bytes.size();
  progress.end();
  return result;
}

TuneResult tune_from(const OnnxModel& model, const std::shared_ptr<const Dataset>& samples,
                     const std::shared_ptr<const Metric>& metric, const BuildOptions& options) {
  require_samples(samples);
  if (options.tuning.seconds < 0)
    fail(ErrorCode::kInvalidArgument, "tuning.seconds is negative: give 0 for no limit");
  if (!options.precision.layers.empty())
    fail(ErrorCode::kInvalidArgument,
         "tune() chooses the precision of each layer: leave precision.layers empty");
  const Graph graph = import_model(model, options).graph;
  return with_context(
      [&] { return name_of(model); },
      [&] {
        TuneResult tuned = tune(
            graph,
            split_samples(samples, options.tuning.calibrate_samples, options.tuning.search_samples),
            metric, options);
        BuildProgress(options.progress).end();
        return tuned;
      });
}

}  // namespace

BuiltEngine build_engine(const OnnxModel& model, const BuildOptions& options,
                         const GraphDumps& dumps) {
  return at_entry([&] { return build_from(model, options, dumps); });
}

BuiltEngine build_engine(const OnnxModel& model, const BuildOptions& options) {
  return build_engine(model, options, GraphDumps{});
}

BuildReport build_engine(const OnnxModel& model, std::string_view engine_path,
                         const BuildOptions& options) {
  return at_entry([&] {
    BuiltEngine built = build_from(model, options, {});
    write_file_atomically(std::string(engine_path), built.bytes);
    return std::move(built.report);
  });
}

std::vector<DataInput> onnx_inputs(const OnnxModel& model, const BuildOptions& options) {
  return at_entry([&] { return calibration_inputs(import_model(model, options).graph); });
}

Calibration calibrate(const OnnxModel& model, const std::shared_ptr<const Dataset>& samples,
                      const BuildOptions& options) {
  return at_entry([&] {
    require_samples(samples);
    return calibrate(import_model(model, options).graph, samples, options);
  });
}

TunedEngine tune(const OnnxModel& model, const std::shared_ptr<const Dataset>& samples,
                 const std::shared_ptr<const Metric>& metric, const BuildOptions& options) {
  return at_entry([&] {
    TuneResult tuned = tune_from(model, samples, metric, options);
    return TunedEngine{save(tuned.engine), std::move(tuned.frontier), tuned.was_resumed};
  });
}

Frontier tune(const OnnxModel& model, const std::shared_ptr<const Dataset>& samples,
              const std::shared_ptr<const Metric>& metric, std::string_view engine_path,
              const BuildOptions& options) {
  return at_entry([&] {
    TuneResult tuned = tune_from(model, samples, metric, options);
    write_engine_file(std::string(engine_path), tuned.engine);
    if (!options.tuning.journal.empty()) std::filesystem::remove(options.tuning.journal);
    return std::move(tuned.frontier);
  });
}

}  // namespace anneal
