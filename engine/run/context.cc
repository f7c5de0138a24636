// ExecutionContext: bindings, memory and the run itself.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "anneal/core/parallel.h"
#include "anneal/core/strided_copy.h"
#include "anneal/engine/plan_check.h"
#include "anneal/engine/run/bound_plan.h"
#include "anneal/engine/run/engine.h"
#include "anneal/engine/run/engine_state.h"
#include "anneal/engine/run/watch.h"

namespace anneal {
namespace {

constexpr size_t kNoPort = ~size_t{0};

size_t find_port(std::span<const Port> ports, std::string_view name) {
  for (size_t i = 0; i < ports.size(); ++i)
    if (ports[i].name == name) return i;
  return kNoPort;
}

size_t require_port(std::span<const Port> ports, std::string_view name, std::string_view what) {
  const size_t index = find_port(ports, name);
  if (index != kNoPort) return index;
  std::string names;
  for (const Port& port : ports)
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", port.name);
  fail(Code::kInvalidArgument, fmt::format("there is no {} \"{}\"; this engine has {}", what, name,
                                           names.empty() ? "none" : names));
}

void check_memory(const Port& port, const TensorView& memory, std::string_view what) {
  const auto wrong = [&](std::string why) {
    fail(Code::kInvalidArgument, fmt::format("{} \"{}\" {}", what, port.name, why));
  };
  if (memory.dtype != port.dtype)
    wrong(fmt::format("is {}, the engine wants {}", name(memory.dtype), name(port.dtype)));
  if (memory.strides.rank() != memory.dims.rank()) wrong("has more or fewer strides than axes");
  if (!memory.data && count(memory.dims) != 0) wrong("has no memory");
}

}  // namespace

struct ExecutionContext::State {
  struct StepState {
    std::vector<TensorView> inputs, outputs;
    std::unique_ptr<Prepared> prepared;
    std::unique_ptr<Found> found;
  };
  // A port's memory: the caller's, or staging where there is none or its strides are not the
  // plan's.
  struct Binding {
    TensorView user;  // of an input: set_input's; of an output: set_output's, if any
    bool bound = false;
    bool staged = false;
    std::unique_ptr<Buffer> staging;
  };

  std::shared_ptr<const Engine> engine;
  const Plan* plan = nullptr;
  Device* device = nullptr;
  int threads = 1;
  std::unique_ptr<Stream> stream;

  std::vector<Binding> inputs, outputs;
  std::vector<Dims> input_dims;  // of the last set_input
  std::vector<Dims> bound_dims;  // those that `bound` was computed for
  bool has_bound = false;
  bool pointers_stale = true;
  BoundPlan bound;
  SymbolValues run_symbols;       // bound.symbols, and those found during the run
  std::vector<TensorView> slots;  // with data
  std::vector<StepState> steps;
  std::vector<std::unique_ptr<Buffer>> late;  // by slot
  std::unique_ptr<Buffer> arena, workspace;
  Observer observer;
  std::vector<std::vector<uint32_t>> watched;  // slots_by_step(), while there is an observer

  explicit State(std::shared_ptr<const Engine> from, int wanted_threads);

  void bind();
  void ensure(std::unique_ptr<Buffer>& buffer, size_t bytes);
  void resolve_slots();
  void resolve_steps();
  void stage(Binding& binding, const TensorView& wanted);
  void prepare(size_t step);
  void run_size_tensor(const Step& step);
  void infer_late(size_t index, Team& team);
  void run_step(size_t index, Team& team);
  void tell_observer(size_t steps_done);
  void run(std::vector<StepTime>* times);
};

ExecutionContext::State::State(std::shared_ptr<const Engine> from, int wanted_threads)
    : engine(std::move(from)),
      threads(std::min(wanted_threads > 0 ? wanted_threads : hardware_threads(), largest_team())) {
  plan = engine->state_->plan;
  device = engine->state_->device.get();
  stream = device->make_stream();
  inputs.resize(plan->inputs.size());
  outputs.resize(plan->outputs.size());
  input_dims.resize(plan->inputs.size());
  slots.resize(plan->slots.size());
  late.resize(plan->slots.size());
  steps.resize(plan->steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    steps[i].inputs.resize(plan->steps[i].inputs.size());
    steps[i].outputs.resize(plan->steps[i].outputs.size());
  }
}

void ExecutionContext::State::ensure(std::unique_ptr<Buffer>& buffer, size_t bytes) {
  if (!buffer || buffer->size() < bytes) {
    buffer.reset();
    buffer = device->allocate(std::max<size_t>(bytes, 1));
  }
}

// New shapes: sizes of all slots, the arena, and the per-shape work of every step that can have it
// now.
void ExecutionContext::State::bind() {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i].bound)
      fail(Code::kInvalidArgument,
           fmt::format("input \"{}\" is not set", engine->inputs()[i].name));
  if (has_bound && input_dims == bound_dims) return;
  has_bound = false;
  bound = bind_shapes(*plan, engine->state_->file.weights, input_dims);
  slots = bound.slots;
  pointers_stale = true;
  ensure(arena, bound.arena_bytes);
  resolve_steps();
  size_t workspace_bytes = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    steps[i].prepared.reset();
    if (engine->state_->deferred[i] || !engine->state_->kernels[i]) continue;
    prepare(i);
    workspace_bytes = std::max(workspace_bytes, steps[i].prepared->workspace_bytes);
  }
  ensure(workspace, workspace_bytes);
  bound_dims = input_dims;
  has_bound = true;
}

