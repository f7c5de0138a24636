#include "anneal/engine/builder/emit.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "anneal/engine/builder/layout.h"
#include "anneal/engine/builder/lifetimes.h"
#include "anneal/engine/builder/placement.h"
#include "anneal/engine/builder/readers.h"
#include "anneal/engine/builder/stored_constants.h"
#include "anneal/engine/builder/views.h"
#include "anneal/engine/slot_alignment.h"
#include "anneal/engine/symbols.h"
#include "anneal/kernels/cuda/backend.h"

namespace anneal {
namespace {

Program identity_program(DataType dtype) {
  ProgramBuilder builder;
  const Reg input = builder.input(0, dtype);
  return builder.finish(input, dtype);
}

class Emitter {
 public:
  // outside: of a body, the symbols that are solvable in the outer graph.
  Emitter(const Graph& graph, std::span<const Place> places, WeightPool& weights,
          KernelTimer* timer, std::vector<bool> outside = {})
      : graph_(graph),
        places_(places),
        weights_(weights),
        timer_(timer),
        solvable_(std::move(outside)) {}

  Plan run();

 private:
  void add_ports();
  void emit_layer(LayerId id, const Layouts::OfLayer& choice);
  static bool is_sizes(const Layer& layer);  // of what the run time computes itself
  uint32_t emit_sizes(const Layer& layer);
  bool emit_view(LayerId id);
  bool emit_in_place(LayerId id);
  void emit_kernel(const Layer& layer, size_t place, Layout preferred);
  void emit_control_flow(const Layer& layer);
  void emit_bodies();
  void emit_copy(uint32_t from, uint32_t to, const std::string& name,
                 std::vector<std::string> origins = {});
  void emit_transfer(uint32_t from, uint32_t to);
  void emit_missing_outputs();

  // Where a value lies: one slot per place at most.
  struct Homes {
    std::vector<uint32_t> by_place;
    size_t first = 0;  // where it came from
  };
  Homes& homes_of(ValueId value);
  uint32_t set_home(ValueId value, size_t place, uint32_t slot);
  uint32_t slot_of(ValueId value, size_t place);
  // Of the first input of a layer that may be a view: where it lies.
  size_t place_of(ValueId value);
  uint32_t new_slot(std::string name, const Type& type, const Shape& strides, Storage storage,
                    size_t place);
  // Where a layer writes the value: its port, a part of another value, or memory of its own.
  uint32_t output_slot(ValueId value, size_t place);
  // The part of a base slot where a value that is inside others lies.
  struct Region {
    uint32_t base = kNoSlot;
    ViewOf view;
  };
  Region region_of(ValueId value, size_t place);
  uint32_t view_slot(const std::string& name, const Type& type, const ViewOf& view, uint32_t of);
  uint32_t constant_slot(ValueId value, const Shape& strides, size_t place);
  // Replaces constants by copies that lie as the kernel asked for.
  void store_constants(const Layer& layer, const LaidOutChoice& chosen, size_t place,
                       std::vector<uint32_t>& inputs);
  // The slot itself, or a row-major copy of it if it is not one piece of memory.
  uint32_t dense(uint32_t slot);
  uint32_t row_major(uint32_t slot);
  size_t host() const { return places_.size() - 1; }
  LaidOutChoice choose(const Layer& layer, const LayerOperands& operands, size_t place,
                       FreeInputs free = FreeInputs::kConstants) const {
    return choose_kernel(places_[place], graph_, layer, operands, free);
  }
  bool is_late(const Type& type) const {
    return depends_on_values(type.shape, graph_.sizes(), solvable_);
  }
  Operand operand_of(uint32_t slot, const Tensor* constant) const;
  LayerOperands actual_operands(const Layer& layer, const std::vector<uint32_t>& inputs,
                                const std::vector<uint32_t>& outputs) const;
  // Of the CPU's kernels that take the operands as they are.
  void choose_by_time(const Layer& layer, const LayerOperands& operands, size_t place,
                      KernelChoice& chosen);
  void add_step(const Layer& layer, LaidOutChoice chosen, size_t place,
                std::vector<uint32_t> inputs, std::vector<uint32_t> outputs);
  void note(std::string stage, std::string subject, std::string text) {
    plan_.decisions.push_back({std::move(stage), std::move(subject), std::move(text)});
  }

