#include "anneal/engine/onnx/retune.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/core/parallel.h"
#include "anneal/engine/builder/builder.h"
#include "anneal/engine/builder/target_support.h"
#include "anneal/engine/kernel_library.h"
#include "anneal/engine/onnx/build_progress.h"
#include "anneal/engine/onnx/engine_report.h"
#include "anneal/engine/onnx/recipe.h"
#include "anneal/engine/run/pack_weights.h"
#include "anneal/kernels/kernel.h"

namespace anneal {
namespace {

struct Retuned {
  EngineFile file;
  std::vector<RetunedPlan> plans;
  TimingCache measured;
};

void require_some_plan(const std::vector<RetunedPlan>& plans) {
  std::string reasons;
  for (const RetunedPlan& plan : plans) {
    if (plan.why_not.empty()) return;
    reasons += fmt::format("\n  plan for {}: {}", plan.target, plan.why_not);
  }
  fail(ErrorCode::kDevice, fmt::format("no plan is for a device of this machine:{}", reasons));
}

// By the build that made the engine.
std::vector<std::string> kernels_left_out(const std::string& path, const EngineFile& file) {
  GraphBuildOptions build;
  if (!file.recipe.empty()) {
    const BuildOptions options = parse_recipe(file.recipe).options;
    if (std::ranges::count(options.targets, kReferenceTarget) != 0)
      fail(ErrorCode::kUnsupported,
           fmt::format("{} was built for the target \"reference\", whose kernels stay: build an "
                       "engine for cpu",
                       path));
    build.skip_kernels = options.skip_kernels;
    build.tf32 = options.tf32;
  }
  return kernel_options(build).skip;
}

Retuned retuned(const std::string& path, const BuildOptions& options, BuildProgress& progress) {
  Retuned result;
  result.file = read_engine_file(path, {.operators = load_kernel_libraries(options.libraries),
                                        .weights = options.weights_path});
  RetuneOptions retune;
  retune.timing = {.measure = true,
                   .cache = options.timing_cache,
                   .threads = options.threads,
                   .level = std::max(options.optimization_level, 1),
                   .seconds = options.time_seconds};
  retune.skip_kernels = kernels_left_out(path, result.file);
  retune.progress = [&](std::string_view what) { progress.begin(what); };
  const auto keep_times = [&] {
    if (!options.timing_cache.empty() && !result.measured.empty())
      add_to_timing_cache(options.timing_cache, result.measured);
  };
  try {
    result.plans = retune_plans(result.file, retune, result.measured);
  } catch (...) {
    keep_times();
    throw;
  }
  require_some_plan(result.plans);
  keep_times();
  return result;
}

}  // namespace

std::vector<RetunedPlan> retune_engine(const std::string& engine_path,
                                       const std::string& output_path,
                                       const BuildOptions& options) {
  return with_context(
      [&] { return fmt::format("while retuning {}", engine_path); },
      [&] {
        namespace fs = std::filesystem;
        if (!options.timing_cache.empty() &&
            fs::weakly_canonical(output_path) == fs::weakly_canonical(options.timing_cache))
          fail(ErrorCode::kInvalidArgument,
               fmt::format("{} would be the engine and the timing cache: give the cache a file of "
                           "its own",
                           output_path));
        std::error_code none;
        if (!options.weights_path.empty() && !fs::equivalent(engine_path, output_path, none))
          fail(ErrorCode::kInvalidArgument,
               "the weights in a file of their own belong to one engine: retune a copy of both "
               "files in place");
        BuildProgress progress(options.progress);
        Retuned made = retuned(engine_path, options, progress);
        if (!made.file.packed.empty()) {
          made.file.packed.clear();
          ThreadTeam team(options.threads > 0 ? options.threads : hardware_threads());
          pack_weights(made.file, team);
        }
        write_engine(made.file, {}, output_path, options.weights_path,
                     progress.writing("writing the engine"));
        progress.end();
        return std::move(made.plans);
      });
}

std::vector<RetunedPlan> time_engine_kernels(const std::string& engine_path,
                                             const BuildOptions& options) {
  return with_context([&] { return fmt::format("while timing kernels of {}", engine_path); },
                      [&] {
                        BuildProgress progress(options.progress);
                        std::vector<RetunedPlan> plans =
                            retuned(engine_path, options, progress).plans;
                        progress.end();
                        return plans;
                      });
}

size_t merge_timing_caches(const std::string& into, const std::vector<std::string>& from) {
  TimingCache all;
  for (const std::string& path : from) {
    const TimingCache one = read_timing_cache(path);
    if (one.empty())
      fail(ErrorCode::kInvalidArgument, fmt::format("{} has no times of kernels", path));
    merge(one, all);
  }
  add_to_timing_cache(into, all);
  return read_timing_cache(into).layers.size();
}

}  // namespace anneal
