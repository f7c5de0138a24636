// refit_engine(): the weights of another model in an engine.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/core/milliseconds.h"
#include "anneal/core/new_tensor.h"
#include "anneal/core/parallel.h"
#include "anneal/engine/builder/checked_build.h"
#include "anneal/engine/builder/replay/plan_difference.h"
#include "anneal/engine/kernel_library.h"
#include "anneal/engine/onnx/build_progress.h"
#include "anneal/engine/onnx/engine_report.h"
#include "anneal/engine/onnx/import_model.h"
#include "anneal/engine/onnx/join_profiles.h"
#include "anneal/engine/onnx/onnx_builder.h"
#include "anneal/engine/onnx/recipe.h"
#include "anneal/engine/run/pack_weights.h"
#include "anneal/optimizer/precision/fingerprint.h"

namespace anneal {
namespace {

using Clock = std::chrono::steady_clock;

// Whether the file of an engine whose weights are apart must not change.
enum class Keep : uint8_t { kEngine, kNothing };

int threads_of(const BuildOptions& options) {
  return options.threads > 0 ? options.threads : hardware_threads();
}

EngineFile open_recorded(const FileBytes& bytes, const BuildOptions& options) {
  ThreadTeam team(threads_of(options));
  return load_engine_file(bytes.bytes, bytes.owner, &team, load_kernel_libraries(options.libraries),
                          {.use = WeightsSource::kNone});
}

// An engine is the likeliest wrong file.
void refuse_engine_as_model(const OnnxModel& model) {
  std::error_code none;
  char first = 0;
  if (model.path().empty())
    first = model.bytes().empty() ? '\0' : static_cast<char>(model.bytes()[0]);
  else if (std::filesystem::is_regular_file(model.path(), none))
    std::ifstream(model.path(), std::ios::binary).get(first);
  if (first == '\x89')
    fail(ErrorCode::kInvalidModel,
         fmt::format("{} is an engine: give the ONNX model with the new weights", name_of(model)));
}

// The options of the recipe, with those of the caller that do not decide the plan.
BuildOptions options_for(const Recipe& recipe, const BuildOptions& given) {
  BuildOptions options = recipe.options;
  options.libraries = given.libraries;
  options.threads = given.threads;
  options.progress = given.progress;
  options.log = given.log;
  options.weights_path = given.weights_path;
  return options;
}

// By index of a new weight: whether the engine has another one in its place.
class ChangedWeights {
 public:
  ChangedWeights(const EngineFile& engine, const EngineFile& made)
      : engine_(engine), made_(made), changed_(made.weights.size()) {
    for (size_t i = 0; i < made.plans.size(); ++i) look_at(engine.plans[i], made.plans[i]);
  }
  size_t count() const { return static_cast<size_t>(std::ranges::count(changed_, true)); }

 private:
  void look_at(const Plan& engine, const Plan& made) {
    for (size_t i = 0; i < made.input_defaults.size(); ++i)
      if (made.input_defaults[i] != kNoDefault)
        look_at(engine.input_defaults[i], made.input_defaults[i]);
    for (size_t i = 0; i < made.slots.size(); ++i)
      if (made.slots[i].storage == Storage::kWeight)
        look_at(engine.slots[i].offset, made.slots[i].offset);
    for (size_t i = 0; i < made.bodies.size(); ++i) look_at(engine.bodies[i], made.bodies[i]);
  }
  // Weights that are not read here count as changed.
  void look_at(uint64_t engine, uint64_t made) {
    if (engine >= engine_.weights.size() || engine_.weights[engine] != made_.weights[made])
      changed_[made] = true;
  }