  const Graph& graph_;
  std::span<const Place> places_;
  WeightPool& weights_;
  KernelTimer* timer_;
  Plan plan_;
  Layouts layouts_;
  std::optional<Readers> readers_;
  Placement placement_;
  std::vector<bool> solvable_;
  std::unordered_map<ValueId, Homes> homes_;
  std::unordered_map<ValueId, size_t> direct_outputs_;  // values written straight to a port
  std::unordered_map<std::string, uint32_t> copies_;    // by slot and strides
  std::vector<std::string> unsupported_;
  StoredConstants constants_;
  std::vector<std::unique_ptr<Kernel>> kernels_;  // those whose code the plan will have
};

uint32_t Emitter::new_slot(std::string name, const Type& type, const Shape& strides,
                           Storage storage, size_t place) {
  plan_.slots.push_back({.name = std::move(name),
                         .type = type,
                         .strides = strides,
                         .storage = storage,
                         .device = static_cast<uint8_t>(place)});
  return static_cast<uint32_t>(plan_.slots.size() - 1);
}

Emitter::Homes& Emitter::homes_of(ValueId value) {
  Homes& homes = homes_[value];
  homes.by_place.resize(places_.size(), kNoSlot);
  return homes;
}

uint32_t Emitter::set_home(ValueId value, size_t place, uint32_t slot) {
  Homes& homes = homes_of(value);
  if (std::ranges::all_of(homes.by_place, [](uint32_t known) { return known == kNoSlot; }))
    homes.first = place;
  return homes.by_place[place] = slot;
}

uint32_t Emitter::slot_of(ValueId value, size_t place) {
  if (value == ValueId::kNone) return kNoSlot;
  Homes& homes = homes_of(value);
  if (homes.by_place[place] != kNoSlot) return homes.by_place[place];
  const Tensor* constant = graph_.constant(value);
  const Value& info = graph_.value(value);
  if (constant) {
    const Shape strides = graph_.sizes().row_major_strides(info.type().shape);
    return set_home(value, place, constant_slot(value, strides, place));
  }
  if (homes.by_place[homes.first] == kNoSlot) {
    check(info.producer != LayerId::kNone, "a value is emitted before it is read");
    emit_sizes(graph_.layer(info.producer));
    return slot_of(value, place);
  }
  const uint32_t home = homes.by_place[homes.first];
  const auto direct = direct_outputs_.find(value);
  const bool to_port = place == host() && direct != direct_outputs_.end();
  const uint32_t from = to_port ? row_major(home) : dense(home);
  const Slot there = plan_.slots[from];
  const uint32_t here =
      to_port ? plan_.outputs[direct->second]
              : new_slot(fmt::format("{}/{}", info.name, places_[place].device->target()),
                         there.type, there.strides, Storage::kArena, place);
  emit_transfer(from, here);
  return homes_of(value).by_place[place] = here;
}

uint32_t Emitter::constant_slot(ValueId value, const Shape& strides, size_t place) {
  const Value& info = graph_.value(value);
  const uint32_t slot = new_slot(info.name, info.type(), strides, Storage::kWeight, place);
  plan_.slots[slot].offset = constants_.add(*graph_.constant(value), dims_of(strides));
  return slot;
}

void Emitter::store_constants(const Layer& layer, const LaidOutChoice& chosen, size_t place,
                              std::vector<uint32_t>& inputs) {
  for (const auto& [i, strides] : chosen.laid_out) {
    const std::string text = graph_.sizes().text(strides);
    auto [slot, is_new] = copies_.try_emplace(fmt::format("{}:{}", inputs[i], text), kNoSlot);
    if (is_new) slot->second = constant_slot(layer.inputs[i], strides, place);
    inputs[i] = slot->second;
    note("layout", layer.name,
         fmt::format("\"{}\" is stored with strides {} for {}", plan_.slots[inputs[i]].name, text,
                     chosen.entry->name));
  }
}

size_t Emitter::place_of(ValueId value) {
  if (value == ValueId::kNone || graph_.constant(value)) return host();
  if (homes_of(value).by_place[homes_of(value).first] == kNoSlot) slot_of(value, host());
  return homes_of(value).first;
}

uint32_t Emitter::dense(uint32_t slot) {
  const Slot& from = plan_.slots[slot];
  return from.strides == strides_of(from.type, Layout::kChannelsLast, graph_.sizes())
             ? slot
             : row_major(slot);
}

uint32_t Emitter::row_major(uint32_t slot) {
  const Slot from = plan_.slots[slot];
  const Shape strides = graph_.sizes().row_major_strides(from.type.shape);
  if (from.strides == strides) return slot;
  auto [copy, is_new] =
      copies_.try_emplace(fmt::format("{}:{}", slot, graph_.sizes().text(strides)), kNoSlot);
  if (is_new) {
    copy->second =
        new_slot(from.name + "/layout", from.type, strides, Storage::kArena, from.device);
    emit_copy(slot, copy->second, from.name + "/layout");
  }
  return copy->second;
}

// Ports are row-major. A value that is an output and comes from a kernel is written there directly.
void Emitter::add_ports() {
  for (const ValueId input : graph_.inputs()) {
    const Value& info = graph_.value(input);
    const uint32_t slot =
        new_slot(info.name, info.type(), graph_.sizes().row_major_strides(info.type().shape),
                 Storage::kInput, host());
    set_home(input, host(), slot);
    plan_.inputs.push_back(slot);
  }
  plan_.sizes = std::make_shared<const SizeTable>(graph_.sizes());
  solvable_ = solvable_symbols(plan_, std::move(solvable_));
  for (size_t i = 0; i < graph_.outputs().size(); ++i) {
    const auto& [name, value] = graph_.outputs()[i];
    const Type& type = graph_.value(value).type();
    const Shape strides = graph_.sizes().row_major_strides(type.shape);
    plan_.outputs.push_back(new_slot(
        name, type, strides, is_late(type) ? Storage::kDataDependent : Storage::kOutput, host()));
    if (graph_.value(value).producer != LayerId::kNone) direct_outputs_.try_emplace(value, i);
  }
}

uint32_t Emitter::view_slot(const std::string& name, const Type& type, const ViewOf& view,
                            uint32_t of) {
  const Slot from = plan_.slots[of];
  const uint32_t slot = new_slot(name, type, view.strides, Storage::kView, from.device);
  plan_.slots[slot].base = from.storage == Storage::kView ? from.base : of;
  plan_.slots[slot].base_offset = graph_.sizes().add(from.base_offset, view.offset);
  return slot;
}

Emitter::Region Emitter::region_of(ValueId value, size_t place) {
  const auto inside = placement_.inside.find(value);
  if (inside == placement_.inside.end()) {
    const uint32_t base = output_slot(value, place);
    return {base, {plan_.slots[base].strides, 0}};
  }
  const Layer& by = graph_.layer(inside->second.by);
  const Region whole = region_of(by.outputs[0], place);
  const auto within = operand_within(graph_, by, inside->second.operand, whole.view.strides);
  check(within.has_value(), "what is placed within another value has a place there");
  return {whole.base, {within->strides, graph_.sizes().add(whole.view.offset, within->offset)}};
}

uint32_t Emitter::output_slot(ValueId value, size_t place) {
  if (const uint32_t slot = homes_of(value).by_place[place]; slot != kNoSlot) return slot;
  if (placement_.inside.contains(value)) {
    const Region region = region_of(value, place);
    return set_home(
        value, place,
        view_slot(graph_.value(value).name, graph_.value(value).type(), region.view, region.base));
  }
  if (const auto direct = direct_outputs_.find(value);
      place == host() && direct != direct_outputs_.end())
    return set_home(value, place, plan_.outputs[direct->second]);
  const Value& info = graph_.value(value);
  const bool late = is_late(info.type());
  const Shape strides = late ? graph_.sizes().row_major_strides(info.type().shape)
                             : layouts_.strides_of_value(graph_, value);
  return set_home(value, place,
                  new_slot(info.name, info.type(), strides,
                           late ? Storage::kDataDependent : Storage::kArena, place));
}

Operand Emitter::operand_of(uint32_t slot, const Tensor* constant) const {
  if (slot == kNoSlot) return {.present = false};
  return {
      .type = plan_.slots[slot].type, .strides = plan_.slots[slot].strides, .constant = constant};
}

LayerOperands Emitter::actual_operands(const Layer& layer, const std::vector<uint32_t>& inputs,
                                       const std::vector<uint32_t>& outputs) const {
  LayerOperands operands;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ValueId value = layer.inputs[i];
    operands.inputs.push_back(
        operand_of(inputs[i], value == ValueId::kNone ? nullptr : graph_.constant(value)));
  }
  for (const uint32_t output : outputs) operands.outputs.push_back(operand_of(output, nullptr));
  return operands;
}

bool Emitter::emit_view(LayerId id) {
  const Layer& layer = graph_.layer(id);
  if (layer.outputs.size() != 1 || layer.inputs.empty()) return false;
  if (placement_.inside.contains(layer.outputs[0])) return false;
  const size_t home = place_of(layer.inputs[0]);
  if (home == host() && direct_outputs_.contains(layer.outputs[0])) return false;
  const Value& output = graph_.value(layer.outputs[0]);
  const Slot from = plan_.slots[slot_of(layer.inputs[0], home)];
  if (from.storage == Storage::kDataDependent || is_late(output.type())) return false;
  // A plan has no step for a view, so what inference carries through the layer would be lost.
  if (output.fact.elements) return false;
  const Moved moved = placement_.moved_views.contains(id) ? Moved::kIsView : Moved::kNeedsKernel;
  if (!view_of(graph_, layer, from.strides, moved)) return false;
  Readers::Views views = readers_->views(layer, home, [&](size_t place) {
    return homes_of(layer.inputs[0]).by_place[place] != kNoSlot;
  });
  note("memory", layer.name, std::move(views.why));
  for (const size_t place : views.places) {
    const uint32_t source = slot_of(layer.inputs[0], place);
    const auto view = view_of(graph_, layer, plan_.slots[source].strides, moved);
    check(view.has_value(), "a copy to another device is a view where the original is one");
    set_home(layer.outputs[0], place, view_slot(output.name, output.type(), *view, source));
  }
  return true;
}

void Emitter::choose_by_time(const Layer& layer, const LayerOperands& operands, size_t place,
                             KernelChoice& chosen) {
  if (timer_ == nullptr || place != host()) return;
  if (auto decision = timer_->choose(*places_[place].backend,
                                     request_of(graph_, layer, operands, *places_[place].device),
                                     layer.name, chosen))
    plan_.decisions.push_back(std::move(*decision));
}

void Emitter::add_step(const Layer& layer, LaidOutChoice chosen, size_t place,
                       std::vector<uint32_t> inputs, std::vector<uint32_t> outputs) {
  for (const auto& [kernel, why] : chosen.refused)
    note("kernel", layer.name, fmt::format("{} refused: {}", kernel, why));
  store_constants(layer, chosen, place, inputs);
  if (places_[place].device->kind() == DeviceKind::kCuda)
    know_alignments(*chosen.kernel, alignments_of(plan_, inputs), alignments_of(plan_, outputs));
  plan_.steps.push_back({.name = layer.name,
                         .origins = layer.origins,
                         .kernel = std::string(chosen.entry->name),
                         .device = static_cast<uint8_t>(place),
                         .op = layer.op,
                         .epilogues = layer.epilogues,
                         .op_input_count = static_cast<uint32_t>(layer.op_input_count),
                         .inputs = std::move(inputs),
                         .outputs = std::move(outputs),
                         .tactic = chosen.kernel->tactic()});
  if (place != host()) kernels_.push_back(std::move(chosen.kernel));
}

void Emitter::emit_copy(uint32_t from, uint32_t to, const std::string& name,
                        std::vector<std::string> origins) {
  Layer layer{.name = name,
              .origins = std::move(origins),
              .op = Pointwise{identity_program(plan_.slots[to].type.dtype)}};
  layer.op_input_count = 1;
  LayerOperands operands{{operand_of(from, nullptr)}, {operand_of(to, nullptr)}};
  const size_t place = plan_.slots[to].device;
  LaidOutChoice chosen = choose(layer, operands, place);
  if (!chosen.entry)
    fail(Code::kUnsupported,
         fmt::format("no kernel for {} copies \"{}\"{}", places_[place].device->target(),
                     plan_.slots[from].name, refusals_text(chosen)));
  add_step(layer, std::move(chosen), place, {from}, {to});
}

void Emitter::emit_transfer(uint32_t from, uint32_t to) {
  const Slot &source = plan_.slots[from], &target = plan_.slots[to];
  plan_.steps.push_back(
      {.name = fmt::format("{}/to_{}", source.name, target.device == host() ? "host" : "device"),
       .kernel = std::string(kTransfer),
       .device = std::min(source.device, target.device),
       .op = Pointwise{identity_program(source.type.dtype)},
       .op_input_count = 1,
       .inputs = {from},
       .outputs = {to}});
}

// The kernel that is best for ideal layouts, with copies at the edges where its operands lie
// differently; or the best one for the operands as they are, if no better one is to be had.
void Emitter::emit_kernel(const Layer& layer, size_t place, Layout preferred) {
  std::vector<uint32_t> inputs, outputs;
  for (size_t i = 0; i < layer.inputs.size(); ++i)
    inputs.push_back(slot_of(layer.inputs[i], is_host_value(layer, i) ? host() : place));
  for (const ValueId output : layer.outputs) outputs.push_back(output_slot(output, place));
  const LayerOperands actual = actual_operands(layer, inputs, outputs);
  LaidOutChoice chosen = choose(layer, actual, place);
  const LayerOperands ideal = ideal_operands(graph_, layer, preferred);
  const auto is_late_slot = [&](uint32_t slot) {
    return slot != kNoSlot && plan_.slots[slot].storage == Storage::kDataDependent;
  };
  const bool late =
      std::ranges::any_of(inputs, is_late_slot) || std::ranges::any_of(outputs, is_late_slot);
  const LaidOutChoice best = late ? LaidOutChoice{} : choose(layer, ideal, place, FreeInputs::kAll);
  if (!best.entry && !chosen.entry) {
    unsupported_.push_back(
        fmt::format("layer \"{}\" ({}){}", layer.name, to_string(layer.op), refusals_text(chosen)));
    return;
  }
  if (!best.entry || (chosen.entry && best.refused.size() >= chosen.refused.size())) {
    if (!late) choose_by_time(layer, actual, place, chosen);
    add_step(layer, std::move(chosen), place, std::move(inputs), std::move(outputs));
    return;
  }

  const LayerOperands operands =
      nearest_operands(places_[place], graph_, layer, best, ideal, actual);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == kNoSlot || operands.inputs[i].strides == actual.inputs[i].strides) continue;
    const std::string key =
        fmt::format("{}:{}", inputs[i], graph_.sizes().text(operands.inputs[i].strides));
    auto [copy, is_new] = copies_.try_emplace(key, kNoSlot);
    if (is_new) {
      const Slot from = plan_.slots[inputs[i]];
      copy->second = new_slot(from.name + "/layout", from.type, operands.inputs[i].strides,
                              Storage::kArena, from.device);
      emit_copy(inputs[i], copy->second, from.name + "/layout");
      note("layout", layer.name,
           fmt::format("\"{}\" is copied for {}", from.name, best.entry->name));
    }
    inputs[i] = copy->second;
  }
  std::vector<std::pair<uint32_t, uint32_t>> after;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (operands.outputs[i].strides == actual.outputs[i].strides) continue;
    const Slot to = plan_.slots[outputs[i]];
    const uint32_t own =
        new_slot(to.name + "/layout", to.type, operands.outputs[i].strides, Storage::kArena, place);
    after.emplace_back(own, outputs[i]);
    note("layout", layer.name,
         fmt::format("\"{}\" is copied from the layout of {}", to.name, best.entry->name));
    outputs[i] = own;
  }
  chosen = choose(layer, operands, place);
  choose_by_time(layer, operands, place, chosen);
  add_step(layer, std::move(chosen), place, std::move(inputs), std::move(outputs));
  for (const auto& [from, to] : after) emit_copy(from, to, plan_.slots[from].name);
}

