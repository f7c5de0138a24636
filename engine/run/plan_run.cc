#include "anneal/engine/run/plan_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "anneal/core/strided_copy.h"
#include "anneal/engine/plan_check.h"
#include "anneal/engine/run/recorded_steps.h"

namespace anneal {

PlanRun::PlanRun(const LoadedPlan& loaded, const RunResources& resources)
    : plan_(*loaded.plan),
      loaded_(loaded),
      resources_(resources),
      kept_(loaded.outer_symbols, static_cast<size_t>(resources.shape_cache_size)) {
  for (const LoadedPlan& body : loaded.bodies)
    bodies_.push_back(std::make_unique<PlanRun>(body, resources));
  inputs_.resize(plan_.inputs.size());
  outputs_.resize(plan_.outputs.size());
  input_dims_.resize(plan_.inputs.size());
  late_.resize(plan_.slots.size());
  iterations_.resize(plan_.steps.size());
  never_recorded_.resize(plan_.steps.size());
  symbols_.resize(plan_.sizes->symbols().size());
  arenas_.resize(plan_.devices.size());
  workspaces_.resize(plan_.devices.size());
  if (resources.red_zone && host() != 0)
    separate_ = std::make_unique<SeparateSlots>(plan_, resources.devices, resources.streams,
                                                *resources.separate_weights, *resources.red_zone);
}

PlanRun::~PlanRun() = default;

std::unique_ptr<Buffer> PlanRun::allocate(size_t index, size_t bytes) {
  const bool staging = host() != 0 && index == host();
  return resources_.budget->allocate(device(staging ? 0 : index), std::max<size_t>(bytes, 1),
                                     staging);
}

void PlanRun::ensure(std::unique_ptr<Buffer>& buffer, size_t bytes, size_t index) {
  if (buffer && buffer->size() >= bytes) return;
  BoundShapes* const bound = std::exchange(now_, nullptr);  // stays so if memory runs out
  buffer.reset();
  buffer = allocate(index, bytes);
  now_ = bound;
}

// Before the first of them is allocated.
void PlanRun::check_memory_limit(const BoundShapes& bound) const {
  size_t more = separate_ ? separate_->bytes_for(bound.plan) : 0;
  const auto add = [&](const std::unique_ptr<Buffer>& buffer, size_t bytes) {
    const size_t held = buffer ? buffer->size() : 0;
    if (bytes > held) more += bytes - held;  // the smaller buffer goes before
  };
  for (size_t i = 0; i < plan_.devices.size(); ++i) {
    if (!separate_ || i == host()) add(arenas_[i], bound.plan.arena_bytes[i]);
    add(workspaces_[i], bound.workspace_bytes[i]);
  }
  resources_.budget->require(more);
}

// The same, keeping what is used; with room to spare, so that growing step by step costs little.
void PlanRun::grow(std::unique_ptr<Buffer>& buffer, size_t used, size_t wanted) {
  if (buffer && buffer->size() >= wanted) return;
  std::unique_ptr<Buffer> larger = allocate(host(), std::max(wanted, used * 2));
  if (used != 0) std::memcpy(larger->data(), buffer->data(), used);
  buffer = std::move(larger);
}

void PlanRun::set_input(size_t index, const TensorView& memory) {
  inputs_[index].user = memory;
  inputs_[index].bound = true;
  input_dims_[index] = memory.dims;
  pointers_stale_ = true;
}

void PlanRun::set_output(size_t index, const TensorView& memory) {
  outputs_[index].user = memory;
  outputs_[index].bound = true;
  pointers_stale_ = true;
}

void PlanRun::clear_outputs() {
  for (Binding& output : outputs_) output.bound = false;
  pointers_stale_ = true;
}

void PlanRun::bind(const SymbolValues& outer) {
  BoundShapes* bound = kept_.find(input_dims_, outer);
  if (bound && bound == now_) return;
  now_ = nullptr;
  pointers_stale_ = true;
  if (!bound) bound = make_bound(outer);
  const auto making_room = [&] {
    return fmt::format("while making room for activations, the most of them at {}",
                       fullest_step(plan_, bound->plan));
  };
  with_context(making_room, [&] {
    check_memory_limit(*bound);
    ensure_arenas(*bound);
    for (size_t i = 0; i < plan_.devices.size(); ++i)
      ensure(workspaces_[i], bound->workspace_bytes[i], i);
  });
  slots_ = bound->plan.slots;
  steps_ = bound->steps;
  now_ = bound;
}

void PlanRun::ensure_arenas(const BoundShapes& bound) {
  if (separate_) separate_->place(bound.plan);
  for (size_t i = separate_ ? host() : 0; i < plan_.devices.size(); ++i)
    ensure(arenas_[i], bound.plan.arena_bytes[i], i);
}

BoundShapes* PlanRun::make_bound(const SymbolValues& outer) {
  auto bound = kept_.make(input_dims_, outer);
  bound->plan = bind_shapes(plan_, resources_.weights, input_dims_, outer);
  bound->workspace_bytes.assign(plan_.devices.size(), 0);
  bound->recordings.clear();
  bound->recordings.resize(plan_.steps.size());
  bound->recorded_addresses.clear();
  bound->has_run = false;
  bound->steps.resize(plan_.steps.size());
  const std::vector<TensorView>& slots = bound->plan.slots;
  for (size_t i = 0; i < plan_.steps.size(); ++i) {
    const Step& step = plan_.steps[i];
    StepState& state = bound->steps[i];
    state.inputs.resize(step.inputs.size());
    state.outputs.resize(step.outputs.size());
    for (size_t k = 0; k < step.inputs.size(); ++k)
      state.inputs[k] = step.inputs[k] == kNoSlot ? TensorView{} : slots[step.inputs[k]];
    for (size_t k = 0; k < step.outputs.size(); ++k) state.outputs[k] = slots[step.outputs[k]];
    state.prepared.reset();
    if (loaded_.deferred[i] || !loaded_.kernels[i]) continue;
    prepare_step(i, state);
    size_t& most = bound->workspace_bytes[step.device];
    most = std::max(most, state.prepared->workspace_bytes);
  }
  return kept_.add(std::move(bound));
}

std::optional<Dims> PlanRun::output_dims(size_t index) const {
  const uint32_t slot = plan_.outputs[index];
  if (plan_.slots[slot].storage == Storage::kDataDependent) return std::nullopt;
  return slots_[slot].dims;
}

void PlanRun::stage(Binding& binding, const TensorView& wanted) {
  // What other devices copy from and to stays where it is.
  const bool fits = host() == 0 && binding.bound && binding.user.dims == wanted.dims &&
                    binding.user.strides == wanted.strides;
  binding.staged = !fits;
  if (binding.staged)
    ensure(binding.staging,
           static_cast<size_t>(extent(wanted.dims, wanted.strides)) * size_of(wanted.dtype));
}

void PlanRun::check_output(size_t index, const TensorView& memory, const Dims& dims) const {
  if (memory.dims != dims)
    fail(Code::kInvalidArgument,
         fmt::format("the memory set for output \"{}\" has shape {}, with these inputs it is {}",
                     plan_.slots[plan_.outputs[index]].name, to_string(memory.dims),
                     to_string(dims)));
}

// Addresses of everything that has one before the run begins. What has a late operand gets its
// views while running.
void PlanRun::resolve_pointers() {
  const auto port = [&](Binding& binding, uint32_t index) {
    if (plan_.slots[index].storage == Storage::kDataDependent) return;
    stage(binding, slots_[index]);
    slots_[index].data = binding.staged ? binding.staging->data() : binding.user.data;
  };
  for (size_t i = 0; i < inputs_.size(); ++i) port(inputs_[i], plan_.inputs[i]);
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const uint32_t slot = plan_.outputs[i];
    if (outputs_[i].bound && plan_.slots[slot].storage != Storage::kDataDependent)
      check_output(i, outputs_[i].user, slots_[slot].dims);
    port(outputs_[i], plan_.outputs[i]);
  }
  const std::vector<uint64_t>& offsets = now_->plan.offsets;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = plan_.slots[i];
    if (slot.storage == Storage::kArena)
      slots_[i].data = separate_ && slot.device != host()
                           ? separate_->data(i)
                           : arenas_[slot.device]->data() + offsets[i];
    if (slot.storage == Storage::kWeight)
      slots_[i].data = resources_.weight_data[loaded_.first_device + slot.device][slot.offset];
  }
  for (size_t i = 0; i < slots_.size(); ++i)
    if (plan_.slots[i].storage == Storage::kView)
      slots_[i].data = slots_[plan_.slots[i].base].data + offsets[i];
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = plan_.steps[i];
    for (size_t k = 0; k < step.inputs.size(); ++k)
      if (step.inputs[k] != kNoSlot) steps_[i].inputs[k].data = slots_[step.inputs[k]].data;
    for (size_t k = 0; k < step.outputs.size(); ++k)
      steps_[i].outputs[k].data = slots_[step.outputs[k]].data;
  }
  forget_recordings_elsewhere();
  pointers_stale_ = false;
}

