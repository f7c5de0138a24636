#include "anneal/cli/model/inspect_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "anneal/cli/output/print.h"
#include "anneal/cli/output/printable.h"
#include "anneal/engine/plan_check.h"
#include "anneal/engine/run/memory/activation_memory.h"
#include "anneal/engine/run/memory/bound_plan.h"
#include "anneal/engine/symbols.h"
#include "anneal/graph/text/text.h"

namespace anneal {
namespace {

struct NamedType {
  std::string name, type;
  bool has_default = false;
};

std::vector<NamedType> graph_inputs(const Graph& graph) {
  std::vector<NamedType> ports;
  for (const ValueId id : graph.inputs()) {
    const Value& value = graph.value(id);
    ports.push_back(
        {value.name, to_string(value.type(), graph.sizes()), value.default_value.has_value()});
  }
  return ports;
}

std::vector<NamedType> graph_outputs(const Graph& graph) {
  std::vector<NamedType> ports;
  for (const Graph::Output& output : graph.outputs())
    ports.push_back({output.name, to_string(graph.value(output.value).type(), graph.sizes())});
  return ports;
}

// As callers see it: with the fixed batch that may run in parts.
std::string type_text(const Plan& plan, uint32_t slot) {
  Type type = plan.slots[slot].type;
  type.shape = port_shape(plan, slot);
  return to_string(type, *plan.sizes);
}

std::vector<NamedType> plan_ports(const Plan& plan, const std::vector<uint32_t>& slots) {
  std::vector<NamedType> ports;
  ports.reserve(slots.size());
  for (const uint32_t slot : slots) ports.push_back({plan.slots[slot].name, type_text(plan, slot)});
  for (size_t i = 0; slots == plan.inputs && i < plan.input_defaults.size(); ++i)
    ports[i].has_default = plan.input_defaults[i] != kNoDefault;
  return ports;
}

// For a row of a table: long expressions for sizes are left out. JSON has them.
std::string short_type_text(const Plan& plan, uint32_t slot) {
  constexpr size_t kWidest = 100, kWidestSize = 24;
  std::string text = type_text(plan, slot);
  const Type& type = plan.slots[slot].type;
  if (text.size() <= kWidest || type.container != Container::kTensor) return text;
  std::vector<std::string> sizes;
  for (const Size size : port_shape(plan, slot)) {
    const std::string one = plan.sizes->text(size);
    sizes.push_back(one.size() > kWidestSize ? "..." : one);
  }
  return fmt::format("{}[{}]", to_string(type.dtype), fmt::join(sizes, ","));
}

std::string ports_text(const std::vector<NamedType>& inputs,
                       const std::vector<NamedType>& outputs) {
  Rows rows;
  for (const NamedType& port : inputs)
    rows.push_back(
        {"input", port.name, port.has_default ? port.type + ", has a default value" : port.type});
  for (const NamedType& port : outputs) rows.push_back({"output", port.name, port.type});
  return table_text(rows, {false, false, false});
}

// Those of the symbols that callers choose: sizes of inputs.
std::vector<SizeSymbol> chosen_symbols(const SizeTable& sizes, const std::vector<bool>& of_inputs) {
  std::vector<SizeSymbol> chosen;
  for (size_t i = 0; i < of_inputs.size(); ++i)
    if (of_inputs[i]) chosen.push_back(sizes.symbols()[i]);
  return chosen;
}

// No run binds another number of rows of a fixed batch.
std::vector<SizeSymbol> open_sizes(const Plan& plan) {
  std::vector<bool> of_inputs = solvable_symbols(plan);
  if (plan.batch_split && plan.batch_split->is_fixed) of_inputs[plan.batch_split->symbol] = false;
  return chosen_symbols(*plan.sizes, of_inputs);
}

std::vector<SizeSymbol> open_sizes(const Graph& graph) {
  return chosen_symbols(graph.sizes(), graph.symbols_of_inputs());
}

std::string symbols_text(const std::vector<SizeSymbol>& symbols) {
  Rows rows;
  for (const SizeSymbol& symbol : symbols)
    rows.push_back({"size", symbol.name,
                    fmt::format("{} to {}, best at {}", symbol.bounds.min, symbol.bounds.max,
                                symbol.bounds.opt)});
  return table_text(rows, {false, false, false});
}

Json ports_json(const std::vector<NamedType>& ports) {
  Json json = Json::array();
  for (const NamedType& port : ports) {
    json.push_back({{"name", port.name}, {"type", port.type}});
    if (port.has_default) json.back()["has_default"] = true;
  }
  return json;
}

Json symbols_json(const std::vector<SizeSymbol>& symbols) {
  Json json = Json::array();
  for (const SizeSymbol& symbol : symbols)
    json.push_back({{"name", symbol.name},
                    {"min", symbol.bounds.min},
                    {"opt", symbol.bounds.opt},
                    {"max", symbol.bounds.max}});
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

// With those of the bodies of If and Loop.
void count_ops(const Graph& graph, std::map<std::string, size_t>& counts) {
  for (const LayerId id : graph.order()) ++counts[std::string(to_string(graph.layer(id).op))];
  for (const Graph& body : graph.bodies()) count_ops(body, counts);
}

std::map<std::string, size_t> op_counts(const Graph& graph) {
  std::map<std::string, size_t> counts;
  count_ops(graph, counts);
  return counts;
}

size_t layer_count(const Graph& graph) {
  size_t count = graph.layer_count();
  for (const Graph& body : graph.bodies()) count += layer_count(body);
  return count;
}

struct WeightTotals {
  size_t count = 0;
  uint64_t bytes = 0;
};
WeightTotals weight_totals(const Graph& graph) {
  WeightTotals constants;
  std::map<ValueId, bool> seen;
  for (const LayerId id : graph.order()) {
    for (const ValueId input : graph.layer(id).inputs) {
      if (input == ValueId::kNone || !graph.constant(input) || !seen.emplace(input, true).second)
        continue;
      ++constants.count;
      constants.bytes += graph.constant(input)->bytes().size();
    }
  }
  for (const Graph& body : graph.bodies()) {
    const WeightTotals inner = weight_totals(body);
    constants.count += inner.count;
    constants.bytes += inner.bytes;
  }
  return constants;
}

uint64_t weight_bytes(const EngineFile& file) {
  uint64_t bytes = 0;
  for (const Tensor& weight : file.weights) bytes += weight.bytes().size();
  return bytes;
}

std::string arena_text(const Plan& plan, std::span<const Tensor> weights) {
  const std::vector<uint64_t> arena_bytes = fixed_arena_bytes(plan, weights);
  if (arena_bytes.empty()) return "placed when sizes are bound";
  std::string text;
  for (size_t i = 0; i < plan.devices.size(); ++i)
    text += fmt::format("{}{}{}", i == 0 ? "" : " and ", bytes_text(arena_bytes[i]),
                        plan.devices.size() == 1 ? "" : " on " + printable(plan.devices[i]));
  return text;
}

// What a run has less of, as a negative number; empty if nothing changes.
std::string saved_text(int64_t saved) { return saved == 0 ? "" : fmt::format("{:+}", -saved); }
std::string signed_bytes_text(int64_t bytes) {
  return (bytes < 0 ? "-" : "+") + bytes_text(static_cast<uint64_t>(std::abs(bytes)));
}

// Layers that run on the CPU though the plan is for another device, each with the reason.
std::string fallbacks_text(const Plan& plan) {
  Rows rows;
  for (const Decision& decision : plan.decisions)
    if (decision.stage == kFallback)
      rows.push_back({"  " + decision.subject, one_line(decision.text)});
  if (rows.empty()) return "";
  return fmt::format("\n{} of {} on the CPU\n{}", count_text(rows.size(), "step"),
                     printable(plan.target), table_text(rows, {false, false}));
}

std::string memory_text(const Plan& plan, std::span<const Tensor> weights) {
  try {
    const ActivationMemory memory = activation_memory(plan, weights);
    return fmt::format("activations take {}{}, {:.2f} of the {} that live at one step\n",
                       bytes_text(memory.arena_bytes),
                       memory.at_best ? " at the sizes it is best at" : "", memory.ratio(),
                       bytes_text(memory.live_bytes));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    return fmt::format(
        "activations: the sizes it is best at do not fit it; build with --opt-shapes that do "
        "({})\n",
        one_line(error.what()));
  }
}

Json memory_json(const Plan& plan, std::span<const Tensor> weights) {
  try {
    const ActivationMemory memory = activation_memory(plan, weights);
    return {{"arena_bytes", memory.arena_bytes},
            {"live_bytes", memory.live_bytes},
            {"ratio", memory.ratio()},
            {"at_best_sizes", memory.at_best}};
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    return {{"error", error.what()}};
  }
}

// Weights that lie as their kernels read them.
size_t laid_out_weights(const Plan& plan, std::span<const Tensor> weights) {
  return static_cast<size_t>(std::ranges::count_if(plan.slots, [&](const Slot& slot) {
    return slot.storage == Storage::kWeight && !is_row_major_weight(slot, weights[slot.offset]);
  }));
}

std::string laid_out_text(const Plan& plan, std::span<const Tensor> weights) {
  const size_t count = laid_out_weights(plan, weights);
  if (count == 0) return "";
  return fmt::format("{} not row-major, but as the kernel reads them\n",
                     count == 1 ? "1 weight is" : fmt::format("{} weights are", count));
}

// The steps of a body stand behind the step that runs it, further in.
void add_steps(const Plan& plan, const std::string& indent, Rows& rows,
               std::map<std::string, size_t>& kernels) {
  for (const Step& step : plan.steps) {
    ++kernels[step.kernel];
    std::vector<std::string> outputs;
    for (const uint32_t slot : step.outputs)
      outputs.push_back(slot == kNoSlot ? "-" : short_type_text(plan, slot));
    std::string op(to_string(step.op));
    if (std::any_of(step.epilogues.begin(), step.epilogues.end(),
                    [](const Program& program) { return !(program == Program()); }))
      op += " + epilogue";
    rows.push_back(
        {indent + step.name, op, step.kernel, fmt::format("{}", fmt::join(outputs, " "))});
    for (const BodyUse& use : bodies_of(step.op))
      add_steps(plan.bodies[static_cast<size_t>(use.body)], indent + "  ", rows, kernels);
  }
}

std::string plan_text(const Plan& plan, std::span<const Tensor> weights, bool with_decisions) {
  std::string text =
      fmt::format("\nplan for {} (devices {}): {}, arena {}\n", printable(plan.target),
                  printable(fmt::format("{}", fmt::join(plan.devices, ", "))),
                  count_text(plan.steps.size(), "step"), arena_text(plan, weights));
  text += ports_text(plan_ports(plan, plan.inputs), plan_ports(plan, plan.outputs));
  text += symbols_text(open_sizes(plan));
  text += memory_text(plan, weights);
  text += laid_out_text(plan, weights);
  Rows rows = {{"step", "op", "kernel", "output"}};
  std::map<std::string, size_t> kernels;
  add_steps(plan, "", rows, kernels);
  text += "\n" + table_text(rows, {false, false, false, false});
  text += "\nkernels\n" + counts_text(kernels);
  text += fallbacks_text(plan);
  if (!with_decisions) {
    text += fmt::format("\n{} recorded; show with --decisions\n",
                        count_text(plan.decisions.size(), "decision"));
    return text;
  }
  rows = {{"stage", "subject", "decision", "launches", "traffic"}};
  for (const Decision& decision : plan.decisions)
    rows.push_back({decision.stage, decision.subject,
                    (decision.refused ? "refused: " : "") + one_line(decision.text),
                    saved_text(decision.saved_launches),
                    decision.saved_bytes == 0 ? "" : signed_bytes_text(-decision.saved_bytes)});
  return text + "\n" + table_text(rows, {false, false, false, true, true});
}

Json steps_json(const Plan& plan) {
  Json steps = Json::array();
  for (const Step& step : plan.steps) {
    Json outputs = Json::array();
    for (const uint32_t slot : step.outputs)
      outputs.push_back(slot == kNoSlot ? "" : type_text(plan, slot));
    steps.push_back({{"name", step.name},
                     {"origins", step.origins},
                     {"op", to_string(step.op, *plan.sizes)},
                     {"kernel", step.kernel},
                     {"device", plan.devices[step.device]},
                     {"outputs", std::move(outputs)}});
    for (const BodyUse& use : bodies_of(step.op)) {
      const Plan& body = plan.bodies[static_cast<size_t>(use.body)];
      steps.back()["bodies"].push_back({{"name", body.name}, {"steps", steps_json(body)}});
    }
  }
  return steps;
}

Json plan_json(const Plan& plan, std::span<const Tensor> weights) {
  Json decisions = Json::array();
  for (const Decision& decision : plan.decisions)
    decisions.push_back({{"stage", decision.stage},
                         {"subject", decision.subject},
                         {"text", decision.text},
                         {"refused", decision.refused},
                         {"saved_launches", decision.saved_launches},
                         {"saved_bytes", decision.saved_bytes}});
  Json json = {{"target", plan.target}, {"devices", plan.devices}};
  json["inputs"] = ports_json(plan_ports(plan, plan.inputs));
  json["outputs"] = ports_json(plan_ports(plan, plan.outputs));
  json["sizes"] = symbols_json(open_sizes(plan));
  const std::vector<uint64_t> arena_bytes = fixed_arena_bytes(plan, weights);
  json["splits_batch"] = plan.batch_split.has_value();
  json["exact"] = plan.is_exact;
  json["arena_bytes"] = arena_bytes.empty() ? Json(nullptr) : Json(arena_bytes);
  json["code_bytes"] = plan.code.size();
  json["activation_memory"] = memory_json(plan, weights);
  json["weights_laid_out"] = laid_out_weights(plan, weights);
  json["steps"] = steps_json(plan);
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

std::string model_text(const ImportResult& model) {
  const Graph& graph = model.graph;
  const WeightTotals constants = weight_totals(graph);
  std::string text = fmt::format(
      "model {}, opset {}, IR version {}, made by {}\n",
      model.info.graph_name.empty() ? "without a name" : printable(model.info.graph_name),
      model.info.opset, model.info.ir_version,
      model.info.producer.empty() ? "an unnamed program" : printable(model.info.producer));
  text += ports_text(graph_inputs(graph), graph_outputs(graph));
  text += symbols_text(open_sizes(graph));
  text += constant_inputs_text(model.constant_inputs);
  text += fmt::format(
      "weights {} in {}\n\n{}{}\n", bytes_text(constants.bytes),
      count_text(constants.count, "tensor"), count_text(layer_count(graph), "layer"),
      graph.bodies().empty()
          ? ""
          : fmt::format(", {} in bodies of If and Loop", layer_count(graph) - graph.layer_count()));
  return text + counts_text(op_counts(graph));
}

Json model_json(const ImportResult& model) {
  const WeightTotals constants = weight_totals(model.graph);
  Json json = {{"graph", model.info.graph_name},
               {"producer", model.info.producer},
               {"opset", model.info.opset},
               {"ir_version", model.info.ir_version}};
  json["inputs"] = ports_json(graph_inputs(model.graph));
  json["outputs"] = ports_json(graph_outputs(model.graph));
  json["sizes"] = symbols_json(open_sizes(model.graph));
  if (!model.constant_inputs.empty()) json["constant_inputs"] = model.constant_inputs;
  json["weight_bytes"] = constants.bytes;
  json["weight_tensors"] = constants.count;
  json["layers"] = layer_count(model.graph);
  json["ops"] = op_counts(model.graph);
  return json;
}

std::string engine_text(const EngineFile& file, bool with_decisions) {
  std::string text =
      fmt::format("engine of {}, made by {}\nweights {} in {}, {}\n",
                  file.model_name.empty() ? "a model without a name" : printable(file.model_name),
                  printable(file.producer), bytes_text(weight_bytes(file)),
                  count_text(file.weights.size(), "tensor"), count_text(file.plans.size(), "plan"));
  for (const Plan& plan : file.plans) text += plan_text(plan, file.weights, with_decisions);
  return text;
}

Json engine_json(const EngineFile& file) {
  Json plans = Json::array();
  for (const Plan& plan : file.plans) plans.push_back(plan_json(plan, file.weights));
  Json json = {{"model", file.model_name}, {"producer", file.producer}};
  json["weight_bytes"] = weight_bytes(file);
  json["weight_tensors"] = file.weights.size();
  json["plans"] = std::move(plans);
  return json;
}

}  // namespace anneal