bool Emitter::is_sizes(const Layer& layer) {
  return std::holds_alternative<SizeTensor>(layer.op) && layer.epilogues.empty();
}

uint32_t Emitter::emit_sizes(const Layer& layer) {
  check(is_sizes(layer), "a value is emitted before it is read");
  plan_.steps.push_back({.name = layer.name,
                         .origins = layer.origins,
                         .kernel = "sizes",
                         .device = static_cast<uint8_t>(host()),
                         .op = layer.op});
  const uint32_t slot = output_slot(layer.outputs[0], host());
  plan_.steps.back().outputs = {slot};
  return slot;
}

// The context runs the bodies itself: no kernel, and no layout but that of ports.
void Emitter::emit_control_flow(const Layer& layer) {
  Step step{.name = layer.name,
            .origins = layer.origins,
            .kernel = "control_flow",
            .device = static_cast<uint8_t>(host()),
            .op = layer.op};
  step.op_input_count = static_cast<uint32_t>(layer.op_input_count);
  for (const ValueId input : layer.inputs) step.inputs.push_back(slot_of(input, host()));
  for (const ValueId output : layer.outputs) step.outputs.push_back(output_slot(output, host()));
  plan_.steps.push_back(std::move(step));
}

void Emitter::emit_bodies() {
  for (const Graph& body : graph_.bodies())
    plan_.bodies.push_back(Emitter(body, places_.last(1), weights_, timer_, solvable_).run());
}