bool PlanRun::place_staging() {
  if (pointers_stale_) resolve_pointers();
  const auto is_staged = [](const Binding& binding) { return binding.staged; };
  return std::ranges::any_of(inputs_, is_staged) || std::ranges::any_of(outputs_, is_staged);
}

// Recordings hold addresses.
void PlanRun::forget_recordings_elsewhere() {
  if (host() == 0) return;
  std::vector<std::byte*>& recorded = now_->recorded_addresses;
  const size_t count = slots_.size() + workspaces_.size();
  const auto address = [&](size_t i) {
    return i < slots_.size() ? slots_[i].data : workspaces_[i - slots_.size()]->data();
  };
  bool are_there = recorded.size() == count;
  for (size_t i = 0; are_there && i < count; ++i) are_there = recorded[i] == address(i);
  if (are_there) return;
  for (auto& recording : now_->recordings) recording.reset();
  recorded.clear();
  for (size_t i = 0; i < count; ++i) recorded.push_back(address(i));
}

void PlanRun::prepare_step(size_t index, StepState& state) const {
  std::vector<TensorView> in = state.inputs, out = state.outputs;
  for (TensorView& view : in) view.data = nullptr;
  for (TensorView& view : out) view.data = nullptr;
  with_context(
      [&] { return fmt::format("while preparing step \"{}\"", plan_.steps[index].name); },
      [&] { state.prepared = loaded_.kernels[index]->prepare(in, out, resources_.threads); });
}

