#include "anneal/engine/run/plan_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/engine/plan_check.h"
#include "anneal/engine/run/late_steps.h"

namespace anneal {
namespace {

std::vector<std::unique_ptr<PlanRun>> body_runs(const LoadedPlan& loaded,
                                                const RunResources& resources) {
  std::vector<std::unique_ptr<PlanRun>> bodies;
  for (const LoadedPlan& body : loaded.bodies)
    bodies.push_back(std::make_unique<PlanRun>(body, resources));
  return bodies;
}

void run_transfer(const RunState& run, const Step& step) {
  const TensorView &from = run.slots[step.inputs[0]], &to = run.slots[step.outputs[0]];
  if (from.data == to.data) return;  // memory of the caller, which the device uses in place
  const auto bytes = static_cast<size_t>(extent(from.dims, from.strides)) * size_of(from.dtype);
  if (bytes != 0) run.device(step.device).copy(to.data, from.data, bytes, run.stream(step.device));
}

// Whether values that a run computes, on the host, decide sizes of the step.
bool is_sized_by_values(const Plan& plan, const Step& step) {
  for (size_t k = 0; k < step.op_input_count; ++k)
    if (step.inputs[k] != kNoSlot && is_host_value(step.op, static_cast<int>(k)) &&
        plan.slots[step.inputs[k]].storage != Storage::kWeight)
      return true;
  return false;
}

// After a failure of the body nothing is in flight.
template <class Body>
void with_none_in_flight(DeviceSteps& steps, Body&& body) {
  try {
    body();
  } catch (...) {
    steps.give_up();
    throw;
  }
}

// Inputs that are outputs as well, or whose views are, are read to the end.
size_t steps_with_inputs(const Plan& plan) {
  const auto is_input = [&](uint32_t slot) {
    return slot != kNoSlot && plan.slots[base_of(plan, slot)].storage == Storage::kInput;
  };
  if (std::ranges::any_of(plan.outputs, is_input)) return plan.steps.size() + 1;
  for (size_t count = plan.steps.size(); count > 0; --count)
    if (std::ranges::any_of(plan.steps[count - 1].inputs, is_input)) return count;
  return 0;
}

void set_views(std::vector<TensorView>& views, std::span<const uint32_t> slots,
               std::span<const TensorView> of_slots) {
  views.resize(slots.size());
  for (size_t i = 0; i < slots.size(); ++i)
    views[i] = slots[i] == kNoSlot ? TensorView{} : of_slots[slots[i]];
}

bool has_views(const StepState& state, const Step& step) {
  return state.inputs.size() == step.inputs.size() && state.outputs.size() == step.outputs.size();
}

// Whether a slot of the step has other dims or strides than in the binding before.
bool changes(const BoundPlan& plan, const Step& step) {
  const auto is_changed = [&](uint32_t slot) { return slot != kNoSlot && plan.changed[slot]; };
  return std::ranges::any_of(step.inputs, is_changed) ||
         std::ranges::any_of(step.outputs, is_changed);
}

}  // namespace

PlanRun::PlanRun(const LoadedPlan& loaded, const RunResources& resources)
    : state_(loaded, resources),
      memory_(state_),
      ports_(state_, memory_),
      kept_(loaded.outer_symbols, static_cast<size_t>(resources.shape_cache_size)),
      bodies_(body_runs(loaded, resources)),
      device_steps_(state_),
      observer_(state_),
      timer_(state_),
      control_flow_(state_, memory_, observer_, bodies_),
      steps_with_inputs_(steps_with_inputs(state_.plan)) {
  for (const auto& body : bodies_) timer_.add_body(body->timer_);
}

PlanRun::~PlanRun() = default;

void PlanRun::bind(const SymbolValues& outer) {
  BoundShapes* bound = kept_.find(ports_.input_dims(), outer);
  if (bound && bound == state_.now) return;
  state_.now = nullptr;
  ports_.set_changed();
  if (!bound) bound = make_bound(outer);
  memory_.make_room(*bound);
  state_.slots = bound->plan.slots;
  state_.steps = bound->steps;
  state_.now = bound;
}

BoundShapes* PlanRun::make_bound(const SymbolValues& outer) {
  const Plan& plan = state_.plan;
  auto bound = kept_.make(ports_.input_dims(), outer);
  bound->plan = bind_shapes(plan, state_.resources.weights, ports_.input_dims(), outer,
                            std::move(bound->plan));
  bound->workspace_bytes.assign(plan.devices.size(), 0);
  bound->recorded.clear();
  bound->steps.resize(plan.steps.size());
  const std::vector<TensorView>& slots = bound->plan.slots;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    StepState& state = bound->steps[i];
    // The preparation for other shapes of the inputs may serve: a decoder has a longer mask in each
    // run, but products of the same sizes.
    const bool is_late = state_.loaded.deferred[i];
    if (is_late || !has_views(state, step) || changes(bound->plan, step)) {
      set_views(state.inputs, step.inputs, slots);
      set_views(state.outputs, step.outputs, slots);
      state.prepared.reset();
    }
    if (is_late || !state_.loaded.kernels[i]) continue;
    if (!state.prepared) prepare_step(state_, i, state);
    size_t& most = bound->workspace_bytes[step.device];
    most = std::max(most, state.prepared->workspace_bytes);
  }
  return kept_.add(std::move(bound));
}