// What was written where the layer's output lies is done; the rest is copied there.
bool Emitter::emit_in_place(LayerId id) {
  const Layer& layer = graph_.layer(id);
  std::optional<size_t> placed;
  std::vector<size_t> copied;
  for (size_t i = 0; i < layer.inputs.size(); ++i) {
    const auto inside = placement_.inside.find(layer.inputs[i]);
    if (inside != placement_.inside.end() && inside->second.by == id && inside->second.operand == i)
      placed = i;
    else
      copied.push_back(i);
  }
  if (!placed) return false;
  if (!std::holds_alternative<Concat>(layer.op)) copied.clear();
  const size_t place = homes_of(layer.inputs[*placed]).first;
  const Region whole = region_of(layer.outputs[0], place);
  for (const size_t i : copied) {
    const Value& operand = graph_.value(layer.inputs[i]);
    if (operand.type().shape[static_cast<int>(std::get<Concat>(layer.op).axis)] == Size(0))
      continue;
    auto within = operand_within(graph_, layer, i, whole.view.strides);
    check(within.has_value(), "every operand of a concat has its place");
    within->offset = graph_.sizes().add(whole.view.offset, within->offset);
    const std::string name = fmt::format("{}/copy of {}", layer.name, operand.name);
    const uint32_t from = slot_of(layer.inputs[i], place);
    emit_copy(from, view_slot(name, operand.type(), *within, whole.base), name, layer.origins);
  }
  output_slot(layer.outputs[0], place);
  return true;
}

