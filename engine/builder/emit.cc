#include "anneal/engine/builder/emit.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/engine/builder/body_places.h"
#include "anneal/engine/builder/layout.h"
#include "anneal/engine/builder/lifetimes.h"
#include "anneal/engine/builder/memory_check.h"
#include "anneal/engine/builder/placement.h"
#include "anneal/engine/builder/readers.h"
#include "anneal/engine/builder/slot_table.h"
#include "anneal/engine/builder/state_ports.h"
#include "anneal/engine/builder/step_emitter.h"
#include "anneal/engine/builder/views.h"

namespace anneal {
namespace {

// Decides for each layer whether it is a view, a part of another value, or a step.
class LayerEmitter {
 public:
  LayerEmitter(const Graph& graph, std::span<const Place> places, const Layouts& layouts,
               Plan& plan, SlotTable& slots, StepEmitter& steps,
               std::span<const AppendedPorts> appended, bool copies_parts)
      : graph_(graph),
        places_(places),
        layouts_(layouts),
        plan_(plan),
        slots_(slots),
        steps_(steps),
        appended_(appended),
        copies_parts_(copies_parts) {}

  void emit_layers();
  // Outputs that are inputs, constants, or outputs already.
  void emit_missing_outputs();

 private:
  void emit_layer(LayerId id);
  void note_fallback(const Layer& layer, const Layouts::OfLayer& choice);
  bool emit_view(LayerId id);
  bool emit_in_place(LayerId id);
  const AppendedPorts* appended_by(const Layer& layer) const;
  void emit_kernel(const Layer& layer, size_t place, Layout preferred);
  // Of an output of the graph that is written straight to its port.
  std::optional<size_t> port_place(ValueId value) const {
    const auto port = slots_.direct_output(value);
    return port ? std::optional(slots_.place_of_output(*port)) : std::nullopt;
  }
  // The kernel with copies at the edges where its operands lie differently.
  void emit_with_copies(const Layer& layer, size_t place, const LaidOutChoice& best,
                        const LayerOperands& operands, const LayerOperands& actual,
                        std::vector<uint32_t> inputs, std::vector<uint32_t> outputs);

