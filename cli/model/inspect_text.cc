#include "anneal/cli/model/inspect_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "anneal/cli/output/print.h"
#include "anneal/cli/output/printable.h"

namespace anneal {
namespace {

std::string ports_text(const std::vector<InspectedPort>& inputs,
                       const std::vector<InspectedPort>& outputs) {
  Rows rows;
  for (const InspectedPort& port : inputs)
    rows.push_back(
        {"input", port.name, port.has_default ? port.type + ", has a default value" : port.type});
  for (const InspectedPort& port : outputs) rows.push_back({"output", port.name, port.type});
  return table_text(rows, {false, false, false});
}

std::string sizes_text(const std::vector<InspectedSize>& sizes) {
  Rows rows;
  for (const InspectedSize& size : sizes)
    rows.push_back(
        {"size", size.name, fmt::format("{} to {}, best at {}", size.min, size.max, size.opt)});
  return table_text(rows, {false, false, false});
}

Json ports_json(const std::vector<InspectedPort>& ports) {
  Json json = Json::array();
  for (const InspectedPort& port : ports) {
    json.push_back({{"name", port.name}, {"type", port.type}});
    if (port.has_default) json.back()["has_default"] = true;
  }
  return json;
}

Json sizes_json(const std::vector<InspectedSize>& sizes) {
  Json json = Json::array();
  for (const InspectedSize& size : sizes)
    json.push_back({{"name", size.name}, {"min", size.min}, {"opt", size.opt}, {"max", size.max}});
  return json;
}

// Most frequent first, then by name.
std::string counts_text(const std::map<std::string, size_t>& counts) {
  std::vector<std::pair<std::string, size_t>> order(counts.begin(), counts.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  Rows rows;
  for (const auto& [name, count] : order) rows.push_back({fmt::format("{}", count), name});
  return table_text(rows, {true, false});
}

std::string arena_text(const InspectedPlan& plan) {
  if (plan.arena_bytes.empty()) return "placed when sizes are bound";
  std::string text;
  for (size_t i = 0; i < plan.devices.size(); ++i)
    text += fmt::format("{}{}{}", i == 0 ? "" : " and ", bytes_text(plan.arena_bytes[i]),
                        plan.devices.size() == 1 ? "" : " on " + printable(plan.devices[i]));
  return text;
}

// What a run has less of, as a negative number; empty if nothing changes.
std::string saved_text(int64_t saved) { return saved == 0 ? "" : fmt::format("{:+}", -saved); }
std::string signed_bytes_text(int64_t bytes) {
  return (bytes < 0 ? "-" : "+") + bytes_text(static_cast<uint64_t>(std::abs(bytes)));
}

// Layers that run on the CPU though the plan is for another device, each with the reason.
std::string fallbacks_text(const InspectedPlan& plan) {
  Rows rows;
  for (const InspectedDecision& decision : plan.decisions)
    if (decision.is_fallback) rows.push_back({"  " + decision.subject, one_line(decision.text)});
  if (rows.empty()) return "";
  return fmt::format("\n{} of {} on the CPU\n{}", count_text(rows.size(), "step"),
                     printable(plan.target), table_text(rows, {false, false}));
}

std::string memory_text(const InspectedMemory& memory) {
  if (!memory.error.empty())
    return fmt::format(
        "activations: the sizes it is best at do not fit it; build with --opt-shapes that do "
        "({})\n",
        one_line(memory.error));
  return fmt::format("activations take {}{}, {:.2f} of the {} that live at one step\n",
                     bytes_text(memory.arena_bytes),
                     memory.at_best_sizes ? " at the sizes it is best at" : "", memory.ratio,
                     bytes_text(memory.live_bytes));
}

Json memory_json(const InspectedMemory& memory) {
  if (!memory.error.empty()) return {{"error", memory.error}};
  return {{"arena_bytes", memory.arena_bytes},
          {"live_bytes", memory.live_bytes},
          {"ratio", memory.ratio},
          {"at_best_sizes", memory.at_best_sizes}};
}

std::string laid_out_text(size_t count) {
  if (count == 0) return "";
  return fmt::format("{} not row-major, but as the kernel reads them\n",
                     count == 1 ? "1 weight is" : fmt::format("{} weights are", count));
}

// The steps of a body stand behind the step that runs it, further in.
void add_steps(const std::vector<InspectedStep>& steps, const std::string& indent, Rows& rows,
               std::map<std::string, size_t>& kernels) {
  for (const InspectedStep& step : steps) {
    ++kernels[step.kernel];
    rows.push_back({indent + step.name, step.has_epilogue ? step.op + " + epilogue" : step.op,
                    step.kernel, fmt::format("{}", fmt::join(step.short_outputs, " "))});
    for (const InspectedBody& body : step.bodies)
      add_steps(body.steps, indent + "  ", rows, kernels);
  }
}

std::string plan_text(const InspectedPlan& plan, bool with_decisions) {
  std::string text =
      fmt::format("\nplan for {} (devices {}): {}, arena {}\n", printable(plan.target),
                  printable(fmt::format("{}", fmt::join(plan.devices, ", "))),
                  count_text(plan.steps.size(), "step"), arena_text(plan));
  text += ports_text(plan.inputs, plan.outputs);
  text += sizes_text(plan.sizes);
  text += memory_text(plan.memory);
  text += laid_out_text(plan.weights_laid_out);
  Rows rows = {{"step", "op", "kernel", "output"}};
  std::map<std::string, size_t> kernels;
  add_steps(plan.steps, "", rows, kernels);
  text += "\n" + table_text(rows, {false, false, false, false});
  text += "\nkernels\n" + counts_text(kernels);
  text += fallbacks_text(plan);
  if (!with_decisions) {
    text += fmt::format("\n{} recorded; show with --decisions\n",
                        count_text(plan.decisions.size(), "decision"));
    return text;
  }
  rows = {{"stage", "subject", "decision", "launches", "traffic"}};
  for (const InspectedDecision& decision : plan.decisions)
    rows.push_back({decision.stage, decision.subject,
                    (decision.is_refused ? "refused: " : "") + one_line(decision.text),
                    saved_text(decision.saved_launches),
                    decision.saved_bytes == 0 ? "" : signed_bytes_text(-decision.saved_bytes)});
  return text + "\n" + table_text(rows, {false, false, false, true, true});
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
  Json json = {{"target", plan.target}, {"devices", plan.devices}};
  json["inputs"] = ports_json(plan.inputs);
  json["outputs"] = ports_json(plan.outputs);
  json["sizes"] = sizes_json(plan.sizes);
  json["splits_batch"] = plan.splits_batch;
  json["exact"] = plan.is_exact;
  json["arena_bytes"] = plan.arena_bytes.empty() ? Json(nullptr) : Json(plan.arena_bytes);
  json["code_bytes"] = plan.code_bytes;
  json["activation_memory"] = memory_json(plan.memory);
  json["weights_laid_out"] = plan.weights_laid_out;
  json["steps"] = steps_json(plan.steps);
  json["decisions"] = std::move(decisions);
  return json;
}

// Old exporters list all weights.
std::string constant_inputs_text(const std::vector<std::string>& names) {
  constexpr size_t kMostShown = 8;
  if (names.empty()) return "";
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMostShown); ++i)
    text += (i == 0 ? "" : ", ") + printable(names[i]);
  if (names.size() > kMostShown) text += ", ...";
  return fmt::format("{} {} an input, too, and constant unless --default-inputs names it: {}\n",
                     count_text(names.size(), "initializer"), names.size() == 1 ? "is" : "are each",
                     text);
}

}  // namespace