void Emitter::emit_layer(LayerId id, const Layouts::OfLayer& choice) {
  const Layer& layer = graph_.layer(id);
  const auto note_fallback = [&] {
    if (!choice.why_not_first.empty())
      note(std::string(kFallback), layer.name,
           fmt::format("{} runs on {}{}", to_string(layer.op),
                       places_[choice.place].device->target(), choice.why_not_first));
  };
  if (!bodies_of(layer.op).empty()) {
    note_fallback();
    return emit_control_flow(layer);
  }
  if (is_sizes(layer)) {
    // Nothing goes into sizes, so they could all be there from the start, and would live long. They
    // come before their first reader instead, and not at all where only views read them.
    if (direct_outputs_.contains(layer.outputs[0])) emit_sizes(layer);
    return;
  }
  if (emit_in_place(id) || emit_view(id)) return;
  note_fallback();
  emit_kernel(layer, choice.place, choice.layout);
}

// Outputs that are inputs, constants, or outputs already.
void Emitter::emit_missing_outputs() {
  for (size_t i = 0; i < graph_.outputs().size(); ++i) {
    const ValueId value = graph_.outputs()[i].value;
    const uint32_t slot = slot_of(value, host());
    if (slot != plan_.outputs[i])
      emit_copy(slot, plan_.outputs[i], graph_.outputs()[i].name + "/output");
  }
}