  const Graph& graph_;
  std::span<const Place> places_;
  const Layouts& layouts_;
  Plan& plan_;
  SlotTable& slots_;
  StepEmitter& steps_;
  std::span<const AppendedPorts> appended_;
  bool copies_parts_;
  std::optional<Readers> readers_;
  std::vector<std::string> unsupported_;
};

bool LayerEmitter::emit_view(LayerId id) {
  const Layer& layer = graph_.layer(id);
  if (layer.outputs.size() != 1 || layer.inputs.empty()) return false;
  if (copies_parts_ && std::holds_alternative<Slice>(layer.op)) return false;
  const ValueId input = layer.inputs[0], value = layer.outputs[0];
  if (slots_.inside(value)) return false;
  const size_t home = steps_.place_of(input);
  if (const auto port = port_place(value); port == home) return false;
  const Value& output = graph_.value(value);
  const Slot from = slots_[steps_.input(input, home)];
  if (from.storage == Storage::kDataDependent || slots_.is_data_dependent(output.type()))
    return false;
  // A plan has no step for a view, so the contents that inference knows would be lost.
  if (output.fact.elements) return false;
  const Moved moved = slots_.is_moved_view(id) ? Moved::kIsView : Moved::kNeedsKernel;
  if (!view_of(graph_, layer, from.strides, moved)) return false;
  Readers::Views views = readers_->views(
      layer, home, [&](size_t place) { return slots_.home(input, place) != kNoSlot; });
  steps_.note("memory", layer.name, std::move(views.why));
  for (const size_t place : views.places) {
    const uint32_t source = steps_.input(input, place);
    const auto view = view_of(graph_, layer, slots_[source].strides, moved);
    check(view.has_value(), "a copy to another device is a view where the original is one");
    slots_.set_home(value, place, slots_.add_view(output.name, output.type(), *view, source));
  }
  return true;
}

const AppendedPorts* LayerEmitter::appended_by(const Layer& layer) const {
  for (const AppendedPorts& ports : appended_)
    if (layer.outputs.size() == 1 && graph_.outputs()[ports.output].value == layer.outputs[0])
      return &ports;
  return nullptr;
}

// Operands that were written into the layer's output are done; the others are copied there.
bool LayerEmitter::emit_in_place(LayerId id) {
  const Layer& layer = graph_.layer(id);
  std::optional<size_t> placed;
  std::vector<size_t> copied;
  for (size_t i = 0; i < layer.inputs.size(); ++i) {
    const auto inside = slots_.inside(layer.inputs[i]);
    if (inside && inside->by == id && inside->operand == i)
      placed = i;
    else
      copied.push_back(i);
  }
  const AppendedPorts* const appended = appended_by(layer);
  if (!placed && !appended) return false;
  if (!std::holds_alternative<Concat>(layer.op)) copied.clear();
  const size_t place = placed ? slots_.first_place(layer.inputs[*placed]) : slots_.host();
  const SlotTable::Region whole = slots_.region(layer.outputs[0], place);
  for (const size_t i : copied) {
    const Value& operand = graph_.value(layer.inputs[i]);
    if (operand.type().shape[static_cast<int>(std::get<Concat>(layer.op).axis)] == Size(0))
      continue;
    auto within = operand_within(graph_, layer, i, whole.view.strides);
    check(within.has_value(), "every operand of a concat has its place");
    within->offset = graph_.sizes().add(whole.view.offset, within->offset);
    const std::string name = fmt::format("{}/copy of {}", layer.name, operand.name);
    const uint32_t from = steps_.input(layer.inputs[i], place);
    steps_.add_copy(from, slots_.add_view(name, operand.type(), *within, whole.base), name,
                    layer.origins);
  }
  slots_.output(layer.outputs[0], place);
  if (appended) {
    plan_.appended_ports.push_back(*appended);
    steps_.note("memory", layer.name,
                fmt::format("appends rows to the memory of \"{}\" where a context keeps it",
                            graph_.value(graph_.inputs()[appended->input]).name));
  }
  return true;
}

// The kernel that is best for ideal layouts, with copies where its operands have others; or the
// best one for the present operands, if no better one is available.
void LayerEmitter::emit_kernel(const Layer& layer, size_t place, Layout preferred) {
  std::vector<uint32_t> inputs, outputs;
  for (size_t i = 0; i < layer.inputs.size(); ++i)
    inputs.push_back(
        steps_.input(layer.inputs[i], is_host_value(layer, i) ? slots_.host() : place));
  for (const ValueId output : layer.outputs) outputs.push_back(slots_.output(output, place));
  const LayerOperands actual = slots_.operands(layer, inputs, outputs);
  LaidOutChoice chosen = steps_.choose(layer, actual, place);
  const auto is_data_dependent = [&](uint32_t slot) {
    return slot != kNoSlot && slots_[slot].storage == Storage::kDataDependent;
  };
  const bool data_dependent = std::ranges::any_of(inputs, is_data_dependent) ||
                              std::ranges::any_of(outputs, is_data_dependent);
  const LayerOperands ideal =
      ideal_operands(graph_, layer, data_dependent ? Layout::kRowMajor : preferred);
  LaidOutChoice best;
  if (!data_dependent || place != slots_.host())
    best = steps_.choose(layer, ideal, place,
                         data_dependent ? FreeInputs::kConstants : FreeInputs::kAll);
  if (!best.entry && !chosen.entry) {
    unsupported_.push_back(
        fmt::format("layer \"{}\" ({}){}", layer.name, to_string(layer.op), refusals_text(chosen)));
    return;
  }
  if (!best.entry || (chosen.entry && best.refused.size() >= chosen.refused.size())) {
    if (!data_dependent) steps_.ask_chooser(layer, actual, place, chosen);
    return steps_.add(layer, std::move(chosen), place, std::move(inputs), std::move(outputs));
  }
  const LayerOperands operands =
      nearest_operands(places_[place], graph_, layer, best, ideal, actual);
  emit_with_copies(layer, place, best, operands, actual, std::move(inputs), std::move(outputs));
}

void LayerEmitter::emit_with_copies(const Layer& layer, size_t place, const LaidOutChoice& best,
                                    const LayerOperands& operands, const LayerOperands& actual,
                                    std::vector<uint32_t> inputs, std::vector<uint32_t> outputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == kNoSlot || operands.inputs[i].strides == actual.inputs[i].strides) continue;
    const auto [copy, is_new] = steps_.with_strides(inputs[i], operands.inputs[i].strides);
    if (is_new)
      steps_.note("layout", layer.name,
                  fmt::format("\"{}\" is copied for {}", slots_[inputs[i]].name, best.entry->name));
    inputs[i] = copy;
  }
  std::vector<std::pair<uint32_t, uint32_t>> after;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (operands.outputs[i].strides == actual.outputs[i].strides) continue;
    const Slot to = slots_[outputs[i]];
    const uint32_t own = slots_.add(to.name + "/layout", to.type, operands.outputs[i].strides,
                                    Storage::kArena, place);
    after.emplace_back(own, outputs[i]);
    steps_.note("layout", layer.name,
                fmt::format("\"{}\" is copied from the layout of {}", to.name, best.entry->name));
    outputs[i] = own;
  }
  LaidOutChoice chosen = steps_.choose(layer, operands, place);
  steps_.ask_chooser(layer, operands, place, chosen);
  steps_.add(layer, std::move(chosen), place, std::move(inputs), std::move(outputs));
  for (const auto& [from, to] : after) steps_.add_copy(from, to, slots_[from].name);
}