std::string model_text(const InspectedModel& model) {
  std::string text = fmt::format(
      "model {}, opset {}, IR version {}, made by {}\n",
      model.graph.empty() ? "without a name" : printable(model.graph), model.opset,
      model.ir_version, model.producer.empty() ? "an unnamed program" : printable(model.producer));
  text += ports_text(model.inputs, model.outputs);
  text += sizes_text(model.sizes);
  text += constant_inputs_text(model.constant_inputs);
  text += fmt::format(
      "weights {} in {}\n\n{}{}\n", bytes_text(model.weight_bytes),
      count_text(model.weight_tensors, "tensor"), count_text(model.layers, "layer"),
      model.has_bodies ? fmt::format(", {} in bodies of If and Loop", model.body_layers) : "");
  return text + counts_text(model.ops);
}

Json model_json(const InspectedModel& model) {
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
  return json;
}

std::string engine_text(const InspectedEngine& engine, bool with_decisions) {
  std::string text = fmt::format(
      "engine of {}, made by {}\nweights {} in {}, {}\n",
      engine.model.empty() ? "a model without a name" : printable(engine.model),
      printable(engine.producer), bytes_text(engine.weight_bytes),
      count_text(engine.weight_tensors, "tensor"), count_text(engine.plans.size(), "plan"));
  for (const InspectedPlan& plan : engine.plans) text += plan_text(plan, with_decisions);
  return text;
}

Json engine_json(const InspectedEngine& engine) {
  Json plans = Json::array();
  for (const InspectedPlan& plan : engine.plans) plans.push_back(plan_json(plan));
  Json json = {{"model", engine.model}, {"producer", engine.producer}};
  json["weight_bytes"] = engine.weight_bytes;
  json["weight_tensors"] = engine.weight_tensors;
  json["plans"] = std::move(plans);
  return json;
}

}  // namespace anneal