void ExecutionContext::State::stage(Binding& binding, const TensorView& wanted) {
  const bool fits =
      binding.bound && binding.user.dims == wanted.dims && binding.user.strides == wanted.strides;
  binding.staged = !fits;
  if (binding.staged)
    ensure(binding.staging,
           static_cast<size_t>(extent(wanted.dims, wanted.strides)) * size_of(wanted.dtype));
}

// Addresses of everything that has one before the run begins.
void ExecutionContext::State::resolve_slots() {
  const auto port = [&](Binding& binding, uint32_t index) {
    if (plan->slots[index].storage == Storage::kLate) return;
    stage(binding, slots[index]);
    slots[index].data = binding.staged ? binding.staging->data() : binding.user.data;
  };
  for (size_t i = 0; i < inputs.size(); ++i) port(inputs[i], plan->inputs[i]);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Dims& dims = slots[plan->outputs[i]].dims;
    if (outputs[i].bound && outputs[i].user.dims != dims)
      fail(Code::kInvalidArgument,
           fmt::format("the memory set for output \"{}\" has shape {}, with these inputs it is {}",
                       engine->outputs()[i].name, to_text(outputs[i].user.dims), to_text(dims)));
    port(outputs[i], plan->outputs[i]);
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = plan->slots[i];
    if (slot.storage == Storage::kArena) slots[i].data = arena->data() + bound.arena_offsets[i];
    if (slot.storage == Storage::kWeight)
      slots[i].data = engine->state_->file.weights[slot.offset].view().data;
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = plan->slots[i];
    if (slot.storage != Storage::kView) continue;
    const int64_t offset = plan->sizes.evaluate(slot.base_offset, bound.symbols);
    slots[i].data = slots[slot.base].data + offset * static_cast<int64_t>(size_of(slot.type.dtype));
  }
  resolve_steps();
  pointers_stale = false;
}

void ExecutionContext::State::resolve_steps() {
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& step = plan->steps[i];
    for (size_t k = 0; k < step.inputs.size(); ++k)
      steps[i].inputs[k] = step.inputs[k] == kNoSlot ? TensorView{} : slots[step.inputs[k]];
    for (size_t k = 0; k < step.outputs.size(); ++k) steps[i].outputs[k] = slots[step.outputs[k]];
  }
}

void ExecutionContext::State::prepare(size_t index) {
  StepState& state = steps[index];
  std::vector<TensorView> in = state.inputs, out = state.outputs;
  for (TensorView& view : in) view.data = nullptr;
  for (TensorView& view : out) view.data = nullptr;
  with_context([&] { return fmt::format("while preparing step \"{}\"", plan->steps[index].name); },
               [&] { state.prepared = engine->state_->kernels[index]->prepare(in, out, threads); });
}

void ExecutionContext::State::run_size_tensor(const Step& step) {
  const auto& elements = std::get<SizeTensor>(step.op).elements;
  const TensorView& to = slots[step.outputs[0]];
  const int64_t stride = to.strides.rank() == 0 ? 1 : to.strides[0];
  for (size_t i = 0; i < elements.size(); ++i)
    to.as<int64_t>()[static_cast<int64_t>(i) * stride] =
        plan->sizes.evaluate(elements[i], run_symbols);
}

