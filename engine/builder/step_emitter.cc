#include "anneal/engine/builder/step_emitter.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/fail.h"
#include "anneal/engine/slot_alignment.h"
#include "anneal/kernels/cuda/backend.h"

namespace anneal {
namespace {

Program identity_program(DataType dtype) {
  ProgramBuilder builder;
  const Reg input = builder.input(0, dtype);
  return builder.finish(input, dtype);
}

}  // namespace

void StepEmitter::note(std::string stage, std::string subject, std::string text) {
  plan_.decisions.push_back({std::move(stage), std::move(subject), std::move(text)});
}

uint32_t StepEmitter::input(ValueId value, size_t place) {
  if (value == ValueId::kNone) return kNoSlot;
  if (const uint32_t slot = slots_.home(value, place); slot != kNoSlot) return slot;
  const Value& info = graph_.value(value);
  if (graph_.constant(value)) {
    const Shape strides = row_major_strides(info.type().shape, graph_.sizes());
    return slots_.set_home(value, place, slots_.add_constant(value, strides, place));
  }
  const uint32_t home = slots_.home(value, slots_.first_place(value));
  if (home == kNoSlot) {
    check(info.producer != LayerId::kNone, "a value is emitted before it is read");
    add_sizes(graph_.layer(info.producer));
    return input(value, place);
  }
  const auto direct = slots_.direct_output(value);
  const bool to_port = direct && place == slots_.place_of_output(*direct);
  const uint32_t from = to_port ? row_major(home) : dense(home);
  const Slot there = slots_[from];
  const Storage storage =
      there.storage == Storage::kDataDependent ? Storage::kDataDependent : Storage::kArena;
  const uint32_t here =
      to_port ? plan_.outputs[*direct]
              : slots_.add(fmt::format("{}/{}", info.name, places_[place].device->target()),
                           there.type, there.strides, storage, place);
  add_transfer(from, here);
  return slots_.set_home(value, place, here);
}

size_t StepEmitter::place_of(ValueId value) {
  if (value == ValueId::kNone || graph_.constant(value)) return slots_.host();
  if (slots_.home(value, slots_.first_place(value)) == kNoSlot) input(value, slots_.host());
  return slots_.first_place(value);
}

std::string StepEmitter::copy_key(uint32_t slot, const Shape& strides) const {
  return fmt::format("{}:{}", slot, graph_.sizes().text(strides));
}

std::pair<uint32_t, bool> StepEmitter::with_strides(uint32_t slot, const Shape& strides) {
  const std::string key = copy_key(slot, strides);
  if (const auto known = copies_.find(key); known != copies_.end()) return {known->second, false};
  const Slot from = slots_[slot];
  const std::string name = from.name + "/layout";
  const uint32_t copy = slots_.add(name, from.type, strides, Storage::kArena, from.device);
  copies_.emplace(key, copy);
  add_copy(slot, copy, name);
  return {copy, true};
}

uint32_t StepEmitter::dense(uint32_t slot) {
  const Slot& from = slots_[slot];
  return from.strides == strides_of(from.type, Layout::kChannelsLast, graph_.sizes())
             ? slot
             : row_major(slot);
}

uint32_t StepEmitter::row_major(uint32_t slot) {
  const Shape strides = row_major_strides(slots_[slot].type.shape, graph_.sizes());
  return slots_[slot].strides == strides ? slot : with_strides(slot, strides).first;
}

void StepEmitter::store_constants(const Layer& layer, const LaidOutChoice& chosen, size_t place,
                                  std::vector<uint32_t>& inputs) {
  for (const auto& [i, strides] : chosen.laid_out) {
    auto [slot, is_new] = copies_.try_emplace(copy_key(inputs[i], strides), kNoSlot);
    if (is_new) slot->second = slots_.add_constant(layer.inputs[i], strides, place);
    inputs[i] = slot->second;
    note("layout", layer.name,
         fmt::format("\"{}\" is stored with strides {} for {}", slots_[inputs[i]].name,
                     graph_.sizes().text(strides), chosen.entry->name));
  }
}

void StepEmitter::ask_chooser(const Layer& layer, const LayerOperands& operands, size_t place,
                              KernelChoice& chosen) {
  if (chooser_ == nullptr || place != slots_.host()) return;
  if (auto decision = chooser_->choose(*places_[place].backend,
                                       request_of(graph_, layer, operands, *places_[place].device),
                                       layer.name, chosen))
    plan_.decisions.push_back(std::move(*decision));
}

void StepEmitter::add(const Layer& layer, LaidOutChoice chosen, size_t place,
                      std::vector<uint32_t> inputs, std::vector<uint32_t> outputs) {
  for (const auto& [kernel, why] : chosen.refused)
    note("kernel", layer.name, fmt::format("{} refused: {}", kernel, why));
  if (std::holds_alternative<Require>(layer.op))
    note(std::string(kRequired), layer.name, "runs fail where this condition does not hold");
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
                         .tactic = chosen.kernel->tactic(),
                         .runner_up = std::string(chosen.runner_up ? chosen.runner_up->name : ""),
                         .runner_up_tactic = std::move(chosen.runner_up_tactic)});
  if (place != slots_.host()) kernels_.push_back(std::move(chosen.kernel));
}