std::optional<Dims> PlanRun::output_dims(size_t index) const {
  const uint32_t slot = state_.plan.outputs[index];
  if (state_.plan.slots[slot].storage == Storage::kDataDependent) return std::nullopt;
  return state_.slots[slot].dims;
}

// Addresses of everything that has one before the run begins. Steps with a data-dependent operand
// get their views while running.
void PlanRun::resolve_pointers() {
  ports_.set_changed();
  ports_.place(ports_may_stay());
  for (std::string& remark : ports_.take_remarks()) device_steps_.add_remark(std::move(remark));
  const std::vector<Slot>& planned = state_.plan.slots;
  const std::span<TensorView> slots = state_.slots;
  for (size_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = planned[i];
    if (slot.storage == Storage::kArena) slots[i].data = memory_.arena_address(i);
    if (slot.storage == Storage::kWeight)
      slots[i].data =
          state_.resources.weight_data[state_.loaded.first_device + slot.device][slot.offset];
  }
  ports_.place_copies();
  for (size_t i = 0; i < slots.size(); ++i)
    if (planned[i].storage == Storage::kView)
      slots[i].data = slots[planned[i].base].data + state_.now->plan.offsets[i];
  for (size_t i = 0; i < state_.steps.size(); ++i) {
    const Step& step = state_.plan.steps[i];
    for (size_t k = 0; k < step.inputs.size(); ++k)
      if (step.inputs[k] != kNoSlot) state_.steps[i].inputs[k].data = slots[step.inputs[k]].data;
    for (size_t k = 0; k < step.outputs.size(); ++k)
      state_.steps[i].outputs[k].data = slots[step.outputs[k]].data;
  }
  device_steps_.check_addresses(memory_, ports_);
}

bool PlanRun::place_staging() {
  if (ports_.changed()) resolve_pointers();
  return ports_.any_staged();
}

void PlanRun::run_step(size_t index, ThreadTeam& team) {
  const Step& step = state_.plan.steps[index];
  if (control_flow_.run(index, team)) return;
  if (state_.loaded.deferred[index]) infer_step(state_, memory_, index, team);
  if (step.kernel == kTransfer) return run_transfer(state_, step);
  const Kernel* const kernel = state_.loaded.kernels[index].get();
  if (!kernel) return write_sizes(state_, step);
  StepState& state = state_.steps[index];
  kernel->launch(
      {.inputs = state.inputs,
       .outputs = state.outputs,
       .prepared = state.prepared.get(),
       .workspace = state_.loaded.deferred[index]
                        ? memory_.late_workspace(step.device, state.prepared->workspace_bytes)
                        : memory_.workspace(step.device),
       .stream = state_.stream(step.device),
       .team = team,
       .found = state.found.get()});
  state.found.reset();
}

// With the step's place in errors, timed if times are taken.
void PlanRun::run_here(size_t index, ThreadTeam& team) {
  const Step& step = state_.plan.steps[index];
  const auto work = [&] { run_step(index, team); };
  with_context(
      [&] { return fmt::format("while running step \"{}\" ({})", step.name, to_string(step.op)); },
      [&] { timer_.is_on() ? timer_.run(index, work) : work(); });
}