// A step that meets sizes which depend on values: they are inferred from the values, now that these
// exist, or found by its kernel, and its late outputs get memory.
void ExecutionContext::State::infer_late(size_t index, Team& team) {
  const Step& step = plan->steps[index];
  std::vector<Fact> facts(step.inputs.size());
  std::vector<InferInput> infer_inputs;
  for (size_t k = 0; k < step.inputs.size(); ++k) {
    if (step.inputs[k] == kNoSlot) {
      infer_inputs.push_back({});
      continue;
    }
    const TensorView& view = slots[step.inputs[k]];
    facts[k].type = {view.dtype, shape_of(view.dims), Container::kTensor};
    infer_inputs.push_back({&facts[k], &view});
  }
  SizeTable scratch;
  const auto infer_step = [&](std::span<const Dims> found) {
    return infer_layer(step.op, step.epilogues, static_cast<int>(step.op_input_count),
                       InferInputs(infer_inputs, scratch), found);
  };
  Facts inferred = infer_step({});
  StepState& state = steps[index];
  for (size_t k = 0; k < step.inputs.size(); ++k)
    if (step.inputs[k] != kNoSlot) state.inputs[k] = slots[step.inputs[k]];
  const Kernel* kernel = engine->state_->kernels[index].get();
  if (kernel) state.found = kernel->find(state.inputs, *stream, team);
  if (state.found) inferred = infer_step(state.found->dims);
  for (size_t k = 0; k < step.outputs.size(); ++k) {
    const uint32_t output = step.outputs[k];
    const Slot& slot = plan->slots[output];
    const Shape& shape = inferred[k].type.shape;
    if (!known(shape) || shape.rank() != slot.type.shape.rank() ||
        inferred[k].type.dtype != slot.type.dtype)
      fail(Code::kInvalidArgument,
           fmt::format("output {} became {}{}, the engine expects {}{}", k,
                       name(inferred[k].type.dtype), scratch.text(shape), name(slot.type.dtype),
                       plan->sizes.text(slot.type.shape)));
    for (int axis = 0; axis < shape.rank(); ++axis)
      if (const auto symbol = plan->sizes.symbol_index(slot.type.shape[axis]);
          symbol && !run_symbols[*symbol])
        run_symbols[*symbol] = shape[axis].value();
    const Dims dims = plan->sizes.evaluate(slot.type.shape, run_symbols);
    if (dims != dims_of(shape))
      fail(Code::kInvalidArgument, fmt::format("output {} became {}, the engine expects {}", k,
                                               scratch.text(shape), to_text(dims)));
    if (slot.storage != Storage::kLate) continue;
    ensure(late[output], static_cast<size_t>(count(dims)) * size_of(slot.type.dtype));
    slots[output] = row_major_view(slot.type.dtype, dims, late[output]->data());
  }
  for (size_t k = 0; k < step.outputs.size(); ++k) state.outputs[k] = slots[step.outputs[k]];
  if (!kernel) return;
  prepare(index);
  ensure(workspace, state.prepared->workspace_bytes);
}

void ExecutionContext::State::run_step(size_t index, Team& team) {
  const Step& step = plan->steps[index];
  if (engine->state_->deferred[index]) infer_late(index, team);
  if (!engine->state_->kernels[index]) {
    run_size_tensor(step);
    return;
  }
  StepState& state = steps[index];
  engine->state_->kernels[index]->launch({.inputs = state.inputs,
                                          .outputs = state.outputs,
                                          .prepared = state.prepared.get(),
                                          .workspace = workspace->data(),
                                          .stream = *stream,
                                          .team = team,
                                          .found = state.found.get()});
  state.found.reset();
}

void ExecutionContext::State::tell_observer(size_t steps_done) {
  stream->wait();
  const Step* step = steps_done == 0 ? nullptr : &plan->steps[steps_done - 1];
  for (const uint32_t slot : watched[steps_done])
    observer({plan->slots[slot].name, step ? std::string_view(step->name) : "",
              step ? std::string_view(step->kernel) : "", slots[slot]});
}

void ExecutionContext::State::run(std::vector<StepTime>* times) {
  bind();
  if (pointers_stale) resolve_slots();
  run_symbols = bound.symbols;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].staged) strided_copy(slots[plan->inputs[i]], inputs[i].user);

  Team team(threads);
  if (observer) tell_observer(0);
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& step = plan->steps[i];
    const auto start = std::chrono::steady_clock::now();
    with_context(
        [&] { return fmt::format("while running step \"{}\" ({})", step.name, name(step.op)); },
        [&] { run_step(i, team); });
    if (times) {
      stream->wait();
      const std::chrono::duration<double, std::micro> took =
          std::chrono::steady_clock::now() - start;
      times->push_back({step.name, step.kernel, took.count()});
    }
    if (observer) tell_observer(i + 1);
  }
  stream->wait();
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].bound && outputs[i].staged)
      strided_copy(outputs[i].user, slots[plan->outputs[i]]);
}