void PlanRun::run_size_tensor(const Step& step) {
  const auto& elements = std::get<SizeTensor>(step.op).elements;
  const TensorView& to = slots_[step.outputs[0]];
  const int64_t stride = to.strides.rank() == 0 ? 1 : to.strides[0];
  for (size_t i = 0; i < elements.size(); ++i)
    to.as<int64_t>()[static_cast<int64_t>(i) * stride] =
        plan_.sizes->evaluate(elements[i], symbols_);
}

// The dims that values have given a slot: its symbols get theirs, and a late one gets memory.
void PlanRun::settle(uint32_t index, const Dims& dims) {
  const Slot& slot = plan_.slots[index];
  const Shape& shape = slot.type.shape;
  for (int axis = 0; axis < std::min(shape.rank(), dims.rank()); ++axis)
    if (const auto symbol = plan_.sizes->symbol_index(shape[axis]); symbol && !symbols_[*symbol])
      symbols_[*symbol] = dims[axis];
  if (plan_.sizes->evaluate(shape, symbols_) != dims)
    fail(Code::kInvalidArgument, fmt::format("\"{}\" became {}, the engine expects {}", slot.name,
                                             to_string(dims), plan_.sizes->text(shape)));
  if (slot.storage != Storage::kDataDependent) return;
  static_cast<void>(extent(dims, row_major_strides(dims)));
  ensure(late_[index], static_cast<size_t>(count(dims)) * size_of(slot.type.dtype));
  slots_[index] = row_major_view(slot.type.dtype, dims, late_[index]->data());
}

