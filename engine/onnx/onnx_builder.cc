#include "anneal/engine/onnx/onnx_builder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/core/milliseconds.h"
#include "anneal/core/parallel.h"
#include "anneal/engine/builder/checked_build.h"
#include "anneal/engine/builder/target_support.h"
#include "anneal/engine/onnx/build_progress.h"
#include "anneal/engine/onnx/engine_report.h"
#include "anneal/engine/onnx/import_model.h"
#include "anneal/engine/onnx/join_profiles.h"
#include "anneal/engine/onnx/pass_log.h"
#include "anneal/engine/onnx/recipe.h"
#include "anneal/engine/run/pack_weights.h"
#include "anneal/engine/tune/calibration/calibrate.h"
#include "anneal/engine/tune/search/tune.h"

namespace anneal {
namespace {

using Clock = std::chrono::steady_clock;

// Of the work, the share that calibration takes at most.
constexpr double kCalibrated = 0.7;

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
  const bool reduces = options.precision.reduces();
  if (!samples || (!reduces && options.precision.weight_format.empty())) return;
  if (!options.precision.ranges && reduces) {
    BuildOptions calibrating = options;
    calibrating.progress = progress.part(kCalibrated);
    Calibration found = calibrate(model, samples, calibrating);
    options.precision.ranges = std::move(found.table);
    report.warnings.insert(report.warnings.end(), found.warnings.begin(), found.warnings.end());
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

// Before the work, not after it.
void check_engine_path(const OnnxModel& model, const std::string& path,
                       const std::string& weights = {}) {
  std::error_code none;
  if (std::filesystem::equivalent(model.path(), path, none))
    fail(ErrorCode::kInvalidArgument,
         fmt::format("the engine would replace the model {}: give it another name", path));
  if (!weights.empty() && std::filesystem::equivalent(model.path(), weights, none))
    fail(ErrorCode::kInvalidArgument,
         fmt::format("the weights would replace the model {}: give them another name", weights));
  require_other_files(path, weights);
}

void warn_of_slow_int8(const std::vector<std::string>& targets, BuildReport& report) {
  for (const std::string& target : targets)
    if (target != kReferenceTarget &&
        std::ranges::count(fast_precisions(target), Precision::kI8) == 0)
      report.warnings.push_back(
          fmt::format("{} has no VNNI here, so int8 may be as slow as f32; anneal tune measures "
                      "which layers gain",
                      target));
}

// Whether a step, of a body too, multiplies by integers that have scales, or gathers bytes.
bool has_integer_weights(const Plan& plan) {
  if (std::ranges::any_of(plan.bodies, has_integer_weights)) return true;
  return std::ranges::any_of(plan.steps, [&](const Step& step) {
    const auto is_given = [&](size_t i) {
      return step.inputs.size() > i && step.inputs[i] != kNoSlot;
    };
    if (std::holds_alternative<MatMul>(step.op)) return step.op_input_count > 4 && is_given(4);
    return std::holds_alternative<Gather>(step.op) && is_given(0) &&
           is_8bit(plan.slots[step.inputs[0]].type.dtype);
  });
}

// Whether a convolution or product, of a body too, multiplies integers of 8 bits.
bool has_int8_layers(const Plan& plan) {
  if (std::ranges::any_of(plan.bodies, has_int8_layers)) return true;
  return std::ranges::any_of(plan.steps, [&](const Step& step) {
    return (std::holds_alternative<Conv>(step.op) || std::holds_alternative<MatMul>(step.op)) &&
           is_8bit(plan.slots[step.inputs[0]].type.dtype);
  });
}

// Something that the options ask for, and the pass that makes it.
struct Wanted {
  bool (*is_in)(const Plan& plan);
  std::string_view what, pass;
  std::string_view if_none;  // the reason if the pass refused no layer
};

// A warning for each plan without it, with the first layer that the pass refused.
void warn_if_missing(const Wanted& wanted, const EngineFile& file, BuildReport& report) {
  for (const Plan& plan : file.plans) {
    if (wanted.is_in(plan)) continue;
    const auto decision = std::ranges::find_if(plan.decisions, [&](const Decision& each) {
      return each.stage == wanted.pass && each.refused && !each.subject.empty();
    });
    const std::string profile =
        file.plans.back().profile > 0 ? fmt::format(", profile {},", plan.profile) : "";
    report.warnings.push_back(
        fmt::format("the plan for {}{} has no {}: {}", plan.target, profile, wanted.what,
                    decision == plan.decisions.end()
                        ? std::string(wanted.if_none)
                        : fmt::format("layer \"{}\": {}", decision->subject, decision->text)));
  }
}

constexpr Wanted kIntegerWeights = {
    has_integer_weights, "weights in integers", "quantize_weights",
    "no product has a constant matrix of 1,024 numbers or more on the right, or a pass was left "
    "out"};
constexpr Wanted kInt8Layers = {has_int8_layers, "layers in int8", "insert_quantize",
                                "no convolution or product of f32 has constant weights, a pass was "
                                "left out, or no kernel takes them"};

// Those that fit the sizes of the model's inputs, as far as these are bounded.
std::vector<std::vector<Tensor>> samples_within(const Graph& model,
                                                const std::vector<std::vector<Tensor>>& samples) {
  const auto fits = [&](const std::vector<Tensor>& sample) {
    for (size_t i = 0; i < sample.size(); ++i) {
      const Shape& shape = model.value(model.inputs()[i]).type().shape;
      for (int axis = 0; axis < shape.rank(); ++axis) {
        const Bounds range = model.sizes().range(shape[axis]);
        const int64_t size = sample[i].dims()[axis];
        if (size < range.min || size > range.max) return false;
      }
    }
    return true;
  };
  std::vector<std::vector<Tensor>> fitting;
  std::ranges::copy_if(samples, std::back_inserter(fitting), fits);
  return fitting;
}

// Adds what the check of another profile found.
void add(const SelfCheckReport& check, size_t profile, SelfCheckReport& all) {
  if (profile == 0) {
    all = check;
    return;
  }
  const auto join = [&](std::string& text, const std::string& more) {
    if (!more.empty() && more != text)
      text += fmt::format("{}profile {}: {}", text.empty() ? "" : "; ", profile, more);
  };
  all.is_compared = all.is_compared && check.is_compared;
  join(all.outcome, check.outcome);
  join(all.warning, check.warning);
  all.back_to_f32.insert(all.back_to_f32.end(), check.back_to_f32.begin(), check.back_to_f32.end());
  all.milliseconds += check.milliseconds;
}

// The plans of one profile. options.precision gets the layers that the self-check gave back to f32.
EngineFile build_profile(Graph model, BuildOptions& options, size_t profile,
                         BuildProgress& progress, BuildReport& report) {
  BuildOptions one = options_of_profile(options, profile);
  check_samples(model, one.self_check.samples);
  if (options.profiles.size() > 1)
    one.self_check.samples = samples_within(model, one.self_check.samples);
  GraphBuildOptions building = graph_options(one);
  std::vector<BuildPass> passes;
  PassLog log(one, model, building.passes, passes);
  building.progress = [&](std::string_view what) { progress.begin(what); };
  building.before_rebuild = [&] { log.begin_again(); };
  building.after_pass = [&](const PassEvent& event, std::string_view targets) {
    progress.begin(event.pass.name);
    log.add(event, targets);
  };
  CheckedBuild made = build_checked(std::move(model), building, one.self_check);
  log.finish();
  for (BuildPass& pass : passes) report.passes.emplace_back(std::move(pass)).profile = profile;
  add(made.check, profile, report.self_check);
  options.precision = std::move(made.precision);
  return std::move(made.file);
}

using Layers = std::vector<SelfCheckReport::Layer>;

void add(const Layers& layers, Layers& all) {
  for (const SelfCheckReport::Layer& layer : layers)
    if (std::ranges::find(all, layer.name, &SelfCheckReport::Layer::name) == all.end())
      all.push_back(layer);
}

// Records layers that are f32 since the check of another profile found them.
void record(const Layers& layers, Plan& plan) {
  for (const auto& [layer, why] : layers) {
    const bool is_known = std::ranges::any_of(plan.decisions, [&](const Decision& decision) {
      return decision.stage == kSelfCheck && decision.subject == layer;
    });
    if (!is_known)
      plan.decisions.push_back(
          {std::string(kSelfCheck), layer, "goes back to f32 with another profile: " + why});
  }
}

// The plans of all profiles, which have the same precisions: a layer that one profile gives back to
// f32 is f32 in all, so that those before are built again.
EngineFile build_profiles(const OnnxModel& model, BuildOptions& options, ImportResult imported,
                          BuildProgress& progress, BuildReport& report) {
  const size_t count = std::max<size_t>(options.profiles.size(), 1);
  std::vector<EngineFile> files;
  Layers back_to_f32;
  while (files.size() < count) {
    const size_t profile = files.size(), layers = options.precision.layers.size();
    if (profile == 0) report.passes.clear();
    if (count > 1) imported = import_model(model, options_of_profile(options, profile));
    files.push_back(build_profile(std::move(imported.graph), options, profile, progress, report));
    add(report.self_check.back_to_f32, back_to_f32);
    if (profile > 0 && options.precision.layers.size() != layers) files.clear();
  }
  if (count > 1)
    for (EngineFile& file : files)
      for (Plan& plan : file.plans) record(back_to_f32, plan);
  report.self_check.back_to_f32 = std::move(back_to_f32);
  return join_profiles(std::move(files));
}

constexpr std::string_view kWriting = "writing the engine";

// give(file, report, progress): what is made of the engine.
template <class Give>
auto build_from(const OnnxModel& model, const BuildOptions& given, const Give& give) {
  BuildOptions options = with_log(given);
  options.precision = resolved_precision(options);
  BuildReport report;
  const bool is_reference = std::ranges::count(options.targets, kReferenceTarget) != 0;
  if (is_reference) options.calibration.samples = nullptr;
  if (given.precision.best && !is_reference && options.precision.types.empty())
    report.warnings.push_back(
        fmt::format("the best precision is f32 for {}: no lower precision is always faster there; "
                    "anneal tune measures whether some layers gain from 8 bits",
                    fmt::join(options.targets, ", ")));
  if (given.precision.types.contains(Precision::kI8)) warn_of_slow_int8(options.targets, report);
  BuildProgress progress(options.progress);
  const auto start = Clock::now();
  progress.begin("importing the model");
  ImportResult imported = import_model(model, options);
  report.import_milliseconds = milliseconds_since(start);
  report.imported_layers = imported.graph.layer_count();
  report.warnings.insert(report.warnings.end(), imported.warnings.begin(), imported.warnings.end());
  Recipe recipe = recipe_for(options, imported);
  const auto build_start = Clock::now();
  EngineFile file =
      with_context([&] { return name_of(model); },
                   [&] {
                     calibrate_for(imported.graph, options, progress, report);
                     return build_profiles(model, options, std::move(imported), progress, report);
                   });
  recipe.options.precision = options.precision;
  if (options.pack_weights) {
    progress.begin("packing weights");
    ThreadTeam team(options.threads > 0 ? options.threads : hardware_threads());
    pack_weights(file, team);
  }
  if (!options.precision.weight_format.empty()) warn_if_missing(kIntegerWeights, file, report);
  if (options.precision.ranges && options.precision.allows(Precision::kI8) &&
      !options.precision.allows_half() && options.precision.layers.empty())
    warn_if_missing(kInt8Layers, file, report);
  recipe.back_to_f32 = report.self_check.back_to_f32;
  file.recipe = to_string(recipe);
  report_plans(file, report);
  report.build_milliseconds = milliseconds_since(build_start);
  log_warnings(options.log, report);
  progress.begin(kWriting);
  auto result = give(file, std::move(report), progress.writing(kWriting));
  progress.end();
  return result;
}

// By precision: tune() builds with these options and no others.
std::function<std::string(const PrecisionOptions&)> recipes_of_mixes(const BuildOptions& options,
                                                                     const ImportResult& imported) {
  Recipe recipe = recipe_for(options, imported);
  recipe.options.allow_fallback = true;
  recipe.options.max_memory = 0;
  recipe.options.pack_weights = false;
  recipe.weights_apart = false;
  return [recipe = std::move(recipe)](const PrecisionOptions& precision) {
    Recipe of_mix = recipe;
    of_mix.options.precision = precision;
    return to_string(of_mix);
  };
}

TuneResult tune_from(const OnnxModel& model, const std::shared_ptr<const Dataset>& samples,
                     const std::shared_ptr<const Metric>& metric, const BuildOptions& given) {
  const BuildOptions options = with_log(given);
  require_samples(samples);
  if (!options.precision.layers.empty())
    fail(ErrorCode::kInvalidArgument,
         "tune() chooses the precision of each layer: leave precision.layers empty");
  if (!options.precision.weight_format.empty())
    fail(ErrorCode::kInvalidArgument,
         "tune() stores no weights in integers: leave precision.weight_format empty");
  if (options.profiles.size() > 1)
    fail(
        ErrorCode::kUnsupported,
        fmt::format("{} profiles: tune() measures one. Give it the most frequent shapes, and build "
                    "with the layers that it chooses",
                    options.profiles.size()));
  const ImportResult imported = import_model(model, options);
  return with_context(
      [&] { return name_of(model); },
      [&] {
        TuneResult tuned = tune(
            imported.graph,
            split_samples(samples, options.tuning.calibrate_samples, options.tuning.search_samples),
            metric, options, recipes_of_mixes(options, imported));
        std::vector<std::string>& warnings = tuned.frontier.warnings;
        warnings.insert(warnings.begin(), imported.warnings.begin(), imported.warnings.end());
        BuildProgress(options.progress).end();
        return tuned;
      });
}

}  // namespace

BuiltEngine build_engine(const OnnxModel& model, const BuildOptions& options) {
  return at_entry([&] {
    return build_from(model, options,
                      [](const EngineFile& file, BuildReport report, const WriteProgress&) {
                        return built_engine(file, std::move(report));
                      });
  });
}

BuildReport build_engine(const OnnxModel& model, std::string_view engine_path,
                         const BuildOptions& options) {
  return at_entry([&] {
    check_engine_path(model, std::string(engine_path), options.weights_path);
    const auto write = [&](const EngineFile& file, BuildReport report,
                           const WriteProgress& progress) {
      return write_engine(file, std::move(report), std::string(engine_path), options.weights_path,
                          progress);
    };
    return build_from(model, options, write);
  });
}

std::vector<DataInput> onnx_inputs(const OnnxModel& model, const BuildOptions& options) {
  return at_entry([&] { return calibration_inputs(import_model(model, options).graph); });
}

Calibration calibrate(const OnnxModel& model, const std::shared_ptr<const Dataset>& samples,
                      const BuildOptions& options) {
  return at_entry([&] {
    require_samples(samples);
    const ImportResult imported = import_model(model, options);
    Calibration found = calibrate(imported.graph, samples, with_log(options));
    found.warnings.insert(found.warnings.begin(), imported.warnings.begin(),
                          imported.warnings.end());
    if (options.log)
      for (const std::string& warning : found.warnings) options.log(Severity::kWarning, warning);
    return found;
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
    check_engine_path(model, std::string(engine_path));
    TuneResult tuned = tune_from(model, samples, metric, options);
    write_engine_file(std::string(engine_path), tuned.engine);
    if (!options.tuning.journal.empty()) std::filesystem::remove(options.tuning.journal);
    return std::move(tuned.frontier);
  });
}

}  // namespace anneal