ExecutionContext::ExecutionContext(std::shared_ptr<const Engine> engine,
                                   const ContextOptions& options)
    : state_(std::make_unique<State>(std::move(engine), options.threads)) {}
ExecutionContext::~ExecutionContext() = default;
ExecutionContext::ExecutionContext(ExecutionContext&&) noexcept = default;

void ExecutionContext::set_input(std::string_view name, const TensorView& memory) {
  const size_t index = require_port(state_->engine->inputs(), name, "input");
  const Port& port = state_->engine->inputs()[index];
  check_memory(port, memory, "input");
  bool fits = memory.dims.rank() == port.dims.rank();
  for (int axis = 0; fits && axis < port.dims.rank(); ++axis)
    fits = memory.dims[axis] >= port.min_dims[axis] && memory.dims[axis] <= port.max_dims[axis];
  if (!fits) {
    std::string wanted;
    for (const std::string& dim : port.dim_names) wanted += (wanted.empty() ? "" : ",") + dim;
    std::string range;
    if (port.min_dims != port.max_dims)
      range = fmt::format(" (from {} to {})", to_text(port.min_dims), to_text(port.max_dims));
    fail(Code::kInvalidArgument, fmt::format("input \"{}\" has shape {}, the engine wants [{}]{}",
                                             port.name, to_text(memory.dims), wanted, range));
  }
  state_->inputs[index].user = memory;
  state_->inputs[index].bound = true;
  state_->input_dims[index] = memory.dims;
  state_->pointers_stale = true;
}

void ExecutionContext::set_output(std::string_view name, const TensorView& memory) {
  const size_t index = require_port(state_->engine->outputs(), name, "output");
  check_memory(state_->engine->outputs()[index], memory, "output");
  if (state_->plan->slots[state_->plan->outputs[index]].storage == Storage::kLate)
    fail(Code::kInvalidArgument,
         fmt::format("output \"{}\" has a size that depends on values: read it with "
                     "output() after the run instead of binding memory",
                     name));
  const Dims dims = output_dims(name);
  if (memory.dims != dims)
    fail(Code::kInvalidArgument,
         fmt::format("output \"{}\" has shape {}, with these inputs it is {}", name,
                     to_text(memory.dims), to_text(dims)));
  state_->outputs[index].user = memory;
  state_->outputs[index].bound = true;
  state_->pointers_stale = true;
}

Dims ExecutionContext::output_dims(std::string_view name) const {
  const size_t index = require_port(state_->engine->outputs(), name, "output");
  const uint32_t slot = state_->plan->outputs[index];
  if (state_->plan->slots[slot].storage == Storage::kLate)
    return state_->engine->outputs()[index].dims;
  state_->bind();
  return state_->bound.slots[slot].dims;
}

void ExecutionContext::run() { state_->run(nullptr); }

std::vector<StepTime> ExecutionContext::profile() {
  std::vector<StepTime> times;
  times.reserve(state_->steps.size());
  state_->run(&times);
  return times;
}

void ExecutionContext::observe(Observer observer) {
  state_->watched = observer ? slots_by_step(*state_->plan) : decltype(state_->watched)();
  state_->observer = std::move(observer);
}

TensorView ExecutionContext::output(std::string_view name) const {
  const size_t index = require_port(state_->engine->outputs(), name, "output");
  if (!state_->has_bound || state_->pointers_stale)
    fail(Code::kInvalidArgument, fmt::format("output \"{}\" is there only after run()", name));
  const auto& binding = state_->outputs[index];
  return binding.bound ? binding.user : state_->slots[state_->plan->outputs[index]];
}

size_t ExecutionContext::arena_bytes() const {
  return state_->has_bound ? static_cast<size_t>(state_->bound.arena_bytes) : 0;
}

size_t ExecutionContext::memory_bytes() const {
  size_t bytes = 0;
  const auto add = [&](const std::unique_ptr<Buffer>& buffer) {
    bytes += buffer ? buffer->size() : 0;
  };
  add(state_->arena);
  add(state_->workspace);
  for (const auto& buffer : state_->late) add(buffer);
  for (const auto& binding : state_->inputs) add(binding.staging);
  for (const auto& binding : state_->outputs) add(binding.staging);
  return bytes;
}

}  // namespace anneal