void PlanRun::start(ThreadTeam& team, const std::function<void()>* inputs_read) {
  has_run_ = false;
  with_none_in_flight(device_steps_, [&] {
    if (ports_.changed() || ports_.may_stay() != ports_may_stay()) resolve_pointers();
    state_.symbols = state_.now->plan.symbols;
    ports_.copy_in(team);
    const size_t last_with_inputs = ports_.all_inputs_staged() ? 0 : steps_with_inputs_;
    if (ports_.reads_late()) inputs_read = nullptr;
    for (size_t done = 0;; done = start_step(done, team)) {
      if (observer_.is_set()) {
        device_steps_.wait();
        observer_.observe_until(done);
      }
      if (inputs_read != nullptr && done >= last_with_inputs)
        (*std::exchange(inputs_read, nullptr))();
      if (done == state_.steps.size()) break;
    }
    if (!ports_.any_copied_out_by_gpu()) return;
    device_steps_.wait();
    ports_.copy_out_by_gpu();
  });
}

void PlanRun::finish(ThreadTeam& team) {
  with_none_in_flight(device_steps_, [&] {
    device_steps_.wait();
    if (memory_.has_red_zones() && !is_one_by_one())
      memory_.check_red_zones(0, state_.steps.size());
    ports_.copy_out(team);
  });
  device_steps_.set_has_run();
  has_run_ = true;
}

void PlanRun::run_as_body(const RunObserver& outer, const Step& step,
                          std::optional<int64_t> iteration, ThreadTeam& team) {
  if (observer_.is_set()) observer_.enter(outer, step.name, iteration);
  run(team);
}

// Whether the step copies from or to page-locked memory of the caller.
bool PlanRun::uses_page_locked(size_t index) const {
  const Step& step = state_.plan.steps[index];
  return step.kernel == kTransfer &&
         (ports_.is_page_locked(step.inputs[0]) || ports_.is_page_locked(step.outputs[0]));
}

// Runs a step, or puts it on its device's stream with those that follow it there. Returns how many
// steps are done or in flight then.
size_t PlanRun::start_step(size_t index, ThreadTeam& team) {
  const bool is_elsewhere = state_.plan.steps[index].device != state_.host();
  size_t end = is_one_by_one() && is_elsewhere ? index + 1 : state_.loaded.run_end[index];
  if (end == index) {
    // It may read what a copy writes, or write over what a copy still reads.
    device_steps_.wait();
    run_here(index, team);
    return index + 1;
  }
  const bool copies_port = uses_page_locked(index);
  for (size_t next = index + 1; next < end; ++next)
    if (copies_port || uses_page_locked(next)) end = next;
  const bool is_late = state_.loaded.deferred[index];
  if (is_late && is_sized_by_values(state_.plan, state_.plan.steps[index])) device_steps_.wait();
  const bool may_record = !is_one_by_one() && !timer_.is_on() && !copies_port && !is_late;
  device_steps_.run(index, end, may_record, [&](size_t step) { run_here(step, team); });
  if (is_one_by_one()) device_steps_.wait();
  if (is_one_by_one() && memory_.has_red_zones()) memory_.check_red_zones(index, end);
  return end;
}

void PlanRun::profile(ThreadTeam& team, std::vector<CountedStep>& times) {
  timer_.start();
  try {
    run(team);
  } catch (...) {
    timer_.stop();
    throw;
  }
  timer_.add_to(times);
  timer_.stop();
}

void PlanRun::observe(const Observer& observer) {
  observer_.set(observer);
  for (const auto& body : bodies_) {
    body->observe(observer);
    if (observer) body->observer_.add_inputs();
  }
}

size_t PlanRun::arena_bytes() const {
  size_t bytes = 0;
  if (state_.now)
    for (const uint64_t of_device : state_.now->plan.arena_bytes) bytes += of_device;
  for (const auto& body : bodies_) bytes += body->arena_bytes();
  return bytes;
}

HeldMemory PlanRun::memory() const {
  HeldMemory held{
      .ports = ports_.bytes(), .late = control_flow_.bytes(), .shapes = kept_.memory_bytes()};
  memory_.add_to(held);
  for (const auto& body : bodies_) held += body->memory();
  return held;
}

}  // namespace anneal
