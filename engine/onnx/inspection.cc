#include "anneal/engine/onnx/inspection.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <string_view>

#include "anneal/core/error.h"
#include "anneal/engine/builder/replay/kernel_chooser.h"
#include "anneal/engine/builder/timing/candidates.h"
#include "anneal/engine/builder/timing/choose_by_times.h"
#include "anneal/engine/kernel_library.h"
#include "anneal/engine/plan.h"
#include "anneal/engine/plan_check.h"
#include "anneal/engine/plan_text.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/engine/run/memory/activation_memory.h"
#include "anneal/engine/run/memory/bound_plan.h"
#include "anneal/engine/symbols.h"
#include "anneal/graph/text/text.h"
#include "anneal/importer/importer.h"
#include "anneal/kernels/cuda/backend.h"
#include "anneal/kernels/cuda/cost/tactic_text.h"

namespace anneal {
namespace {

// As callers see it: with the fixed batch that may run in parts.
std::string type_text(const Plan& plan, uint32_t slot) {
  Type type = plan.slots[slot].type;
  type.shape = port_shape(plan, slot);
  return to_string(type, *plan.sizes);
}

// For a row of a table.
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

std::vector<InspectedPort> ports_of(const Plan& plan, const std::vector<uint32_t>& slots) {
  std::vector<InspectedPort> ports;
  for (const uint32_t slot : slots) ports.push_back({plan.slots[slot].name, type_text(plan, slot)});
  for (size_t i = 0; slots == plan.inputs && i < plan.input_defaults.size(); ++i)
    ports[i].has_default = plan.input_defaults[i] != kNoDefault;
  if (slots == plan.inputs)
    for (const auto [input, output] : plan.states)
      ports[input].state_output = plan.slots[plan.outputs[output]].name;
  return ports;
}

// Those of the symbols that callers choose: sizes of inputs.
std::vector<InspectedSize> chosen_sizes(const SizeTable& sizes,
                                        const std::vector<bool>& of_inputs) {
  std::vector<InspectedSize> chosen;
  for (size_t i = 0; i < of_inputs.size(); ++i) {
    if (!of_inputs[i]) continue;
    const SizeSymbol& symbol = sizes.symbols()[i];
    chosen.push_back({symbol.name, symbol.bounds.min, symbol.bounds.opt, symbol.bounds.max});
  }
  return chosen;
}

// No run binds another number of rows of a fixed batch.
std::vector<InspectedSize> sizes_of(const Plan& plan) {
  std::vector<bool> of_inputs = solvable_symbols(plan);
  if (plan.batch_split && plan.batch_split->is_fixed) of_inputs[plan.batch_split->symbol] = false;
  return chosen_sizes(*plan.sizes, of_inputs);
}

InspectedMemory inspected_memory(const Plan& plan, std::span<const Tensor> weights) {
  try {
    const ActivationMemory memory = activation_memory(plan, weights);
    return {{}, memory.arena_bytes, memory.live_bytes, memory.ratio(), memory.at_best};
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    InspectedMemory unknown;
    unknown.error = error.what();
    return unknown;
  }
}

std::string library_of(std::string_view kernel) {
  if (kernel.starts_with("cudnn.")) return "cuDNN";
  if (kernel.starts_with("cublaslt.")) return "cuBLASLt";
  return kernel.find("onednn") != std::string_view::npos ? "oneDNN" : "Anneal";
}

KernelSource source_of(std::string_view kernel) {
  const KernelEntry* const entry = find_kernel(cuda_backend(), kernel);
  return entry == nullptr ? KernelSource::kOwn : entry->source;
}

// What the decision about times says of the step; text: empty if there is none.
void add_times(const Step& step, std::string_view text, InspectedStep& made) {
  std::string name = timing_name(step.kernel, step.tactic, source_of(step.kernel));
  if (!time_in(text, name)) name = step.kernel;  // a tactic that follows from the layer alone
  made.microseconds = time_in(text, name).value_or(0);
  made.runner_up = step.runner_up.empty()
                       ? fastest_other_in(text, name)
                       : timing_name(step.runner_up, step.runner_up_tactic, KernelSource::kOwn);
  made.runner_up_microseconds = time_in(text, made.runner_up).value_or(0);
}

std::vector<InspectedStep> steps_of(const Plan& plan) {
  std::map<std::string_view, std::string_view> timings;  // by layer
  for (const Decision& decision : plan.decisions)
    if (decision.stage == kTiming) timings.emplace(decision.subject, decision.text);
  std::vector<InspectedStep> steps;
  for (const Step& step : plan.steps) {
    InspectedStep& made = steps.emplace_back();
    made.name = step.name;
    made.op = to_string(step.op);
    made.op_text = to_string(step.op, *plan.sizes);
    made.kernel = step.kernel;
    made.tactic = cuda::tactic_text(step.kernel, step.tactic);
    made.library = library_of(step.kernel);
    const auto timing = timings.find(step.name);
    add_times(step, timing == timings.end() ? std::string_view() : timing->second, made);
    made.device = plan.devices[step.device];
    made.origins = step.origins;
    made.has_epilogue = !std::ranges::all_of(step.epilogues, &Program::empty);
    for (const uint32_t slot : step.outputs) {
      made.outputs.push_back(slot == kNoSlot ? "" : type_text(plan, slot));
      made.short_outputs.push_back(slot == kNoSlot ? "-" : short_type_text(plan, slot));
    }
    for (const BodyUse& use : bodies_of(step.op)) {
      const Plan& body = plan.bodies[static_cast<size_t>(use.body)];
      made.bodies.push_back({body.name, steps_of(body)});
    }
  }
  return steps;
}

// Those of bodies only where layers fell back to the CPU.
void add_decisions(const Plan& plan, bool is_body, std::vector<InspectedDecision>& decisions) {
  for (const Decision& decision : plan.decisions)
    if (!is_body || decision.stage == kFallback)
      decisions.push_back({decision.stage, decision.subject, decision.text, decision.refused,
                           decision.stage == kFallback, decision.saved_launches,
                           decision.saved_bytes});
  for (const Plan& body : plan.bodies) add_decisions(body, true, decisions);
}

InspectedPlan inspected(const Plan& plan, std::span<const Tensor> weights) {
  InspectedPlan result;
  result.target = plan.target;
  result.profile = plan.profile;
  result.devices = plan.devices;
  result.inputs = ports_of(plan, plan.inputs);
  result.outputs = ports_of(plan, plan.outputs);
  result.sizes = sizes_of(plan);
  result.splits_batch = plan.batch_split.has_value();
  result.is_exact = plan.is_exact;
  result.arena_bytes = fixed_arena_bytes(plan, weights);
  result.code_bytes = plan.code.size();
  result.memory = inspected_memory(plan, weights);
  result.formula = memory_formula(plan);
  result.weights_laid_out =
      static_cast<size_t>(std::ranges::count_if(plan.slots, [&](const Slot& slot) {
        return slot.storage == Storage::kWeight && !is_row_major_weight(slot, weights[slot.offset]);
      }));
  result.steps = steps_of(plan);
  add_decisions(plan, false, result.decisions);
  return result;
}

// Weights and values without memory, with those of bodies.
void add_plan(const Plan& plan, PlanFacts& loaded) {
  for (const Slot& slot : plan.slots)
    if (slot.storage == Storage::kWeight)
      loaded.weight_bytes +=
          static_cast<uint64_t>(count(dims_of(slot.type.shape))) * size_of(slot.type.dtype);
  for (const Decision& decision : plan.decisions) {
    if (decision.stage == kFusedInto)
      loaded.vanished.push_back({decision.subject, decision.text, ""});
    if (decision.stage == kEliminated)
      loaded.vanished.push_back({decision.subject, "", decision.text});
  }
  for (const Plan& body : plan.bodies) add_plan(body, loaded);
}

PlanFacts facts_of(const Plan& plan) {
  PlanFacts facts{plan.target, plan.steps.size(), 0, {}};
  add_plan(plan, facts);
  return facts;
}

InspectedPort port_of(const Graph& graph, const std::string& name, ValueId id) {
  const Value& value = graph.value(id);
  return {name, to_string(value.type(), graph.sizes()), value.default_value.has_value()};
}

// Layers and weights of the graph and the bodies of its If and Loop.
void count_in(const Graph& graph, InspectedModel& model) {
  std::set<ValueId> seen;
  for (const LayerId id : graph.order()) {
    ++model.ops[std::string(to_string(graph.layer(id).op))];
    for (const ValueId input : graph.layer(id).inputs) {
      if (input == ValueId::kNone || !graph.constant(input) || !seen.insert(input).second) continue;
      ++model.weight_tensors;
      model.weight_bytes += graph.constant(input)->bytes().size();
    }
  }
  model.layers += graph.layer_count();
  for (const Graph& body : graph.bodies()) count_in(body, model);
}

ImportResult import_with(const std::string& path, const std::vector<std::string>& libraries) {
  return import_file(path, {.operators = load_kernel_libraries(libraries)});
}
EngineFile read_with(const std::string& path, bool map, const std::vector<std::string>& libraries,
                     const std::string& weights) {
  return read_engine_file(
      path, {.map = map, .operators = load_kernel_libraries(libraries), .weights = weights});
}

}  // namespace

PlanFacts plan_facts(const Engine& engine) { return facts_of(plan_of(engine)); }
PlanFacts plan_facts(const ExecutionContext& context) { return facts_of(plan_of(context)); }

InspectedModel inspect_model(const std::string& path, const std::vector<std::string>& libraries) {
  const ImportResult imported = import_with(path, libraries);
  const Graph& graph = imported.graph;
  InspectedModel model;
  model.graph = imported.info.graph_name;
  model.producer = imported.info.producer;
  model.opset = imported.info.opset;
  model.ir_version = imported.info.ir_version;
  for (const ValueId id : graph.inputs())
    model.inputs.push_back(port_of(graph, graph.value(id).name, id));
  for (const Graph::Output& output : graph.outputs()) {
    model.outputs.push_back(port_of(graph, output.name, output.value));
    model.outputs.back().has_default = false;
  }
  model.sizes = chosen_sizes(graph.sizes(), graph.symbols_of_inputs());
  model.constant_inputs = imported.constant_inputs;
  count_in(graph, model);
  model.body_layers = model.layers - graph.layer_count();
  model.has_bodies = !graph.bodies().empty();
  return model;
}

InspectedEngine inspect_engine(const std::string& path, bool map,
                               const std::vector<std::string>& libraries,
                               const std::string& weights) {
  const EngineFile file = read_with(path, map, libraries, weights);
  InspectedEngine engine;
  engine.model = file.model_name;
  engine.producer = file.producer;
  engine.weight_tensors = file.weights.size();
  for (const Tensor& weight : file.weights) engine.weight_bytes += weight.bytes().size();
  for (const Plan& plan : file.plans) engine.plans.push_back(inspected(plan, file.weights));
  return engine;
}

std::string graph_text_of(const std::string& path, const std::vector<std::string>& libraries) {
  return to_string(import_with(path, libraries).graph);
}

std::string plans_text_of(const std::string& path, bool map,
                          const std::vector<std::string>& libraries, const std::string& weights) {
  std::string text;
  for (const Plan& plan : read_with(path, map, libraries, weights).plans)
    text += to_string(plan, cuda::tactic_text);
  return text;
}

}  // namespace anneal