void LayerEmitter::note_fallback(const Layer& layer, const Layouts::OfLayer& choice) {
  if (choice.why_not_first.empty() || is_host_work(layer.op)) return;
  steps_.note(std::string(choice.decides_shapes ? kDecidesShapes : kFallback), layer.name,
              fmt::format("{} runs on {}{}", to_string(layer.op),
                          places_[choice.place].device->target(), choice.why_not_first));
}

void LayerEmitter::emit_layer(LayerId id) {
  const Layer& layer = graph_.layer(id);
  const Layouts::OfLayer& choice = layouts_.of_layer[static_cast<size_t>(id)];
  if (!bodies_of(layer.op).empty()) {
    note_fallback(layer, choice);
    const ControlPlaces* const control = layouts_.control_of(id);
    return steps_.add_control_flow(layer, control ? *control : ControlPlaces());
  }
  if (StepEmitter::is_sizes(layer)) {
    // Nothing goes into sizes, so they could all be there from the start, and would live long. They
    // come before their first reader instead, and not at all where only views read them.
    if (slots_.direct_output(layer.outputs[0])) steps_.add_sizes(layer);
    return;
  }
  if (emit_in_place(id) || emit_view(id)) return;
  note_fallback(layer, choice);
  emit_kernel(layer, choice.place, choice.layout);
}

void LayerEmitter::emit_layers() {
  const auto is_late = [&](ValueId value) {
    return slots_.is_data_dependent(graph_.value(value).type());
  };
  std::vector<size_t> output_places;
  for (size_t i = 0; i < plan_.outputs.size(); ++i)
    output_places.push_back(slots_.place_of_output(i));
  readers_.emplace(graph_, places_, layouts_, output_places);
  ValuePlacement placement =
      place_values({graph_, places_, layouts_, *readers_, is_late,
                    [&](ValueId value) { return port_place(value); }, copies_parts_});
  std::ranges::move(placement.decisions, std::back_inserter(plan_.decisions));
  slots_.set_layouts(layouts_, std::move(placement));
  for (const LayerId id : graph_.order()) emit_layer(id);
  if (!unsupported_.empty())
    fail(ErrorCode::kUnsupported,
         fmt::format("target {} cannot run:\n  {}", plan_.target, fmt::join(unsupported_, "\n  ")));
}