  const EngineFile& engine_;
  const EngineFile& made_;
  std::vector<bool> changed_;
};

// The reasons for f32 stay. What the check found holds for the weights that it saw.
void keep_self_check(const Plan& engine, bool has_same_weights, Plan& made) {
  bool is_told = false;
  for (const Decision& decision : engine.decisions) {
    if (decision.stage != kSelfCheck) continue;
    if (has_same_weights || decision.subject != engine.name) {
      made.decisions.push_back(decision);
    } else if (!std::exchange(is_told, true)) {
      made.decisions.push_back({std::string(kSelfCheck), made.name,
                                "refit replaced the weights, and does not compare with f32", true});
    }
  }
}

void require_same_plans(const OnnxModel& model, const EngineFile& engine, const EngineFile& made) {
  for (size_t i = 0; i < made.plans.size(); ++i) {
    const std::string difference = plan_difference(engine.plans[i], made.plans[i]);
    if (difference.empty()) continue;
    fail(ErrorCode::kInvalidModel,
         fmt::format("{} does not fit the engine's plan for {}: {}. Refit replaces weights only: "
                     "build an engine from this model",
                     name_of(model), made.plans[i].target, difference));
  }
}

// The old plans with the new weights.
EngineFile kept_engine(const OnnxModel& model, EngineFile engine, EngineFile made,
                       size_t changed_literals) {
  const auto refuse = [&](std::string_view why) {
    fail(ErrorCode::kInvalidModel,
         fmt::format("{} needs another engine: {}. Write a new engine as well (-o), or "
                     "build one from this model",
                     name_of(model), why));
  };
  if (changed_literals > 0)
    refuse(fmt::format("{} scalar{} of the model that programs of the plan contain differ{}",
                       changed_literals, changed_literals == 1 ? "" : "s",
                       changed_literals == 1 ? "s" : ""));
  for (size_t i = 0; i < made.plans.size(); ++i)
    if (!has_same_indices(engine.plans[i], made.plans[i]))
      refuse("weights that were equal, and are stored once, differ now, or the other way round");
  engine.weights = std::move(made.weights);
  engine.packed = std::move(made.packed);
  if (plan_digest(engine) != engine.digest) refuse("its index of weights would change");
  return engine;
}

struct Refitted {
  EngineFile file;
  BuildReport report;
};

// progress: of given.
Refitted refit(EngineFile engine, const OnnxModel& model, const BuildOptions& given, Keep keep,
               BuildProgress& progress) {
  const Recipe recorded = parse_recipe(engine.recipe);
  Recipe recipe = recorded;
  recipe.options = options_for(recorded, given);
  BuildOptions& options = recipe.options;
  const size_t profiles = std::max<size_t>(options.profiles.size(), 1);
  if (options.targets.size() * profiles != engine.plans.size() ||
      recorded.weights_apart != engine.weights_apart)
    fail(ErrorCode::kIncompatiblePlan, "the engine's recipe is damaged: it is of another engine");
  Refitted result;
  BuildReport& report = result.report;
  auto start = Clock::now();
  progress.begin("importing the model");
  refuse_engine_as_model(model);
  ImportResult imported = import_model(model, options);
  report.import_milliseconds = milliseconds_since(start);
  report.imported_layers = imported.graph.layer_count();
  start = Clock::now();
  recipe.fingerprint = fingerprint(imported.graph, options.threads);
  const bool has_same_weights = recipe.fingerprint == recorded.fingerprint;
  if (options.precision.ranges && !has_same_weights)
    options.precision.ranges = table_for_other_weights(*options.precision.ranges);
  GraphBuildOptions building = graph_options(options);
  building.weights_apart = recorded.weights_apart;
  building.progress = [&](std::string_view what) { progress.begin(what); };
  const auto build_again = [&] {
    std::vector<EngineFile> files;
    for (size_t i = 0; i < profiles; ++i) {
      if (profiles > 1) imported = import_model(model, options_of_profile(options, i));
      building.recorded =
          std::span(engine.plans).subspan(i * options.targets.size(), options.targets.size());
      files.push_back(build(std::move(imported.graph), building));
    }
    return join_profiles(std::move(files));
  };
  EngineFile made = with_context(
      [&] { return fmt::format("{}: while building as the engine was built", name_of(model)); },
      build_again);
  require_same_plans(model, engine, made);
  for (size_t i = 0; i < made.plans.size(); ++i) {
    keep_self_check(engine.plans[i], has_same_weights, made.plans[i]);
    report.changed_literals += changed_literals(engine.plans[i], made.plans[i]);
  }
  report.weights = made.weights.size();
  report.changed_weights = ChangedWeights(engine, made).count();
  report.self_check.back_to_f32 = recipe.back_to_f32;
  made.recipe = to_string(recipe);
  if (engine.weights_apart && keep == Keep::kEngine)
    made = kept_engine(model, std::move(engine), std::move(made), report.changed_literals);
  if (options.pack_weights) {
    progress.begin("packing weights");
    ThreadTeam team(threads_of(options));
    pack_weights(made, team);
  }
  report.build_milliseconds = milliseconds_since(start);
  report_plans(made, report);
  result.file = std::move(made);
  return result;
}

// Before the work, not after it.
void check_outputs(bool is_apart, const std::string& output, const std::string& weights) {
  if (is_apart && weights.empty())
    fail(ErrorCode::kInvalidArgument,
         "the weights of this engine are in a file of their own: name the new one with --weights "
         "FILE, or BuildOptions::weights_path");
  if (!is_apart && !weights.empty())
    fail(ErrorCode::kInvalidArgument,
         "this engine has its weights: name a new engine, and no file of weights");
  if (!is_apart && output.empty())
    fail(ErrorCode::kInvalidArgument, "this engine has its weights: name a new engine");
}

void check_paths(const std::string& engine_path, const OnnxModel& model, const std::string& output,
                 const std::string& weights) {
  std::error_code none;
  for (const std::string& path : {output, weights})
    if (!path.empty() && std::filesystem::equivalent(model.path(), path, none))
      fail(ErrorCode::kInvalidArgument,
           fmt::format("{} would replace the model: give it another name", path));
  require_other_files(engine_path, weights);
  require_other_files(output, weights);
}

}  // namespace

BuiltEngine refit_engine(std::span<const std::byte> engine, const OnnxModel& model,
                         const BuildOptions& options) {
  const auto refit_bytes = [&] {
    const NewTensor copy = allocate_tensor(DataType::kU8, {static_cast<int64_t>(engine.size())});
    std::ranges::copy(engine, copy.data.begin());
    const FileBytes aligned{copy.data, std::make_shared<const Tensor>(copy.tensor)};
    EngineFile file = open_recorded(aligned, options);
    const bool is_kept = file.weights_apart;
    const BuildOptions logged = with_log(options);
    BuildProgress progress(logged.progress);
    Refitted made =
        refit(std::move(file), model, logged, is_kept ? Keep::kEngine : Keep::kNothing, progress);
    BuiltEngine built = built_engine(made.file, std::move(made.report));
    progress.end();
    if (is_kept) built.bytes.assign(engine.begin(), engine.end());
    return built;
  };
  return at_entry([&] {
    return with_context([] { return "while refitting an engine in memory"; }, refit_bytes);
  });
}

BuildReport refit_engine(const std::string& engine_path, const OnnxModel& model,
                         std::string_view output_path, const BuildOptions& options) {
  const std::string output(output_path), &weights = options.weights_path;
  const auto refit_file = [&] {
    check_paths(engine_path, model, output, weights);
    const FileBytes bytes = map_file(engine_path);
    EngineFile engine = open_recorded(bytes, options);
    const bool is_apart = engine.weights_apart;
    check_outputs(is_apart, output, weights);
    const Keep keep = is_apart && output.empty() ? Keep::kEngine : Keep::kNothing;
    const BuildOptions logged = with_log(options);
    BuildProgress progress(logged.progress);
    Refitted made = refit(std::move(engine), model, logged, keep, progress);
    const WriteProgress writing = progress.writing("writing the weights");
    if (output.empty()) {
      write_weights_file(weights, made.file, writing);
      made.report.engine_bytes = bytes.bytes.size();
    } else {
      made.report = write_engine(made.file, std::move(made.report), output, weights, writing);
    }
    progress.end();
    return std::move(made.report);
  };
  return at_entry([&] {
    return with_context([&] { return fmt::format("while refitting {}", engine_path); }, refit_file);
  });
}

}  // namespace anneal