Plan Emitter::run() {
  plan_.target = places_[0].device->target();
  for (const Place& place : places_) plan_.devices.push_back(place.device->target());
  plan_.name = graph_.name;
  add_ports();
  layouts_ = choose_layouts(graph_, places_,
                            [&](ValueId value) { return is_late(graph_.value(value).type()); });
  readers_.emplace(graph_, places_, layouts_);
  placement_ = place_values({graph_, places_, layouts_, *readers_,
                             [&](ValueId value) { return is_late(graph_.value(value).type()); },
                             [&](ValueId value) { return direct_outputs_.contains(value); }});
  plan_.decisions = std::move(placement_.decisions);
  for (const LayerId id : graph_.order())
    emit_layer(id, layouts_.of_layer[static_cast<size_t>(id)]);
  if (!unsupported_.empty())
    fail(Code::kUnsupported,
         fmt::format("target {} cannot run:\n  {}", plan_.target, fmt::join(unsupported_, "\n  ")));
  emit_missing_outputs();
  constants_.pool(plan_, weights_);
  emit_bodies();
  plan_.sizes = std::make_shared<const SizeTable>(graph_.sizes());
  share_in_place(plan_);
  place_arena(plan_);
  if (!kernels_.empty()) plan_.code = places_[0].device->load_code({});
  return std::move(plan_);
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
          KernelTimer* timer) {
  Plan plan = Emitter(graph, places, weights, timer).run();
  share_sizes(plan);
  return plan;
}

}  // namespace anneal
