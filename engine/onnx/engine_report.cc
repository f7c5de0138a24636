#include "anneal/engine/onnx/engine_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/engine/builder/layout.h"
#include "anneal/engine/run/memory/activation_memory.h"
#include "anneal/engine/run/memory/bound_plan.h"

namespace anneal {
namespace {

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

void add_fallbacks(const Plan& plan, std::vector<BuildDecision>& fallbacks) {
  for (const Decision& decision : plan.decisions)
    if (decision.stage == kFallback)
      fallbacks.emplace_back(decision.stage, decision.subject, decision.text);
  for (const Plan& body : plan.bodies) add_fallbacks(body, fallbacks);
}

// Of a value to another device, layout or output. The optimizer leaves no other such layers.
bool is_copy(const Step& step) {
  const auto* pointwise = std::get_if<Pointwise>(&step.op);
  return step.kernel == kTransfer || (pointwise && pointwise->program.is_identity());
}

void count_steps(const Plan& plan, BuildPlan& result) {
  std::unordered_set<std::string_view> for_shapes;  // names of layers
  for (const Decision& decision : plan.decisions)
    if (decision.stage == kDecidesShapes) for_shapes.insert(decision.subject);
  const auto belongs_on_host = [&](const Step& step) {
    return is_host_work(step.op) || for_shapes.contains(step.name);
  };
  for (const Step& step : plan.steps) {
    if (!bodies_of(step.op).empty()) continue;  // its bodies' steps count
    if (is_copy(step))
      ++result.copy_steps;
    else if (step.device + 1u < plan.devices.size())
      ++result.gpu_steps;
    else if (!belongs_on_host(step))
      ++result.cpu_steps;
  }
  for (const Plan& body : plan.bodies) count_steps(body, result);
}

BuildPlan plan_report(const Plan& plan, std::span<const Tensor> weights) {
  BuildPlan result{.target = plan.target,
                   .profile = plan.profile,
                   .steps = {},
                   .decisions = {},
                   .fallbacks = {},
                   .arena_bytes = fixed_arena_bytes(plan, weights),
                   .code_bytes = plan.code.size(),
                   .run_bytes = run_bytes_of(plan, weights)};
  for (const Step& step : plan.steps)
    result.steps.push_back(
        {step.name, std::string(to_string(step.op)), step.kernel, plan.devices.at(step.device)});
  count_steps(plan, result);
  for (const Decision& decision : plan.decisions)
    result.decisions.emplace_back(decision.stage, decision.subject, decision.text);
  add_fallbacks(plan, result.fallbacks);
  return result;
}

}  // namespace

void report_plans(const EngineFile& file, BuildReport& report) {
  for (const Plan& plan : file.plans) report.plans.push_back(plan_report(plan, file.weights));
  for (const Tensor& weight : file.weights) report.weight_bytes += weight.bytes().size();
}

BuildOptions with_log(BuildOptions options) {
  if (!options.log) return options;
  options.progress = [log = options.log, told = options.progress](const Progress& progress) {
    log(Severity::kInfo, progress.what);
    return !told || told(progress);
  };
  return options;
}

void log_warnings(const LogSink& log, const BuildReport& report) {
  if (!log) return;
  const SelfCheckReport& check = report.self_check;
  for (const std::string& warning : report.warnings) log(Severity::kWarning, warning);
  if (!check.warning.empty()) log(Severity::kWarning, check.warning);
  if (!check.is_compared && !check.outcome.empty())
    log(Severity::kWarning, fmt::format("self-check: {}", check.outcome));
}

void require_other_files(const std::string& engine, const std::string& weights) {
  namespace fs = std::filesystem;
  std::error_code none;
  if (weights.empty() || engine.empty()) return;
  if (fs::equivalent(engine, weights, none) ||
      fs::absolute(engine).lexically_normal() == fs::absolute(weights).lexically_normal())
    fail(ErrorCode::kInvalidArgument,
         fmt::format("the weights would replace the engine {}: give them another name", engine));
}

BuiltEngine built_engine(const EngineFile& file, BuildReport report) {
  BuiltEngine built{save(file), std::move(report), {}};
  if (file.weights_apart) built.weights = save_weights(file);
  built.report.engine_bytes = built.bytes.size();
  return built;
}

BuildReport write_engine(const EngineFile& file, BuildReport report, const std::string& path,
                         const std::string& weights_path, const WriteProgress& progress) {
  // A callback that cancels must not leave the new weights beside the old engine.
  if (file.weights_apart) write_weights_file(weights_path, file, progress);
  report.engine_bytes =
      write_engine_file(path, file, file.weights_apart ? WriteProgress() : progress);
  return report;
}

}  // namespace anneal
