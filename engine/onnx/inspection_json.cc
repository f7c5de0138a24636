// What a model or an engine holds, as JSON.
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/engine/onnx/inspection.h"
#include "anneal/engine/onnx/onnx_builder.h"

namespace anneal {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json ports_json(const std::vector<InspectedPort>& ports) {
  Json json = Json::array();
  for (const InspectedPort& port : ports) {
    json.push_back({{"name", port.name}, {"type", port.type}});
    if (port.has_default) json.back()["has_default"] = true;
    if (!port.state_output.empty()) json.back()["state_output"] = port.state_output;
  }
  return json;
}

Json sizes_json(const std::vector<InspectedSize>& sizes) {
  Json json = Json::array();
  for (const InspectedSize& size : sizes)
    json.push_back({{"name", size.name}, {"min", size.min}, {"opt", size.opt}, {"max", size.max}});
  return json;
}

Json formula_json(const MemoryFormula& formula) {
  if (formula.activations.empty() && formula.inputs.empty()) return nullptr;
  Json activations = Json::array();
  for (const ActivationFormula& each : formula.activations)
    activations.push_back({{"device", each.device}, {"bytes", each.bytes}, {"step", each.step}});
  return {{"activations", std::move(activations)},
          {"inputs", formula.inputs},
          {"outputs", formula.outputs},
          {"staging", formula.staging}};
}

Json memory_json(const InspectedMemory& memory) {
  if (!memory.error.empty()) return {{"error", memory.error}};
  return {{"arena_bytes", memory.arena_bytes},
          {"live_bytes", memory.live_bytes},
          {"ratio", memory.ratio},
          {"at_best_sizes", memory.at_best_sizes}};
}

Json steps_json(const std::vector<InspectedStep>& given) {
  Json steps = Json::array();
  for (const InspectedStep& step : given) {
    steps.push_back({{"name", step.name},
                     {"origins", step.origins},
                     {"op", step.op_text},
                     {"kernel", step.kernel},
                     {"device", step.device},
                     {"outputs", step.outputs}});
    if (!step.tactic.empty()) steps.back()["tactic"] = step.tactic;
    if (step.microseconds > 0) {
      steps.back()["library"] = step.library;
      steps.back()["microseconds"] = step.microseconds;
    }
    if (!step.runner_up.empty()) steps.back()["runner_up"] = step.runner_up;
    if (step.runner_up_microseconds > 0)
      steps.back()["runner_up_microseconds"] = step.runner_up_microseconds;
    for (const InspectedBody& body : step.bodies)
      steps.back()["bodies"].push_back({{"name", body.name}, {"steps", steps_json(body.steps)}});
  }
  return steps;
}

Json plan_json(const InspectedPlan& plan) {
  Json decisions = Json::array();
  for (const InspectedDecision& decision : plan.decisions)
    decisions.push_back({{"stage", decision.stage},
                         {"subject", decision.subject},
                         {"text", decision.text},
                         {"refused", decision.is_refused},
                         {"saved_launches", decision.saved_launches},
                         {"saved_bytes", decision.saved_bytes}});
  Json json = {{"target", plan.target}, {"profile", plan.profile}, {"devices", plan.devices}};
  json["inputs"] = ports_json(plan.inputs);
  json["outputs"] = ports_json(plan.outputs);
  json["sizes"] = sizes_json(plan.sizes);
  json["splits_batch"] = plan.splits_batch;
  json["exact"] = plan.is_exact;
  json["arena_bytes"] = plan.arena_bytes.empty() ? Json(nullptr) : Json(plan.arena_bytes);
  json["code_bytes"] = plan.code_bytes;
  json["activation_memory"] = memory_json(plan.memory);
  json["memory_formula"] = formula_json(plan.formula);
  json["weights_laid_out"] = plan.weights_laid_out;
  json["steps"] = steps_json(plan.steps);
  json["decisions"] = std::move(decisions);
  return json;
}

bool is_engine_file(const std::string& path) {
  constexpr auto kFirstByte = std::byte{0x89};
  const FileBytes file = map_file(path);
  return !file.bytes.empty() && file.bytes[0] == kFirstByte;
}

}  // namespace

std::string json_text(const InspectedModel& model) {
  Json json = {{"graph", model.graph},
               {"producer", model.producer},
               {"opset", model.opset},
               {"ir_version", model.ir_version}};
  json["inputs"] = ports_json(model.inputs);
  json["outputs"] = ports_json(model.outputs);
  json["sizes"] = sizes_json(model.sizes);
  if (!model.constant_inputs.empty()) json["constant_inputs"] = model.constant_inputs;
  json["weight_bytes"] = model.weight_bytes;
  json["weight_tensors"] = model.weight_tensors;
  json["layers"] = model.layers;
  json["ops"] = model.ops;
  return text_of(json);
}

std::string json_text(const InspectedEngine& engine) {
  Json plans = Json::array();
  for (const InspectedPlan& plan : engine.plans) plans.push_back(plan_json(plan));
  Json json = {{"model", engine.model}, {"producer", engine.producer}};
  json["weight_bytes"] = engine.weight_bytes;
  json["weight_tensors"] = engine.weight_tensors;
  json["plans"] = std::move(plans);
  return text_of(json);
}

std::string inspect_file(const std::string& path) {
  return at_entry([&] {
    return is_engine_file(path) ? json_text(inspect_engine(path, true))
                                : json_text(inspect_model(path));
  });
}

}  // namespace anneal