// A step that meets sizes which depend on values: they are inferred from the values, now that these
// exist, or found by its kernel, and its late outputs get memory.
void PlanRun::infer_late(size_t index, ThreadTeam& team) {
  const Step& step = plan_.steps[index];
  std::vector<Fact> facts(step.inputs.size());
  std::vector<InferInput> infer_inputs;
  for (size_t k = 0; k < step.inputs.size(); ++k) {
    if (step.inputs[k] == kNoSlot) {
      infer_inputs.push_back({});
      continue;
    }
    const TensorView& view = slots_[step.inputs[k]];
    facts[k].type = {view.dtype, shape_of(view.dims), Container::kTensor};
    infer_inputs.push_back({&facts[k], &view});
  }
  SizeTable scratch;
  const auto infer_step = [&](std::span<const Dims> found) {
    return infer_layer(step.op, step.epilogues, static_cast<int>(step.op_input_count),
                       InferInputs(infer_inputs, scratch), found);
  };
  Facts inferred = infer_step({});
  StepState& state = steps_[index];
  bool as_before = state.prepared != nullptr;
  const auto take = [&](TensorView& view, uint32_t slot) {
    if (slot == kNoSlot) return;
    as_before = as_before && view.dims == slots_[slot].dims && view.strides == slots_[slot].strides;
    // At once: a failure before it is prepared again must not leave it with other operands.
    if (!as_before) state.prepared.reset();
    view = slots_[slot];
  };
  for (size_t k = 0; k < step.inputs.size(); ++k) take(state.inputs[k], step.inputs[k]);
  const Kernel* kernel = loaded_.kernels[index].get();
  if (kernel) state.found = kernel->find(state.inputs, stream(host()), team);
  if (state.found) inferred = infer_step(state.found->dims);
  for (size_t k = 0; k < step.outputs.size(); ++k) {
    const Type& type = inferred[k].type;
    if (!known(type.shape) || type.dtype != plan_.slots[step.outputs[k]].type.dtype)
      fail(Code::kInvalidArgument, fmt::format("output {} became {}{}", k, to_string(type.dtype),
                                               scratch.text(type.shape)));
    settle(step.outputs[k], dims_of(type.shape));
  }
  for (size_t k = 0; k < step.outputs.size(); ++k) take(state.outputs[k], step.outputs[k]);
  if (!kernel) return;
  if (!as_before) prepare_step(index, state);
  ensure(workspaces_[host()], state.prepared->workspace_bytes);
}

void PlanRun::run_step(size_t index, ThreadTeam& team) {
  const Step& step = plan_.steps[index];
  if (run_control_flow(index, team)) return;
  if (loaded_.deferred[index]) infer_late(index, team);
  if (step.kernel == kTransfer) return transfer(step);
  if (!loaded_.kernels[index]) return run_size_tensor(step);
  StepState& state = steps_[index];
  loaded_.kernels[index]->launch({.inputs = state.inputs,
                                  .outputs = state.outputs,
                                  .prepared = state.prepared.get(),
                                  .workspace = workspaces_[step.device]->data(),
                                  .stream = stream(step.device),
                                  .team = team,
                                  .found = state.found.get()});
  state.found.reset();
}

void PlanRun::transfer(const Step& step) {
  const TensorView &from = slots_[step.inputs[0]], &to = slots_[step.outputs[0]];
  const auto bytes = static_cast<size_t>(extent(from.dims, from.strides)) * size_of(from.dtype);
  if (bytes != 0) device(step.device).copy(to.data, from.data, bytes, stream(step.device));
}

void PlanRun::run_here(size_t index, ThreadTeam& team) {
  const Step& step = plan_.steps[index];
  with_context(
      [&] { return fmt::format("while running step \"{}\" ({})", step.name, to_string(step.op)); },
      [&] { spent_.empty() ? run_step(index, team) : run_timed(index, team); });
}

// The first run at these shapes goes step by step, and errors name the one that fails. So does one
// that is watched: recordings are of whole runs of steps.
void PlanRun::run_on_device(size_t begin, size_t end, ThreadTeam& team) {
  const auto put = [&] {
    for (size_t i = begin; i < end; ++i) run_here(i, team);
  };
  in_flight_ = {in_flight_ ? in_flight_->first : begin, end - 1};
  if (observer_ || resources_.synchronous_steps || !spent_.empty() || never_recorded_[begin])
    return put();
  std::unique_ptr<Recording>& recording = now_->recordings[begin];
  if (!recording && !now_->has_run) return put();
  const auto why_not =
      with_context([&] { return in_flight_text(); },
                   [&] { return play_or_put(stream(plan_.steps[begin].device), recording, put); });
  if (!why_not) return;
  never_recorded_[begin] = true;
  remarks_.push_back(fmt::format(
      "steps \"{}\" to \"{}\" are launched one by one in every run, which takes longer: "
      "recording them failed: {}",
      plan_.steps[begin].name, plan_.steps[end - 1].name, *why_not));
}

