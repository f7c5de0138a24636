// ExecutionContext: bindings by name, and the run of the engine's plan.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/core/parallel.h"
#include "anneal/engine/run/async/pending_run.h"
#include "anneal/engine/run/async/stream_queue.h"
#include "anneal/engine/run/counted_steps.h"
#include "anneal/engine/run/debug.h"
#include "anneal/engine/run/declared_shapes.h"
#include "anneal/engine/run/engine.h"
#include "anneal/engine/run/engine_state.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/engine/run/split_run.h"
#include "anneal/kernels/cuda/backend.h"

namespace anneal {
namespace {

constexpr size_t kNoPort = ~size_t{0};
constexpr std::string_view kEmulated = "emulated";

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
  fail_port(ErrorCode::kInvalidArgument, std::string(name),
            fmt::format("there is no {} \"{}\"; this engine has {}", what, name,
                        names.empty() ? "none" : names));
}

void check_memory(const Engine& engine, const TensorInfo& port, const ConstTensorView& memory,
                  std::string_view what) {
  const auto wrong = [&](ErrorCode code, std::string_view why) {
    fail_port(code, port.name, fmt::format("{} \"{}\" {}", what, port.name, why), memory.dims);
  };
  if (memory.dtype != port.dtype)
    wrong(ErrorCode::kInvalidArgument, fmt::format("is {}, the engine wants {}",
                                                   to_string(memory.dtype), to_string(port.dtype)));
  if (memory.strides.rank() != memory.dims.rank())
    wrong(ErrorCode::kInvalidArgument, "has more or fewer strides than axes");
  if (!memory.data && count(memory.dims) != 0) wrong(ErrorCode::kInvalidArgument, "has no memory");
  if (memory.place.kind == MemoryKind::kCuda)
    wrong(ErrorCode::kUnsupported,
          fmt::format("is in the memory of GPU {}: copy it to the host; engines on {} take host "
                      "memory alone",
                      memory.place.device, engine.device()));
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
    fail_port(ErrorCode::kInvalidArgument, port.name,
              fmt::format("input \"{}\" has shape {}, the engine wants [{}]{}", port.name,
                          to_string(dims), wanted, range),
              dims);
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
                  .synchronous_steps = options.debug != nullptr && options.debug->synchronous_steps,
                  .red_zone = engine->state_->red_zone,
                  .separate_weights = &engine->state_->separate_weights},
        run(engine->state_->plan, resources, options.micro_batch),
        is_given(engine->inputs().size()) {
    for (size_t i = 0; i < is_given.size(); ++i) clear_input(i);
    if (options.prewarm_profiles) prewarm_profiles();
  }

  ~State() {
    if (pending) pending->wait();
  }

