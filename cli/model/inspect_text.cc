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

constexpr size_t kFirstOptionalColumn = 3;  // of the table of steps

std::string ports_text(const std::vector<InspectedPort>& inputs,
                       const std::vector<InspectedPort>& outputs) {
  Rows rows;
  for (const InspectedPort& port : inputs) {
    std::string text = port.type;
    if (port.has_default) text += ", has a default value";
    if (!port.state_output.empty())
      text += fmt::format(", a state: output {} of the run before", printable(port.state_output));
    rows.push_back({"input", port.name, text});
  }
  for (const InspectedPort& port : outputs) rows.push_back({"output", port.name, port.type});
  return table_text(rows, {false, false, false});
}

std::string sizes_text(const std::vector<InspectedSize>& sizes) {
  Rows rows;
  for (const InspectedSize& size : sizes)
    rows.push_back(
        {"size", size.name, fmt::format("{} to {}, opt {}", size.min, size.max, size.opt)});
  return table_text(rows, {false, false, false});
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
  if (plan.arena_bytes.empty()) return "size known when inputs are set";
  std::string text;
  for (size_t i = 0; i < plan.devices.size(); ++i)
    text += fmt::format("{}{}{}", i == 0 ? "" : " and ", bytes_text(plan.arena_bytes[i]),
                        plan.devices.size() == 1 ? "" : " on " + printable(plan.devices[i]));
  return text;
}

// The saving of a run as a negative number; empty if nothing changes.
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
        "activations: the plan cannot run at its opt shapes; build with other --opt-shapes ({})\n",
        one_line(memory.error));
  return fmt::format("activations: {}{}, {:.2f} times the lower bound of {}\n",
                     bytes_text(memory.arena_bytes),
                     memory.at_best_sizes ? " at the opt shapes" : "", memory.ratio,
                     bytes_text(memory.live_bytes));
}

// In the sizes of the inputs.
std::string formula_text(const MemoryFormula& formula) {
  std::string text;
  for (const ActivationFormula& each : formula.activations)
    text += fmt::format("  {} bytes{}, at {}\n", each.bytes,
                        formula.activations.size() == 1 ? "" : " on " + printable(each.device),
                        printable(each.step));
  if (!formula.inputs.empty())
    text += fmt::format("inputs: {} bytes, outputs: {} bytes, staging: {} bytes\n", formula.inputs,
                        formula.outputs, formula.staging);
  return text;
}

std::string laid_out_text(size_t count) {
  if (count == 0) return "";
  return fmt::format("{} stored in the layout that the kernel reads, not row-major\n",
                     count == 1 ? "1 weight is" : fmt::format("{} weights are", count));
}

std::string runner_up_text(const InspectedStep& step) {
  if (step.runner_up_microseconds == 0) return step.runner_up;
  return fmt::format("{} {} us", step.runner_up, step.runner_up_microseconds);
}

// The steps of a body follow the step that runs it, indented.
void add_steps(const std::vector<InspectedStep>& steps, const std::string& indent, Rows& rows,
               std::map<std::string, size_t>& kernels) {
  for (const InspectedStep& step : steps) {
    ++kernels[step.kernel];
    const bool is_timed = step.microseconds > 0;
    rows.push_back({indent + step.name, step.has_epilogue ? step.op + " + epilogue" : step.op,
                    step.kernel, is_timed ? step.library : "", step.tactic,
                    is_timed ? fmt::format("{} us", step.microseconds) : "", runner_up_text(step),
                    fmt::format("{}", fmt::join(step.short_outputs, " "))});
    for (const InspectedBody& body : step.bodies)
      add_steps(body.steps, indent + "  ", rows, kernels);
  }
}

// Without the columns that are empty in all steps, such as tactics and times.
std::string steps_text(Rows rows) {
  for (size_t column = rows[0].size(); column-- > 0;) {
    const bool is_used = std::any_of(rows.begin() + 1, rows.end(),
                                     [&](const auto& row) { return !row[column].empty(); });
    if (is_used || column < kFirstOptionalColumn) continue;
    for (auto& row : rows) row.erase(row.begin() + static_cast<ptrdiff_t>(column));
  }
  return table_text(rows, std::vector<bool>(rows[0].size(), false));
}

std::string plan_text(const InspectedPlan& plan, bool has_profiles, bool with_decisions) {
  std::string text =
      fmt::format("\nplan for {}{} (devices {}): {}, arena {}\n", printable(plan.target),
                  has_profiles ? fmt::format(", profile {}", plan.profile) : "",
                  printable(fmt::format("{}", fmt::join(plan.devices, ", "))),
                  count_text(plan.steps.size(), "step"), arena_text(plan));
  text += ports_text(plan.inputs, plan.outputs);
  text += sizes_text(plan.sizes);
  text += memory_text(plan.memory);
  text += formula_text(plan.formula);
  text += laid_out_text(plan.weights_laid_out);
  Rows rows = {{"step", "op", "kernel", "library", "tactic", "time", "runner-up", "output"}};
  std::map<std::string, size_t> kernels;
  add_steps(plan.steps, "", rows, kernels);
  text += "\n" + steps_text(std::move(rows));
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

// Old exporters list all weights.
std::string constant_inputs_text(const std::vector<std::string>& names) {
  constexpr size_t kMostShown = 8;
  if (names.empty()) return "";
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMostShown); ++i)
    text += (i == 0 ? "" : ", ") + printable(names[i]);
  if (names.size() > kMostShown) text += ", ...";
  return fmt::format("{} {}, constant unless --default-inputs names {}: {}\n",
                     count_text(names.size(), "initializer"),
                     names.size() == 1 ? "is also listed as an input" : "are also listed as inputs",
                     names.size() == 1 ? "it" : "them", text);
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

std::string engine_text(const InspectedEngine& engine, bool with_decisions) {
  std::string text = fmt::format(
      "engine of {}, made by {}\nweights {} in {}, {}\n",
      engine.model.empty() ? "a model without a name" : printable(engine.model),
      printable(engine.producer), bytes_text(engine.weight_bytes),
      count_text(engine.weight_tensors, "tensor"), count_text(engine.plans.size(), "plan"));
  const bool has_profiles =
      std::ranges::any_of(engine.plans, [](const InspectedPlan& plan) { return plan.profile > 0; });
  for (const InspectedPlan& plan : engine.plans)
    text += plan_text(plan, has_profiles, with_decisions);
  return text;
}

}  // namespace anneal