void StepEmitter::add_copy(uint32_t from, uint32_t to, const std::string& name,
                           std::vector<std::string> origins) {
  Layer layer{.name = name,
              .origins = std::move(origins),
              .op = Pointwise{identity_program(slots_[to].type.dtype)}};
  layer.op_input_count = 1;
  const LayerOperands operands{{slots_.operand(from)}, {slots_.operand(to)}};
  const size_t place = slots_[to].device;
  LaidOutChoice chosen = choose(layer, operands, place);
  if (!chosen.entry)
    fail(ErrorCode::kUnsupported,
         fmt::format("no kernel for {} copies \"{}\"{}", places_[place].device->target(),
                     slots_[from].name, refusals_text(chosen)));
  add(layer, std::move(chosen), place, {from}, {to});
}

void StepEmitter::add_transfer(uint32_t from, uint32_t to) {
  const Slot &source = slots_[from], &target = slots_[to];
  plan_.steps.push_back({.name = fmt::format("{}/to_{}", source.name,
                                             target.device == slots_.host() ? "host" : "device"),
                         .kernel = std::string(kTransfer),
                         .device = std::min(source.device, target.device),
                         .op = Pointwise{identity_program(source.type.dtype)},
                         .op_input_count = 1,
                         .inputs = {from},
                         .outputs = {to}});
}

bool StepEmitter::is_sizes(const Layer& layer) {
  return std::holds_alternative<SizeTensor>(layer.op) && layer.epilogues.empty();
}

uint32_t StepEmitter::add_sizes(const Layer& layer) {
  check(is_sizes(layer), "a value is emitted before it is read");
  plan_.steps.push_back({.name = layer.name,
                         .origins = layer.origins,
                         .kernel = "sizes",
                         .device = static_cast<uint8_t>(slots_.host()),
                         .op = layer.op});
  const uint32_t slot = slots_.output(layer.outputs[0], slots_.host());
  plan_.steps.back().outputs = {slot};
  return slot;
}

void StepEmitter::add_control_flow(const Layer& layer, const ControlPlaces& places) {
  const bool any_on_gpu = places.uses_first();
  // A value whose size values decide stays on the host.
  const auto place = [&](ValueId value, const std::vector<size_t>& wanted, size_t at) {
    const bool is_late =
        value != ValueId::kNone && slots_.is_data_dependent(graph_.value(value).type());
    return any_on_gpu && !is_late ? wanted[at] : slots_.host();
  };
  Step step{.name = layer.name,
            .origins = layer.origins,
            .kernel = "control_flow",
            .device = static_cast<uint8_t>(slots_.host()),
            .op = layer.op};
  step.op_input_count = static_cast<uint32_t>(layer.op_input_count);
  for (size_t i = 0; i < layer.inputs.size(); ++i) {
    const ValueId value = layer.inputs[i];
    const uint32_t slot = input(value, place(value, places.inputs, i));
    const bool is_port_on_gpu = any_on_gpu && places.inputs[i] != slots_.host();
    step.inputs.push_back(slot != kNoSlot && is_port_on_gpu ? row_major(slot) : slot);
  }
  for (size_t k = 0; k < layer.outputs.size(); ++k) {
    const ValueId value = layer.outputs[k];
    step.outputs.push_back(slots_.output(value, place(value, places.outputs, k)));
  }
  plan_.steps.push_back(std::move(step));
}

}  // namespace anneal
