// ExecutionContext: bindings by name, and the run of the engine's plan.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "anneal/core/fail.h"
#include "anneal/core/parallel.h"
#include "anneal/engine/run/declared_shapes.h"
#include "anneal/engine/run/engine.h"
#include "anneal/engine/run/engine_state.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/engine/run/split_run.h"
#include "anneal/kernels/cuda/backend.h"

namespace anneal {
namespace {

constexpr size_t kNoPort = ~size_t{0};

size_t find_port(std::span<const TensorInfo> ports, std::string_view name) {
  for (size_t i = 0; i < ports.size(); ++i)
    if (ports[i].name == name) return i;
  return kNoPort;
}

size_t require_port(std::span<const TensorInfo> ports, std::string_view name,
                    std::string_view what) {
  const size_t index = find_port(ports, name);
  if (index != kNoPort) return index;
  std::string names;
  for (const TensorInfo& port : ports)
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", port.name);
  fail(ErrorCode::kInvalidArgument, fmt::format("there is no {} \"{}\"; this engine has {}", what,
                                                name, names.empty() ? "none" : names));
}

void check_memory(const TensorInfo& port, const ConstTensorView& memory, std::string_view what) {
  const auto wrong = [&](std::string why) {
    fail(ErrorCode::kInvalidArgument, fmt::format("{} \"{}\" {}", what, port.name, why));
  };
  if (memory.dtype != port.dtype)
    wrong(
        fmt::format("is {}, the engine wants {}", to_string(memory.dtype), to_string(port.dtype)));
  if (memory.strides.rank() != memory.dims.rank()) wrong("has more or fewer strides than axes");
  if (!memory.data && count(memory.dims) != 0) wrong("has no memory");
  if (memory.place.kind == MemoryKind::kCuda)
    fail(ErrorCode::kUnsupported,
         fmt::format("{} \"{}\" lies in the memory of card {}: copy it to the host; engines do not "
                     "take memory of cards yet",
                     what, port.name, memory.place.device));
}

void check_dims(const TensorInfo& port, const Dims& dims) {
  bool fits = dims.rank() == port.dims.rank();
  for (int axis = 0; fits && axis < port.dims.rank(); ++axis)
    fits = dims[axis] >= port.min_dims[axis] && dims[axis] <= port.max_dims[axis];
  if (!fits) {
    std::string wanted;
    for (const std::string& dim : port.dim_names) wanted += (wanted.empty() ? "" : ",") + dim;
    std::string range;
    if (port.min_dims != port.max_dims)
      range = fmt::format(" (from {} to {})", to_string(port.min_dims), to_string(port.max_dims));
    fail(ErrorCode::kInvalidArgument,
         fmt::format("input \"{}\" has shape {}, the engine wants [{}]{}", port.name,
                     to_string(dims), wanted, range));
  }
}

}  // namespace

struct ExecutionContext::State {
  State(std::shared_ptr<const Engine> from, const ContextOptions& options)
      : engine(checked(std::move(from), options)),
        streams(make_streams(engine->state_->devices, options.spin)),
        budget(options.max_memory),
        resources{.weights = engine->state_->file.weights,
                  .devices = engine->state_->devices,
                  .streams = streams,
                  .weight_data = engine->state_->weights,
                  .threads = std::min(options.threads > 0 ? options.threads : hardware_threads(),
                                      largest_team()),
                  .shape_cache_size = std::max(options.shape_cache_size, 1),
                  .budget = &budget,
                  .synchronous_steps = options.synchronous_steps,
                  .red_zone = engine->state_->red_zone,
                  .separate_weights = &engine->state_->separate_weights},
        run(engine->state_->plan, resources, options.micro_batch),
        is_given(engine->inputs().size()) {
    for (size_t i = 0; i < is_given.size(); ++i) clear_input(i);
    if (options.prewarm_profiles) prewarm_profiles();
  }

  static std::vector<std::unique_ptr<Stream>> make_streams(
      std::span<const std::unique_ptr<Device>> devices, bool spin) {
    std::vector<std::unique_ptr<Stream>> streams;
    for (const auto& device : devices) {
      streams.push_back(device->make_stream());
      set_spins(*streams.back(), spin);
    }
    return streams;
  }

