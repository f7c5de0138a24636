#include "anneal/engine/builder/onnx_builder.h"

#include <chrono>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/core/milliseconds.h"
#include "anneal/engine/builder/checked_build.h"
#include "anneal/engine/run/memory/bound_plan.h"
#include "anneal/importer/importer.h"

namespace anneal {
namespace {

using Clock = std::chrono::steady_clock;

void tell(const BuildOptions& options, std::string_view what) {
  if (options.progress && !options.progress(what))
    fail(ErrorCode::kCancelled, "the build was cancelled");
}

BuildPlan plan_report(const Plan& plan, std::span<const Tensor> weights) {
  BuildPlan result{.target = plan.target,
                   .steps = {},
                   .decisions = {},
                   .arena_bytes = fixed_arena_bytes(plan, weights),
                   .code_bytes = plan.code.size()};
  for (const Step& step : plan.steps)
    result.steps.push_back(
        {step.name, std::string(to_string(step.op)), step.kernel, plan.devices.at(step.device)});
  for (const Decision& decision : plan.decisions)
    result.decisions.push_back({decision.stage, decision.subject, decision.text});
  return result;
}

// Imports by import(), builds and saves.
template <class Import>
std::vector<std::byte> build_with(Import&& import, const BuildOptions& options,
                                  BuildReport& report) {
  const auto start = Clock::now();
  tell(options, "importing the model");
  ImportResult imported = import(
      ImportOptions{.bounds = options.input_bounds, .default_inputs = options.default_inputs});
  report.import_milliseconds = milliseconds_since(start);
  const auto build_start = Clock::now();
  CheckedBuild made =
      build_checked(std::move(imported.graph), graph_options(options), self_check_options(options));
  const EngineFile file = std::move(made.file);
  report.self_check = std::move(made.check);
  std::vector<std::byte> bytes = save(file);
  report.build_milliseconds = milliseconds_since(build_start);
  for (const Plan& plan : file.plans) report.plans.push_back(plan_report(plan, file.weights));
  for (const Tensor& weight : file.weights) report.weight_bytes += weight.bytes().size();
  report.engine_bytes = bytes.size();
  return bytes;
}

}  // namespace

GraphBuildOptions graph_options(const BuildOptions& options) {
  GraphBuildOptions result;
  result.targets = options.targets;
  result.passes.skip = options.skip_passes;
  result.passes.only = options.only_passes;
  result.passes.exact = options.exact;
  result.max_memory = options.max_memory;
  result.passes.precision = options.precision;
  result.skip_kernels = options.skip_kernels;
  result.allow_fallback = options.allow_fallback;
  result.timing = options.timing;
  if (options.progress) {
    result.progress = [options](std::string_view what) { tell(options, what); };
    result.after_pass = [options](const PassEvent& event, std::string_view) {
      tell(options, event.pass.name);
    };
  }
  return result;
}

BuildReport build_engine(const std::string& onnx_path, const std::string& engine_path,
                         const BuildOptions& options) {
  BuildReport report;
  const std::vector<std::byte> bytes = build_with(
      [&](const ImportOptions& import) { return import_file(onnx_path, import); }, options, report);
  tell(options, "writing the engine");
  write_file_atomically(engine_path, bytes);
  return report;
}

std::vector<std::byte> build_engine(std::span<const std::byte> onnx_model,
                                    const BuildOptions& options, BuildReport* report) {
  BuildReport ignored;
  return build_with(
      [&](const ImportOptions& import) { return import_bytes(onnx_model, "", import); }, options,
      report != nullptr ? *report : ignored);
}

}  // namespace anneal