std::string PlanRun::in_flight_text() const {
  return fmt::format("while running steps \"{}\" to \"{}\"", plan_.steps[in_flight_->first].name,
                     plan_.steps[in_flight_->second].name);
}

void PlanRun::wait_for_devices() {
  if (!in_flight_) return;
  with_context([&] { return in_flight_text(); },
               [&] {
                 for (size_t i = 0; i < host(); ++i) stream(i).wait();
               });
  in_flight_.reset();
}

// What a failed run has left on streams is over before memory that it uses can go.
void PlanRun::give_up_in_flight() {
  if (!in_flight_) return;
  in_flight_.reset();
  for (size_t i = 0; i < host(); ++i) {
    try {
      stream(i).wait();
    } catch (const Error&) {
      // The error that ended the run is told instead; a device that is lost says so again.
    }
  }
}

void PlanRun::run(ThreadTeam& team) {
  has_run_ = false;
  try {
    run_steps(team);
  } catch (...) {
    give_up_in_flight();
    throw;
  }
  now_->has_run = true;
  has_run_ = true;
}

void PlanRun::run_steps(ThreadTeam& team) {
  if (pointers_stale_) resolve_pointers();
  symbols_ = now_->plan.symbols;
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].staged) strided_copy(slots_[plan_.inputs[i]], inputs_[i].user, team);
  if (observer_) tell_observer(0);
  const bool one_by_one = observer_ || resources_.synchronous_steps;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const size_t end = one_by_one && plan_.steps[i].device != host() ? i + 1 : loaded_.run_end[i];
    if (end > i) {
      run_on_device(i, end, team);
      if (one_by_one) wait_for_devices();
      if (one_by_one && separate_) check_red_zones(i, end);
      i = end - 1;
    } else {
      // It may read what a copy writes, or write over what a copy still reads.
      wait_for_devices();
      run_here(i, team);
    }
    if (observer_) tell_observer(i + 1);
  }
  wait_for_devices();
  if (separate_ && !one_by_one) check_red_zones(0, steps_.size());
  for (size_t i = 0; i < outputs_.size(); ++i)
    if (outputs_[i].bound && outputs_[i].staged)
      strided_copy(outputs_[i].user, slots_[plan_.outputs[i]], team);
}

// After steps [begin, end) of the plan.
void PlanRun::check_red_zones(size_t begin, size_t end) {
  const auto doing = [&] {
    return end - begin == 1 ? fmt::format("after step \"{}\" ({})", plan_.steps[begin].name,
                                          to_string(plan_.steps[begin].op))
                            : std::string("after the run (waiting for each step tells which)");
  };
  with_context(doing, [&] { separate_->check(); });
}

TensorView PlanRun::output(size_t index) const {
  const uint32_t slot = plan_.outputs[index];
  const bool at_user =
      outputs_[index].bound && plan_.slots[slot].storage != Storage::kDataDependent;
  return at_user ? outputs_[index].user : slots_[slot];
}

size_t PlanRun::arena_bytes() const {
  size_t bytes = 0;
  if (now_)
    for (const uint64_t of_device : now_->plan.arena_bytes) bytes += of_device;
  for (const auto& body : bodies_) bytes += body->arena_bytes();
  return bytes;
}

size_t PlanRun::memory_bytes() const {
  size_t bytes = kept_.memory_bytes();
  const auto add = [&](const std::unique_ptr<Buffer>& buffer) {
    bytes += buffer ? buffer->size() : 0;
  };
  if (separate_) bytes += separate_->bytes();
  for (const auto& buffer : arenas_) add(buffer);
  for (const auto& buffer : workspaces_) add(buffer);
  for (const auto& buffer : late_) add(buffer);
  for (const auto& binding : inputs_) add(binding.staging);
  for (const auto& binding : outputs_) add(binding.staging);
  for (const Iteration& iteration : iterations_) {
    for (const auto& carried : iteration.carried)
      for (const auto& buffer : carried.buffers) add(buffer);
    for (const auto& stacked : iteration.stacked) add(stacked.buffer);
  }
  for (const auto& body : bodies_) bytes += body->memory_bytes();
  return bytes;
}

}  // namespace anneal
