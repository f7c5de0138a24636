#include "anneal/kernels/cuda/cudnn/plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <span>

#include "anneal/kernels/cuda/cudnn/operation_graph.h"
#include "anneal/kernels/cuda/cudnn/plan_text.h"

namespace anneal::cuda {
namespace {

// As many notes as later versions may have.
constexpr int64_t kMostNotes = 32;

// Why an engine is not taken; empty if it is.
std::string why_left_out(const std::vector<cudnnBackendNumericalNote_t>& numerical,
                         const std::vector<cudnnBackendBehaviorNote_t>& behavior,
                         const Operations& operations) {
  const auto has = [&](cudnnBackendNumericalNote_t note) {
    return std::ranges::find(numerical, note) != numerical.end();
  };
  const bool is_f32 =
      !operations.tensors.empty() && operations.tensors[0].dtype == CUDNN_DATA_FLOAT;
  if (is_f32) {
    if (has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE)) return "rounds f32 for tensor cores";
    if (has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)) return "rounds its inputs";
  }
  if (has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)) return "rounds its sums";
  if (has(CUDNN_NUMERICAL_NOTE_FFT)) return "computes by FFT";
  if (has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) return "adds in any order";
  for (const auto note :
       {CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4,
        CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13})
    if (has(note)) return "computes by Winograd's products";
  for (const cudnnBackendBehaviorNote_t note : behavior)
    if (note == CUDNN_BEHAVIOR_NOTE_REQUIRES_FILTER_INT8x32_REORDER ||
        note == CUDNN_BEHAVIOR_NOTE_REQUIRES_BIAS_INT8x32_REORDER)
      return "reads weights in an order of its own";
  return {};
}

void read_plan(CudnnCalls& calls, CudnnPlan& plan) {
  const auto workspace = calls.get<int64_t>(plan.plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 1);
  plan.workspace_bytes = workspace.empty() ? 0 : workspace[0];
}

class PlanSearch {
 public:
  PlanSearch(const Cudnn& cudnn, const Operations& operations, const Descriptor& properties,
             const PlanChoice& choice)
      : cudnn_(cudnn), operations_(operations), properties_(properties), choice_(choice) {}

  CudnnPlans run() {
    CudnnCalls calls(cudnn_);
    const OperationGraph graph = make_operation_graph(calls, operations_);
    if (calls.failed()) return {{}, calls.failure()};
    for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
      for (const Descriptor& config : configs(graph, mode)) {
        if (found_.plans.size() >= choice_.most) return std::move(found_);
        take(config);
      }
    if (!found_.plans.empty()) return std::move(found_);
    found_.why_none = why_none();
    return std::move(found_);
  }

 private:
  // Counted twice: cuDNN's first count is of configurations that it has not checked yet. Its status
  // is one of success even where there are none.
  std::vector<Descriptor> configs(const OperationGraph& graph, cudnnBackendHeurMode_t mode) {
    CudnnCalls calls(cudnn_);
    const Descriptor heuristics = calls.make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    calls.set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.graph);
    calls.set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, mode);
    calls.set(heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, properties_);
    calls.finalize(heuristics, "asking for engines");
    const int64_t count =
        calls.count(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR);
    auto found = calls.get_descriptors(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, count);
    if (calls.failed()) failure_ = calls.failure();
    return found;
  }

  void take(const Descriptor& config) {
    CudnnCalls calls(cudnn_);
    const auto engines = calls.get_descriptors(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                               CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
    if (engines.empty()) return;
    const auto index = calls.get<int64_t>(engines[0], CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 1);
    const auto numerical = calls.get<cudnnBackendNumericalNote_t>(
        engines[0], CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, kMostNotes);
    const auto behavior = calls.get<cudnnBackendBehaviorNote_t>(
        engines[0], CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, kMostNotes);
    if (calls.failed() || index.empty()) {
      failure_ = calls.failure();
      return;
    }
    if (std::string reason = why_left_out(numerical, behavior, operations_); !reason.empty()) {
      left_out_ = fmt::format("engine {} {}", index[0], reason);
      return;
    }
    CudnnPlan plan;
    plan.algorithm = fmt::format("engine {}", index[0]);
    plan.plan = calls.make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    calls.set(plan.plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    calls.set(plan.plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, properties_);
    calls.finalize(plan.plan, fmt::format("finalizing a plan of engine {}", index[0]));
    read_plan(calls, plan);
    const int64_t length =
        calls.count(plan.plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR);
    const auto json =
        calls.get<char>(plan.plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, length);
    if (calls.failed()) {
      failure_ = calls.failure();
      return;
    }
    if (plan.workspace_bytes > choice_.most_workspace) {
      left_out_ = fmt::format("engine {} needs {} bytes of workspace, and {} are allowed", index[0],
                              plan.workspace_bytes, choice_.most_workspace);
      return;
    }
    plan.json.assign(json.begin(), json.end());
    if (std::string reason = why_no_plan_of(plan.json, operations_); !reason.empty()) {
      failure_ = std::move(reason);
      return;
    }
    add(std::move(plan),
        std::ranges::find(behavior, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) != behavior.end());
  }

  // Plans of one engine differ in settings whose names cuDNN does not publish: they are counted.
  void add(CudnnPlan plan, bool is_compiled) {
    const auto same = [&](const CudnnPlan& other) { return other.json == plan.json; };
    if (std::ranges::any_of(found_.plans, same)) return;
    const std::string engine = plan.algorithm;
    const auto earlier = std::ranges::count_if(found_.plans, [&](const CudnnPlan& other) {
      return other.algorithm == engine || other.algorithm.starts_with(engine + ",");
    });
    plan.algorithm = fmt::format("{}, setting {}{}", engine, earlier + 1,
                                 is_compiled ? ", compiled for the layer" : "");
    found_.plans.push_back(std::move(plan));
  }

  std::string why_none() const {
    if (!failure_.empty()) return failure_;
    if (!left_out_.empty()) return fmt::format("no engine is left: {}", left_out_);
    return "cuDNN has no engine for it on this device";
  }

  const Cudnn& cudnn_;
  const Operations& operations_;
  const Descriptor& properties_;
  const PlanChoice& choice_;
  CudnnPlans found_;
  std::string failure_, left_out_;  // the last ones
};

}  // namespace

CudnnPlans find_plans(const Cudnn& cudnn, const Operations& operations,
                      const Descriptor& properties, const PlanChoice& choice) {
  return PlanSearch(cudnn, operations, properties, choice).run();
}

Result<CudnnPlan> load_plan(const Cudnn& cudnn, std::string json, const Operations& operations,
                            const Descriptor& properties) {
  if (std::string reason = why_no_plan_of(json, operations); !reason.empty())
    return refuse(std::move(reason));
  CudnnCalls calls(cudnn);
  CudnnPlan plan;
  plan.json = std::move(json);
  plan.plan = calls.make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  calls.set(plan.plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, properties);
  try {
    calls.set_all<char>(plan.plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, plan.json);
    calls.finalize(plan.plan, "loading a plan");
  } catch (const std::exception& error) {  // of cuDNN's reader of JSON
    return refuse(fmt::format("cuDNN cannot read the plan: {}", error.what()));
  }
  read_plan(calls, plan);
  if (calls.failed()) return refuse(calls.failure());
  return plan;
}

}  // namespace anneal::cuda