  static std::vector<std::unique_ptr<DeviceStream>> make_streams(
      std::span<const std::unique_ptr<Device>> devices, bool spin) {
    std::vector<std::unique_ptr<DeviceStream>> streams;
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

  // For calls that read the context.
  static State& readable(const std::unique_ptr<State>& state) {
    if (!state) fail(ErrorCode::kInvalidArgument, "the context was moved to another place");
    if (state->pending)
      fail(ErrorCode::kInvalidArgument,
           "the context has an enqueued run: call wait() before anything else");
    return *state;
  }

  // For calls that change it. Its own observer is called in the middle of a run.
  static State& idle(const std::unique_ptr<State>& state) {
    State& result = readable(state);
    if (result.is_running)
      fail(ErrorCode::kInvalidArgument, "a context is changed by its own observer");
    return result;
  }

  // Body is given the threads of one run.
  template <class Body>
  void while_running(Body&& body) {
    ThreadTeam team(resources.threads);
    struct Running {
      explicit Running(bool& flag) : is_running(flag) { is_running = true; }
      ~Running() { is_running = false; }
      bool& is_running;
    } running(is_running);
    body(team);
  }

  void require_stream(const StreamQueue& stream) const {
    const Device& device = *engine->state_->devices[0];
    const auto is_emulated = [](const Device& each) { return each.target() == kEmulated; };
    if (device.kind() == DeviceKind::kCuda &&
        (!stream.device || is_emulated(*stream.device) == is_emulated(device)))
      return;
    fail(ErrorCode::kUnsupported,
         fmt::format("{} cannot take a run of an engine on {}: use Stream::make(), which takes "
                     "runs of every engine",
                     stream.name, device.description()));
  }

  // The whole run is work of the stream's thread.
  void enqueue_whole(StreamQueue& stream, std::function<void()> inputs_read) {
    const auto begun = std::make_shared<PendingRun>(std::move(inputs_read));
    const auto work = [this, begun] {
      begun->begin();
      std::exception_ptr error;
      try {
        ThreadTeam team(resources.threads);
        const std::function<void()> tell = [&] { begun->tell_inputs_read(); };
        run.start(team, &tell);
        run.finish(team);
      } catch (...) {
        error = std::current_exception();
      }
      begun->end(std::move(error));
    };
    pending = begun;  // before its observer may look
    try {
      stream.work.put(work);
    } catch (...) {
      pending = nullptr;
      throw;
    }
  }

  // Steps are put on the device's stream here, between the work that is on `stream` and the work
  // that follows. The stream's thread waits for their end.
  void enqueue_steps(StreamQueue& stream, std::function<void()> inputs_read) {
    const auto begun = std::make_shared<PendingRun>(std::move(inputs_read));
    std::exception_ptr error;
    streams[0]->begin_after(stream.native);
    try {
      const std::function<void()> tell = [&] { begun->tell_inputs_read(); };
      while_running([&](ThreadTeam& team) { run.start(team, &tell); });
    } catch (...) {
      error = std::current_exception();
    }
    const bool is_started = !error;
    const auto finish = [this, begun, is_started](std::exception_ptr failure) {
      begun->begin();
      try {
        ThreadTeam team(resources.threads);
        if (is_started) run.finish(team);
      } catch (...) {
        if (!failure) failure = std::current_exception();
      }
      begun->end(std::move(failure));
    };
    pending = begun;
    try {
      streams[0]->end_before(stream.native);
      stream.work.put([finish, error] { finish(error); });
    } catch (...) {
      finish(error ? error : std::current_exception());
    }
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
        fail_port(ErrorCode::kInvalidArgument, port.name,
                  fmt::format("input \"{}\" is not set", port.name));
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
  std::vector<std::unique_ptr<DeviceStream>> streams;
  MemoryBudget budget;
  RunResources resources;
  SplitRun run;
  std::vector<bool> is_given;           // by input: else it is unset or at its default value
  bool is_running = false;              // in this thread
  std::shared_ptr<PendingRun> pending;  // from enqueue() to wait()
};

ExecutionContext::ExecutionContext(std::shared_ptr<const Engine> engine,
                                   const ContextOptions& options)
    : state_(at_entry([&] { return std::make_unique<State>(std::move(engine), options); })) {}
ExecutionContext::~ExecutionContext() = default;
ExecutionContext::ExecutionContext(ExecutionContext&&) noexcept = default;
ExecutionContext& ExecutionContext::operator=(ExecutionContext&&) noexcept = default;

void ExecutionContext::set_input(std::string_view name, const ConstTensorView& memory) {
  at_entry([&] {
    State& state = State::idle(state_);
    const size_t index = require_port(state.engine->inputs(), name, "input");
    const TensorInfo& port = state.engine->inputs()[index];
    check_memory(*state.engine, port, memory, "input");
    check_dims(port, memory.dims);
    // Kernels take mutable views; they never write through an input.
    state.set_input(
        index, {memory.dtype, memory.dims, memory.strides, const_cast<std::byte*>(memory.data)});
  });
}

void ExecutionContext::clear_input(std::string_view name) {
  at_entry([&] {
    State& state = State::idle(state_);
    state.clear_input(require_port(state.engine->inputs(), name, "input"));
  });
}

void ExecutionContext::set_output(std::string_view name, const TensorView& memory) {
  at_entry([&] {
    State& state = State::idle(state_);
    const size_t index = require_port(state.engine->outputs(), name, "output");
    const TensorInfo& port = state.engine->outputs()[index];
    check_memory(*state.engine, port, memory, "output");
    state.bind();
    const auto dims = state.run.output_dims(index);
    if (!dims)
      fail_port(ErrorCode::kInvalidArgument, port.name,
                fmt::format("output \"{}\" has a size that depends on values: read it with "
                            "output() after the run instead of binding memory",
                            name));
    if (memory.dims != *dims)
      fail_port(ErrorCode::kInvalidArgument, port.name,
                fmt::format("output \"{}\" has shape {}, with these inputs it is {}", name,
                            to_string(memory.dims), to_string(*dims)),
                memory.dims);
    state.run.set_output(index, memory);
  });
}

void ExecutionContext::prepare(std::span<const InputShape> inputs) {
  at_entry([&] {
    State& state = State::idle(state_);
    const std::span<const TensorInfo> ports = state.engine->inputs();
    std::vector<std::optional<Dims>> given(ports.size());
    for (const InputShape& input : inputs) {
      const size_t index = require_port(ports, input.name, "input");
      if (given[index])
        fail_port(ErrorCode::kInvalidArgument, ports[index].name,
                  fmt::format("two shapes are given for input \"{}\"", input.name), input.dims);
      check_dims(ports[index], input.dims);
      given[index] = input.dims;
    }
    std::vector<Dims> dims;
    for (size_t i = 0; i < ports.size(); ++i) {
      const bool is_known = ports[i].min_dims == ports[i].max_dims;
      if (!given[i] && !state.run.has_input(i) && !is_known)
        fail_port(
            ErrorCode::kInvalidArgument, ports[i].name,
            fmt::format("no shape is given for input \"{}\", and it is not set", ports[i].name));
      dims.push_back(given[i]                 ? *given[i]
                     : state.run.has_input(i) ? state.run.input_dims(i)
                                              : ports[i].min_dims);
    }
    state.run.prepare(dims);
  });
}

Dims ExecutionContext::output_dims(std::string_view name) const {
  return at_entry([&] {
    State& state = State::idle(state_);
    const size_t index = require_port(state.engine->outputs(), name, "output");
    state.bind();
    return state.run.output_dims(index).value_or(state.engine->outputs()[index].dims);
  });
}

void ExecutionContext::run() {
  at_entry([&] {
    State& state = State::idle(state_);
    state.bind();
    state.while_running([&](ThreadTeam& team) { state.run.run(team); });
  });
}

void ExecutionContext::enqueue(const Stream& stream, std::function<void()> inputs_read) {
  at_entry([&] {
    State& state = State::idle(state_);
    if (!stream.queue_) fail(ErrorCode::kInvalidArgument, "the stream was moved from");
    if (stream.queue_->is_of_gpu) state.require_stream(*stream.queue_);
    state.bind();
    if (stream.queue_->is_of_gpu)
      state.enqueue_steps(*stream.queue_, std::move(inputs_read));
    else
      state.enqueue_whole(*stream.queue_, std::move(inputs_read));
  });
}

std::future<void> ExecutionContext::enqueue(const Stream& stream) {
  return at_entry([&] {
    const auto read = std::make_shared<std::promise<void>>();
    enqueue(stream, [read] { read->set_value(); });
    return read->get_future();
  });
}

void ExecutionContext::wait() {
  at_entry([&] {
    if (!state_ || !state_->pending) return;
    if (state_->pending->is_of_this_thread())
      fail(ErrorCode::kInvalidArgument, "an observer waits for the run that called it");
    // Busy to the end: the run's observer may look.
    state_->pending->wait();
    std::exchange(state_->pending, nullptr)->get();
  });
}

bool ExecutionContext::is_done() const {
  return !state_ || !state_->pending || state_->pending->is_done();
}

std::vector<StepTime> ExecutionContext::profile() {
  return at_entry([&] {
    const std::vector<CountedStep> steps = profile_counted(*this);
    return std::vector<StepTime>(steps.begin(), steps.end());
  });
}

TensorView ExecutionContext::output(std::string_view name) const {
  return at_entry([&] {
    const State& state = State::readable(state_);
    const size_t index = require_port(state.engine->outputs(), name, "output");
    if (!state.run.has_run())
      fail_port(ErrorCode::kInvalidArgument, std::string(name),
                fmt::format("output \"{}\" has no value yet: call run() first", name));
    return state.run.output(index);
  });
}

std::span<const std::string> ExecutionContext::run_warnings() const {
  return State::readable(state_).run.remarks();
}
size_t ExecutionContext::memory_bytes() const { return State::readable(state_).run.memory_bytes(); }
size_t ExecutionContext::arena_bytes() const { return State::readable(state_).run.arena_bytes(); }

void EngineInternals::observe(ExecutionContext& context, const Observer& observer) {
  ExecutionContext::State::idle(context.state_).run.observe(observer);
}

std::vector<CountedStep> EngineInternals::profile(ExecutionContext& context) {
  auto& state = ExecutionContext::State::idle(context.state_);
  state.bind();
  std::vector<CountedStep> steps;
  state.while_running([&](ThreadTeam& team) { state.run.profile(team, steps); });
  return steps;
}

void observe(ExecutionContext& context, const Observer& observer) {
  at_entry([&] { EngineInternals::observe(context, observer); });
}

std::vector<CountedStep> profile_counted(ExecutionContext& context) {
  return EngineInternals::profile(context);
}

}  // namespace anneal
