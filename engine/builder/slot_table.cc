#include "anneal/engine/builder/slot_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/engine/symbols.h"

namespace anneal {

SlotTable::SlotTable(const Graph& graph, std::span<const Place> places, Plan& plan,
                     std::vector<bool> outside)
    : graph_(graph), places_(places), plan_(plan), solvable_(std::move(outside)) {}

// Bounds, or demands of layers, may exclude the sizes of a default value.
bool SlotTable::may_be(const Type& type, const Dims& dims) const {
  bool fits = type.shape.rank() == dims.rank();
  for (int axis = 0; fits && axis < dims.rank(); ++axis) {
    const Bounds bounds = graph_.sizes().range(type.shape[axis]);
    fits = bounds.min <= dims[axis] && dims[axis] <= bounds.max;
  }
  return fits;
}

void SlotTable::add_ports(const BodyPlaces* body) {
  for (const ValueId input : graph_.inputs()) {
    const Value& info = graph_.value(input);
    const size_t place = body ? body->inputs[plan_.inputs.size()] : host();
    const uint32_t slot =
        add(info.name, info.type(), row_major_strides(info.type().shape, graph_.sizes()),
            Storage::kInput, place);
    set_home(input, place, slot);
    plan_.inputs.push_back(slot);
    if (!info.default_value) continue;
    if (!may_be(info.type(), info.default_value->dims())) {
      plan_.decisions.push_back({std::string(kNoDefaultValue), info.name,
                                 fmt::format("its default value of shape {} is dropped: the engine "
                                             "accepts {}, so every run must set the input",
                                             to_string(info.default_value->dims()),
                                             graph_.sizes().text(info.type().shape)),
                                 true});
      continue;
    }
    plan_.input_defaults.resize(graph_.inputs().size(), kNoDefault);
    plan_.input_defaults[plan_.inputs.size() - 1] = static_cast<uint32_t>(
        constants_.add(*info.default_value, row_major_strides(info.default_value->dims())));
  }
  plan_.sizes = std::make_shared<const SizeTable>(graph_.sizes());
  solvable_ = solvable_symbols(plan_, std::move(solvable_));
  for (size_t i = 0; i < graph_.outputs().size(); ++i) {
    const auto& [name, value] = graph_.outputs()[i];
    const Type& type = graph_.value(value).type();
    const Storage storage = is_data_dependent(type) ? Storage::kDataDependent : Storage::kOutput;
    plan_.outputs.push_back(add(name, type, row_major_strides(type.shape, graph_.sizes()), storage,
                                body ? body->outputs[i] : host()));
    if (graph_.value(value).producer != LayerId::kNone) direct_outputs_.try_emplace(value, i);
  }
}

void SlotTable::lay_out_ports(const std::unordered_map<ValueId, Shape>& strides) {
  for (size_t i = 0; i < plan_.inputs.size(); ++i)
    if (const auto known = strides.find(graph_.inputs()[i]); known != strides.end())
      plan_.slots[plan_.inputs[i]].strides = known->second;
  for (size_t i = 0; i < plan_.outputs.size(); ++i) {
    const ValueId value = graph_.outputs()[i].value;
    if (const auto known = strides.find(value); known != strides.end() && direct_output(value) == i)
      plan_.slots[plan_.outputs[i]].strides = known->second;
  }
}

void SlotTable::set_layouts(Layouts layouts, ValuePlacement placement) {
  layouts_ = std::move(layouts);
  placement_ = std::move(placement);
}

bool SlotTable::is_data_dependent(const Type& type) const {
  return depends_on_values(type.shape, graph_.sizes(), solvable_);
}

std::optional<size_t> SlotTable::direct_output(ValueId value) const {
  const auto direct = direct_outputs_.find(value);
  return direct == direct_outputs_.end() ? std::nullopt : std::optional(direct->second);
}

std::optional<ValuePlacement::Inside> SlotTable::inside(ValueId value) const {
  const auto inside = placement_.inside.find(value);
  return inside == placement_.inside.end() ? std::nullopt : std::optional(inside->second);
}

SlotTable::Homes& SlotTable::homes_of(ValueId value) {
  Homes& homes = homes_[value];
  homes.by_place.resize(places_.size(), kNoSlot);
  return homes;
}

uint32_t SlotTable::home(ValueId value, size_t place) { return homes_of(value).by_place[place]; }

size_t SlotTable::first_place(ValueId value) { return homes_of(value).first; }

uint32_t SlotTable::set_home(ValueId value, size_t place, uint32_t slot) {
  Homes& homes = homes_of(value);
  if (std::ranges::all_of(homes.by_place, [](uint32_t known) { return known == kNoSlot; }))
    homes.first = place;
  return homes.by_place[place] = slot;
}

uint32_t SlotTable::output(ValueId value, size_t place) {
  if (const uint32_t slot = home(value, place); slot != kNoSlot) return slot;
  const Value& info = graph_.value(value);
  if (placement_.inside.contains(value)) {
    const Region part = region(value, place);
    return set_home(value, place, add_view(info.name, info.type(), part.view, part.base));
  }
  if (const auto direct = direct_output(value); direct && place == place_of_output(*direct))
    return set_home(value, place, plan_.outputs[*direct]);
  const bool data_dependent = is_data_dependent(info.type());
  // Late slots of a plan for several devices are row-major (plan_check.cc).
  const bool is_row_major = data_dependent && places_.size() > 1;
  const Shape strides = is_row_major ? row_major_strides(info.type().shape, graph_.sizes())
                                     : layouts_.strides_of_value(graph_, value);
  return set_home(value, place,
                  add(info.name, info.type(), strides,
                      data_dependent ? Storage::kDataDependent : Storage::kArena, place));
}

SlotTable::Region SlotTable::region(ValueId value, size_t place) {
  const auto inside = placement_.inside.find(value);
  if (inside == placement_.inside.end()) {
    const uint32_t base = output(value, place);
    return {base, {plan_.slots[base].strides, 0}};
  }
  const Layer& by = graph_.layer(inside->second.by);
  const Region whole = region(by.outputs[0], place);
  const auto within = operand_within(graph_, by, inside->second.operand, whole.view.strides);
  check(within.has_value(), "what is placed within another value has a place there");
  return {whole.base, {within->strides, graph_.sizes().add(whole.view.offset, within->offset)}};
}

uint32_t SlotTable::add(std::string name, const Type& type, const Shape& strides, Storage storage,
                        size_t place) {
  plan_.slots.push_back({.name = std::move(name),
                         .type = type,
                         .strides = strides,
                         .storage = storage,
                         .device = static_cast<uint8_t>(place)});
  return static_cast<uint32_t>(plan_.slots.size() - 1);
}

uint32_t SlotTable::add_view(const std::string& name, const Type& type, const ViewOf& view,
                             uint32_t of) {
  const Slot from = plan_.slots[of];
  const uint32_t slot = add(name, type, view.strides, Storage::kView, from.device);
  plan_.slots[slot].base = from.storage == Storage::kView ? from.base : of;
  plan_.slots[slot].base_offset = graph_.sizes().add(from.base_offset, view.offset);
  return slot;
}

uint32_t SlotTable::add_constant(ValueId value, const Shape& strides, size_t place) {
  const Value& info = graph_.value(value);
  const uint32_t slot = add(info.name, info.type(), strides, Storage::kWeight, place);
  plan_.slots[slot].offset = constants_.add(*graph_.constant(value), dims_of(strides));
  return slot;
}

Operand SlotTable::operand(uint32_t slot, const Tensor* constant) const {
  if (slot == kNoSlot) return {.present = false};
  return {
      .type = plan_.slots[slot].type, .strides = plan_.slots[slot].strides, .constant = constant};
}

LayerOperands SlotTable::operands(const Layer& layer, std::span<const uint32_t> inputs,
                                  std::span<const uint32_t> outputs) const {
  LayerOperands operands;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ValueId value = layer.inputs[i];
    operands.inputs.push_back(
        operand(inputs[i], value == ValueId::kNone ? nullptr : graph_.constant(value)));
  }
  for (const uint32_t slot : outputs) operands.outputs.push_back(operand(slot));
  return operands;
}

}  // namespace anneal
