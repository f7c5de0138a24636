#include "anneal/engine/tune/search/onnx_tuning.h"

#include <fmt/format.h>

#include <filesystem>

#include "anneal/core/fail.h"
#include "anneal/engine/builder/builder.h"
#include "anneal/engine/plan.h"
#include "anneal/engine/tune/search/tune.h"
#include "anneal/importer/importer.h"

namespace anneal {

TuneSamples split_samples(const std::shared_ptr<const Dataset>& samples, int64_t calibrate,
                          int64_t search) {
  const int64_t all = samples->size();
  if (calibrate == 0) calibrate = all / 5;
  if (search == 0) search = all * 3 / 10;
  if (calibrate < 1 || search < 1 || calibrate + search >= all)
    fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} samples cannot be split into {} to calibrate, {} to search with and others "
                    "to confirm",
                    all, calibrate, search));
  const auto others = subset(samples, fmt::format("holdout:{}", calibrate));
  return {subset(samples, fmt::format("hash:{}", calibrate)),
          subset(others, fmt::format("hash:{}", search)),
          subset(others, fmt::format("holdout:{}", search))};
}

Frontier tune_onnx(const std::string& onnx_path, const std::shared_ptr<const Dataset>& samples,
                   const std::string& engine_path, const OnnxTuneOptions& options) {
  const BuildOptions& build = options.build;
  if (build.targets.size() != 1)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("tuning is for one target, not {}", build.targets.size()));
  const ImportOptions import{.bounds = build.input_bounds, .default_inputs = build.default_inputs};
  TuneOptions tune_options;
  tune_options.metric = options.metric;
  tune_options.budget = options.budget;
  tune_options.target = build.targets[0];
  tune_options.passes = graph_options(build).passes;
  tune_options.skip_kernels = build.skip_kernels;
  tune_options.precisions = options.precisions;
  tune_options.threads = options.threads;
  tune_options.data_threads = options.data_threads;
  tune_options.seconds = options.seconds;
  tune_options.journal = options.journal;
  if (options.progress)
    tune_options.progress = [&options](const TuneProgress& progress) {
      if (!options.progress(progress)) fail(ErrorCode::kCancelled, "tuning was cancelled");
    };
  TuneResult tuned =
      tune(import_file(onnx_path, import).graph,
           split_samples(samples, options.calibrate_samples, options.search_samples), tune_options);
  write_engine_file(engine_path, tuned.engine);
  if (!options.journal.empty()) std::filesystem::remove(options.journal);
  return std::move(tuned.frontier);
}

PrecisionOptions precision_of(const Frontier& frontier, const FrontierPoint& point) {
  std::shared_ptr<const CalibrationTable> ranges;
  if (!frontier.calibration.empty())
    ranges =
        std::make_shared<const CalibrationTable>(parse_calibration_table(frontier.calibration));
  return mix_options(frontier.groups, point.precisions, std::move(ranges), frontier.symmetric);
}

}  // namespace anneal