  static std::shared_ptr<const Engine> checked(std::shared_ptr<const Engine> engine,
                                               const ContextOptions& options) {
    if (!engine) fail(ErrorCode::kInvalidArgument, "a context is made without an engine");
    if (options.threads < 0)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("a context of {} threads; 0 is one per core", options.threads));
    if (options.micro_batch < 0)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("a context that runs {} rows at once; 0 lets it choose",
                       options.micro_batch));
    return engine;
  }

  // Its own observer is called in the middle of a run.
  void require_idle() const {
    if (is_running) fail(ErrorCode::kInvalidArgument, "a context is changed by its own observer");
  }

  // Body is given the threads of one run.
  template <class Body>
  void while_running(Body&& body) {
    require_idle();
    bind();
    ThreadTeam team(resources.threads);
    struct Running {
      explicit Running(bool& flag) : is_running(flag) { is_running = true; }
      ~Running() { is_running = false; }
      bool& is_running;
    } running(is_running);
    body(team);
  }

  void prewarm_profiles() {
    auto shapes = declared_shapes(plan_of(*engine));
    shapes.resize(std::min(shapes.size(), static_cast<size_t>(resources.shape_cache_size)));
    std::reverse(shapes.begin(), shapes.end());  // so that the first is the last to be forgotten
    for (const std::vector<Dims>& dims : shapes) {
      try {
        run.prepare(dims);
      } catch (const Error&) {
        // Shapes without a caller do not refuse an engine: a run at them reports the error.
      }
    }
  }

  void set_input(size_t index, const TensorView& memory) {
    run.set_input(index, memory);
    is_given[index] = true;
  }

  void clear_input(size_t index) {
    if (const auto& value = engine->inputs()[index].default_value)
      run.set_input(index, value->view());
    else
      run.unset_input(index);
    is_given[index] = false;
  }

  void bind() {
    std::string defaults;
    for (size_t i = 0; i < engine->inputs().size(); ++i) {
      const TensorInfo& port = engine->inputs()[i];
      if (!run.has_input(i))
        fail(ErrorCode::kInvalidArgument, fmt::format("input \"{}\" is not set", port.name));
      if (is_given[i] || port.min_dims == port.max_dims) continue;
      defaults += fmt::format("{}\"{}\" {}", defaults.empty() ? "" : ", ", port.name,
                              to_string(port.default_value->dims()));
    }
    try {
      run.bind();
    } catch (Error& error) {
      if (error.code() == ErrorCode::kInvalidArgument && !defaults.empty())
        add_context(error,
                    fmt::format("with the default values of {}, which were not set", defaults));
      throw;
    }
  }

  std::shared_ptr<const Engine> engine;
  std::vector<std::unique_ptr<Stream>> streams;
  MemoryBudget budget;
  RunResources resources;
  SplitRun run;
  std::vector<bool> is_given;  // by input: else it is unset or at its default value
  bool is_running = false;
};

ExecutionContext::ExecutionContext(std::shared_ptr<const Engine> engine,
                                   const ContextOptions& options)
    : state_(std::make_unique<State>(std::move(engine), options)) {}
ExecutionContext::~ExecutionContext() = default;
ExecutionContext::ExecutionContext(ExecutionContext&&) noexcept = default;

void ExecutionContext::set_input(std::string_view name, const ConstTensorView& memory) {
  state_->require_idle();
  const size_t index = require_port(state_->engine->inputs(), name, "input");
  const TensorInfo& port = state_->engine->inputs()[index];
  check_memory(port, memory, "input");
  check_dims(port, memory.dims);
  // Kernels take mutable views; they never write through an input.
  state_->set_input(
      index, {memory.dtype, memory.dims, memory.strides, const_cast<std::byte*>(memory.data)});
}

void ExecutionContext::clear_input(std::string_view name) {
  state_->require_idle();
  state_->clear_input(require_port(state_->engine->inputs(), name, "input"));
}

void ExecutionContext::set_output(std::string_view name, const TensorView& memory) {
  state_->require_idle();
  const size_t index = require_port(state_->engine->outputs(), name, "output");
  check_memory(state_->engine->outputs()[index], memory, "output");
  state_->bind();
  const auto dims = state_->run.output_dims(index);
  if (!dims)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("output \"{}\" has a size that depends on values: read it with "
                     "output() after the run instead of binding memory",
                     name));
  if (memory.dims != *dims)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("output \"{}\" has shape {}, with these inputs it is {}", name,
                     to_string(memory.dims), to_string(*dims)));
  state_->run.set_output(index, memory);
}

void ExecutionContext::prepare(std::span<const InputShape> inputs) {
  state_->require_idle();
  const std::span<const TensorInfo> ports = state_->engine->inputs();
  std::vector<std::optional<Dims>> given(ports.size());
  for (const InputShape& input : inputs) {
    const size_t index = require_port(ports, input.name, "input");
    if (given[index])
      fail(ErrorCode::kInvalidArgument,
           fmt::format("two shapes are given for input \"{}\"", input.name));
    check_dims(ports[index], input.dims);
    given[index] = input.dims;
  }
  std::vector<Dims> dims;
  for (size_t i = 0; i < ports.size(); ++i) {
    const bool is_known = ports[i].min_dims == ports[i].max_dims;
    if (!given[i] && !state_->run.has_input(i) && !is_known)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("no shape is given for input \"{}\", and it is not set", ports[i].name));
    dims.push_back(given[i]                   ? *given[i]
                   : state_->run.has_input(i) ? state_->run.input_dims(i)
                                              : ports[i].min_dims);
  }
  state_->run.prepare(dims);
}

Dims ExecutionContext::output_dims(std::string_view name) const {
  state_->require_idle();
  const size_t index = require_port(state_->engine->outputs(), name, "output");
  state_->bind();
  return state_->run.output_dims(index).value_or(state_->engine->outputs()[index].dims);
}

void ExecutionContext::run() {
  state_->while_running([&](ThreadTeam& team) { state_->run.run(team); });
}

std::vector<StepTime> ExecutionContext::profile() {
  std::vector<StepTime> times;
  state_->while_running([&](ThreadTeam& team) { state_->run.profile(team, times); });
  return times;
}

void ExecutionContext::observe(const Observer& observer) {
  state_->require_idle();
  state_->run.observe(observer);
}

TensorView ExecutionContext::output(std::string_view name) const {
  const size_t index = require_port(state_->engine->outputs(), name, "output");
  if (!state_->run.has_run())
    fail(ErrorCode::kInvalidArgument,
         fmt::format("output \"{}\" has no value yet: call run() first", name));
  return state_->run.output(index);
}

std::span<const std::string> ExecutionContext::run_warnings() const {
  return state_->run.remarks();
}
size_t ExecutionContext::memory_bytes() const { return state_->run.memory_bytes(); }
size_t ExecutionContext::arena_bytes() const { return state_->run.arena_bytes(); }

}  // namespace anneal
