#include "anneal/engine/builder/self_check/plan_layers.h"

#include <algorithm>

#include "anneal/core/dtype_kinds.h"
#include "anneal/graph/op/op_traits.h"

namespace anneal {
namespace {

// Copies that the builder adds are elementwise layers.
bool moves(const Step& step) {
  if (step.kernel.ends_with(".copy") || step.kernel == kTransfer) return true;
  return *traits_of(step.op).half == HalfRole::kMoves && step.epilogues.empty();
}
bool multiplies(const Step& step) { return *traits_of(step.op).half == HalfRole::kProduct; }

}  // namespace

PlanLayers::PlanLayers(const Graph& model, const Plan& plan) {
  add_names(model);
  add_steps(plan);
}

void PlanLayers::add_names(const Graph& model) {
  for (const LayerId id : model.order()) {
    const Layer& layer = model.layer(id);
    names_.insert(layer.name);
    names_.insert(layer.origins.begin(), layer.origins.end());
  }
  for (const Graph& body : model.bodies()) add_names(body);
}

void PlanLayers::add_steps(const Plan& plan) {
  for (const Step& step : plan.steps) {
    const Place place{&plan, &step};
    steps_.emplace(step.name, place);
    for (const uint32_t output : step.outputs)
      if (output != kNoSlot) makers_[plan.slots[output].name].push_back(place);
    for (const uint32_t input : step.inputs)
      if (input != kNoSlot) readers_[plan.slots[input].name].push_back(place);
  }
  // A view that no step makes is as its base, and a base holds what views of it are.
  std::set<uint32_t> written;
  for (const Step& step : plan.steps) written.insert(step.outputs.begin(), step.outputs.end());
  const auto copy_makers = [&](bool from_written) {
    for (uint32_t slot = 0; slot < plan.slots.size(); ++slot) {
      if (plan.slots[slot].storage != Storage::kView || written.contains(slot) != from_written)
        continue;
      const std::string& name = plan.slots[slot].name;
      const std::string& base = plan.slots[plan.slots[slot].base].name;
      const std::vector<Place> made = makers_[from_written ? name : base];
      std::vector<Place>& of = makers_[from_written ? base : name];
      of.insert(of.end(), made.begin(), made.end());
      if (from_written) continue;
      const std::vector<Place> read = readers_[name];
      readers_[base].insert(readers_[base].end(), read.begin(), read.end());
    }
  };
  copy_makers(true);
  copy_makers(false);
  for (const Plan& body : plan.bodies) add_steps(body);
}

std::set<std::string> PlanLayers::of_step(std::string_view step) const {
  std::set<std::string> layers;
  const auto found = steps_.find(step);
  if (found == steps_.end()) return layers;
  if (names_.contains(found->second.step->name)) layers.insert(found->second.step->name);
  for (const std::string& origin : found->second.step->origins)
    if (names_.contains(origin)) layers.insert(origin);
  return layers;
}

bool PlanLayers::is_lower(std::string_view step) const {
  const auto found = steps_.find(step);
  if (found == steps_.end()) return true;
  const Plan* const plan = found->second.plan;
  const Step* const it = found->second.step;
  const auto is_low = [&](uint32_t slot) {
    return slot != kNoSlot &&
           (is_half(plan->slots[slot].type.dtype) || is_8bit(plan->slots[slot].type.dtype));
  };
  const auto rounds = [](const Program& program) {
    return std::ranges::any_of(program.code(), is_storage_rounding);
  };
  const auto rounds_in = [&](const Step& one) {
    const Program* const own = program_of(one.op);
    return std::ranges::any_of(one.epilogues, rounds) || (own != nullptr && rounds(*own));
  };
  // The CPU keeps 16 bits of a product's operands in f32.
  const auto is_rounded = [&](uint32_t slot) {
    const auto made = slot == kNoSlot ? makers_.end() : makers_.find(plan->slots[slot].name);
    return made != makers_.end() && std::ranges::any_of(made->second, [&](const Place& maker) {
             return rounds_in(*maker.step);
           });
  };
  return std::ranges::any_of(it->inputs, is_low) || std::ranges::any_of(it->outputs, is_low) ||
         rounds_in(*it) || std::ranges::any_of(it->inputs, is_rounded);
}

std::string PlanLayers::name_of(std::string_view step) const {
  const std::set<std::string> layers = of_step(step);
  const std::string own(step);
  return layers.empty() || layers.contains(own) ? own : *layers.begin();
}

std::set<std::string> PlanLayers::makers(const std::string& value) const {
  std::set<std::string> result, seen;
  std::vector<std::string> left = {value};
  while (!left.empty()) {
    const std::string now = left.back();
    left.pop_back();
    const auto found = makers_.find(now);
    if (found == makers_.end() || !seen.insert(now).second) continue;
    for (const Place& maker : found->second) {
      result.insert(maker.step->name);
      if (!moves(*maker.step)) continue;
      for (const uint32_t input : maker.step->inputs)
        if (input != kNoSlot) left.push_back(maker.plan->slots[input].name);
    }
  }
  return result;
}

std::set<std::string> PlanLayers::products_of(const std::string& value) const {
  std::set<std::string> result, seen;
  std::vector<std::string> left = {value};
  while (!left.empty()) {
    const std::string now = left.back();
    left.pop_back();
    const auto found = readers_.find(now);
    if (found == readers_.end() || !seen.insert(now).second) continue;
    for (const Place& reader : found->second) {
      if (multiplies(*reader.step)) result.insert(reader.step->name);
      // Casts that a pass has added have the name of their value.
      const bool casts = std::holds_alternative<Pointwise>(reader.step->op) &&
                         reader.step->inputs.size() == 1 && reader.step->name.starts_with(now);
      if (!moves(*reader.step) && !casts) continue;
      for (const uint32_t output : reader.step->outputs)
        if (output != kNoSlot) left.push_back(reader.plan->slots[output].name);
    }
  }
  return result;
}

std::vector<std::string> PlanLayers::inputs_of(std::string_view step) const {
  std::vector<std::string> values;
  const auto found = steps_.find(step);
  if (found == steps_.end()) return values;
  for (const uint32_t input : found->second.step->inputs) {
    if (input == kNoSlot) continue;
    const Slot& slot = found->second.plan->slots[input];
    if (is_float(slot.type.dtype) && slot.storage != Storage::kWeight) values.push_back(slot.name);
  }
  return values;
}

}  // namespace anneal