void LayerEmitter::emit_missing_outputs() {
  for (size_t i = 0; i < graph_.outputs().size(); ++i) {
    const ValueId value = graph_.outputs()[i].value;
    const uint32_t slot = steps_.input(value, slots_.place_of_output(i));
    if (slot != plan_.outputs[i])
      steps_.add_copy(slot, plan_.outputs[i], graph_.outputs()[i].name + "/output");
  }
}

// What a graph and its bodies have in common.
struct Emission {
  WeightPool& weights;
  const EmitOptions& options;
  std::vector<std::unique_ptr<Kernel>> kernels = {};  // of devices; their code becomes the plan's
};

// By body: null where all of its layers are for the CPU.
std::vector<const BodyPlaces*> places_of_bodies(const Graph& graph, const Layouts& layouts) {
  std::vector<const BodyPlaces*> of_bodies(graph.bodies().size());
  for (const auto& [id, control] : layouts.control) {
    const std::vector<BodyUse> uses = bodies_of(graph.layer(id).op);
    for (size_t i = 0; i < control.bodies.size(); ++i)
      of_bodies[static_cast<size_t>(uses[i].body)] = &control.bodies[i];
  }
  return of_bodies;
}

// outside: of a body, the symbols that are solvable in the outer graph. body: of one that uses
// several places.
Plan emit_graph(const Graph& graph, std::span<const Place> places, Emission& emission,
                std::vector<bool> outside, bool is_outermost, const BodyPlaces* body = nullptr) {
  const EmitOptions& options = emission.options;
  Plan plan;
  plan.target = places[0].device->target();
  for (const Place& place : places) plan.devices.push_back(place.device->target());
  plan.name = graph.name;
  SlotTable slots(graph, places, plan, std::move(outside));
  StepEmitter steps(graph, places, plan, slots, options.chooser, emission.kernels);
  slots.add_ports(body);
  const bool may_append = is_outermost && !options.copies_parts;
  const std::vector<AppendedPorts> appended =
      may_append ? appended_ports(graph, options.states, places, slots)
                 : std::vector<AppendedPorts>();
  std::shared_ptr<const Layouts> layouts;
  if (body) {
    layouts = body->layouts;
  } else {
    Layouts made = choose_layouts_with_bodies(graph, places, slots.solvable());
    made.ports = strides_of_appended(graph, appended);
    slots.lay_out_ports(made.ports);
    layouts = std::make_shared<const Layouts>(std::move(made));
  }
  LayerEmitter layers(graph, places, *layouts, plan, slots, steps, appended, options.copies_parts);
  layers.emit_layers();
  layers.emit_missing_outputs();
  slots.pool_constants(emission.weights);
  const std::vector<const BodyPlaces*> of_bodies = places_of_bodies(graph, *layouts);
  for (size_t i = 0; i < graph.bodies().size(); ++i)
    plan.bodies.push_back(emit_graph(graph.bodies()[i], of_bodies[i] ? places : places.last(1),
                                     emission, slots.solvable(), false, of_bodies[i]));
  plan.sizes = std::make_shared<const SizeTable>(graph.sizes());
  check_slot_sizes(plan);
  share_in_place(plan);
  place_arena(plan);
  return plan;
}

// The table has grown since the bodies were emitted.
void share_sizes(Plan& plan) {
  for (Plan& body : plan.bodies) {
    body.sizes = plan.sizes;
    share_sizes(body);
  }
}

}  // namespace

Plan emit(const Graph& graph, std::span<const Place> places, WeightPool& weights,
          const EmitOptions& options) {
  Emission emission{weights, options};
  Plan plan = emit_graph(graph, places, emission, {}, true);
  share_sizes(plan);
  if (options.makes_code && !emission.kernels.empty())
    plan.code = places[0].device->prepare_code({});
  return plan;
}

}  // namespace anneal
