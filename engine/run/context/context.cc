// ExecutionContext: bindings by name, and the run of the engine's plan.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/core/new_tensor.h"
#include "anneal/core/parallel.h"
#include "anneal/engine/run/async/pending_run.h"
#include "anneal/engine/run/async/stream_queue.h"
#include "anneal/engine/run/context/check_port.h"
#include "anneal/engine/run/context/given_memory.h"
#include "anneal/engine/run/context/kept_states.h"
#include "anneal/engine/run/context/profile_run.h"
#include "anneal/engine/run/counted_steps.h"
#include "anneal/engine/run/debug.h"
#include "anneal/engine/run/declared_shapes.h"
#include "anneal/engine/run/engine.h"
#include "anneal/engine/run/engine_state.h"
#include "anneal/engine/run/make_engine.h"
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
                  .shape_cache_size = options.shape_cache_size,
                  .budget = &budget,
                  .synchronous_steps = options.debug != nullptr && options.debug->synchronous_steps,
                  .red_zone = engine->state_->red_zone,
                  .separate_weights = &engine->state_->separate_weights},
        run(engine->state_->plans, resources, options.micro_batch, profile_in(options)),
        states(engine->state_->plans, resources, engine->inputs(), gpu(), run),
        is_given(engine->inputs().size()),
        inputs(engine->inputs().size()),
        outputs(engine->outputs().size()) {
    for (size_t i = 0; i < is_given.size(); ++i) clear_input(i);
    if (options.prewarm_profiles) prewarm_profiles(profile_in(options));
  }

  ~State() {
    if (pending) pending->wait();
  }

  std::optional<int> gpu() const { return gpu_number(*engine->state_->devices[0]); }

  // Memory of a GPU has no stream that says when it is ready. Work on the default stream comes
  // before a run that is on no stream of the application.
  void follow_default_stream() {
    const auto is_on_gpu = [](const GivenMemory& memory) {
      return memory.view.data != nullptr && memory.view.place.kind == MemoryKind::kCuda;
    };
    if (std::ranges::none_of(inputs, is_on_gpu) && std::ranges::none_of(outputs, is_on_gpu)) return;
    with_context(
        [] {
          return "while waiting for the GPU's default stream, which fails while a stream that it "
                 "waits for is capturing (use enqueue() then)";
        },
        [&] { streams[0]->begin_after(nullptr); });
  }

  // Those that the last run added.
  void tell_warnings() {
    const auto warnings = run.remarks();
    if (const LogSink& log = engine->state_->log)
      for (const std::string& warning : warnings.subspan(std::min(told, warnings.size())))
        log(Severity::kWarning, warning);
    told = warnings.size();
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
    if (!engine)
      fail(ErrorCode::kInvalidArgument, "a context needs an engine, but the pointer is null");
    if (options.threads < 0)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("threads is {}: give 0 (one per core) or more", options.threads));
    if (options.shape_cache_size < 1)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("shape_cache_size is {}: give 1 or more", options.shape_cache_size));
    if (options.micro_batch < 0)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("micro_batch is {}: give 0 (automatic) or more", options.micro_batch));
    if (options.profile < -1)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("profile is {}: give -1 (by the shapes of the inputs) or more",
                       options.profile));
    return engine;
  }

  static std::optional<size_t> profile_in(const ContextOptions& options) {
    if (options.profile < 0) return std::nullopt;
    return static_cast<size_t>(options.profile);
  }

  // For calls that read the context.
  static State& readable(const std::unique_ptr<State>& state) {
    if (!state) fail(ErrorCode::kInvalidArgument, "the context was moved from");
    if (state->pending)
      fail(ErrorCode::kInvalidArgument,
           "the context has an enqueued run: call wait() before anything else");
    return *state;
  }

  // For calls that change it. Its own observer is called in the middle of a run.
  static State& idle(const std::unique_ptr<State>& state) {
    State& result = readable(state);
    if (result.is_running)
      fail(ErrorCode::kInvalidArgument, "an observer must not change its own context");
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
        follow_default_stream();
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
    if (stream.device) follow_default_stream();
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

  void prewarm_profiles(std::optional<size_t> only) {
    std::vector<std::vector<Dims>> shapes;
    for (const LoadedPlan& loaded : engine->state_->plans) {
      if (only && *only != loaded.plan->profile) continue;
      auto of_plan = declared_shapes(*loaded.plan);
      of_plan.resize(std::min(of_plan.size(), static_cast<size_t>(resources.shape_cache_size)));
      // So that the first is the last to be forgotten.
      shapes.insert(shapes.end(), of_plan.rbegin(), of_plan.rend());
    }
    const size_t declared = shapes.size();
    size_t too_large = 0;
    for (const std::vector<Dims>& dims : shapes) {
      try {
        run.prepare(dims);
      } catch (Error& error) {
        // Shapes without a caller do not refuse an engine: a run at them reports the error. If no
        // declared shape fits, not even the smallest, the limit is at fault.
        if (error.code() != ErrorCode::kLimit || ++too_large < declared) continue;
        add_context(error, fmt::format("max_memory is {}: no shape that was declared at build fits",
                                       budget.limit()));
        throw;
      }
    }
  }

  void set_input(size_t index, const TensorView& memory) {
    run.set_input(index, memory);
    inputs[index] = GivenMemory(memory);
    is_given[index] = true;
    is_memory_new = true;
    if (states.has_input(index)) states.set_given(index, true);
  }

  void set_output(size_t index, const TensorView& memory) {
    run.set_output(index, memory);
    outputs[index] = GivenMemory(memory);
    is_memory_new = true;
  }

  void clear_output(size_t index) {
    run.clear_output(index);
    outputs[index] = {};
  }

  void clear_input(size_t index) {
    if (const auto& value = engine->inputs()[index].default_value)
      run.set_input(index, kernel_view(*value));
    else
      run.unset_input(index);
    is_given[index] = false;
    inputs[index] = {};
    is_memory_new = true;  // another profile may run, whose outputs update other inputs
    if (states.has_input(index)) states.set_given(index, false);
  }

  HeldMemory memory() const {
    HeldMemory held = run.memory();
    states.add_to(held);
    return held;
  }

  // A step may write an output before another one reads an input, but where the plan says that the
  // output updates the input.
  void check_overlap() {
    if (!std::exchange(is_memory_new, false)) return;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const auto refuse = [&](std::string_view what, const std::string& other) {
        is_memory_new = true;
        const std::string& name = engine->outputs()[i].name;
        fail_port(ErrorCode::kInvalidArgument, name,
                  fmt::format("the memory of output \"{}\" overlaps that of {} \"{}\": give it "
                              "memory of its own",
                              name, what, other));
      };
      for (size_t k = 0; k < inputs.size(); ++k)
        if (outputs[i].overlaps(inputs[k]) &&
            !(outputs[i].is_same(inputs[k]) && run.may_update(k, i)))
          refuse("input", engine->inputs()[k].name);
      for (size_t k = 0; k < i; ++k)
        if (outputs[i].overlaps(outputs[k])) refuse("output", engine->outputs()[k].name);
    }
  }

  // For a run that follows.
  void bind_for_run() {
    bind();
    states.place_outputs();
    check_overlap();
  }

  // After a run that came to its end.
  void end_run() {
    states.take_results();
    tell_warnings();
  }

  void bind() {
    states.place_inputs();
    std::string defaults;
    for (size_t i = 0; i < engine->inputs().size(); ++i) {
      const TensorInfo& port = engine->inputs()[i];
      if (!run.has_input(i))
        fail_port(ErrorCode::kInvalidArgument, port.name,
                  fmt::format("input \"{}\" is not set", port.name));
      if (is_given[i] || !port.default_value || port.min_dims == port.max_dims) continue;
      defaults += fmt::format("{}\"{}\" {}", defaults.empty() ? "" : ", ", port.name,
                              to_string(port.default_value->dims()));
    }
    try {
      run.bind();
    } catch (Error& error) {
      if (error.code() == ErrorCode::kInvalidArgument && !defaults.empty())
        add_context(error,
                    fmt::format("with the default values of {}, which were not set", defaults));
      if (const std::string kept = states.text(); !kept.empty())
        add_context(error, fmt::format("with the states {} of the run before", kept));
      throw;
    }
  }

  std::shared_ptr<const Engine> engine;
  std::vector<std::unique_ptr<DeviceStream>> streams;
  MemoryBudget budget;
  RunResources resources;
  ProfileRun run;
  KeptStates states;
  size_t told = 0;                           // run warnings that the log has
  std::vector<bool> is_given;                // by input: else it is unset or at its default value
  std::vector<GivenMemory> inputs, outputs;  // of the application; of defaults: none
  bool is_memory_new = false;                // since check_overlap()
  bool is_running = false;                   // in this thread
  std::shared_ptr<PendingRun> pending;       // from enqueue() to wait()
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
    const bool is_state = state.states.has_input(index);
    // Memory of a number is given back first, since nothing tells its dims from none.
    if (!memory.data && memory.dims.empty() &&
        (!is_state || !port.dims.empty() || state.is_given[index]))
      return state.clear_input(index);
    if (!memory.data && is_state) {
      check_dtype(port, memory, "input");
      state.states.begin(index, memory.dims);
      return state.clear_input(index);
    }
    check_memory(*state.engine, state.gpu(), port, memory, "input");
    check_dims(port, memory.dims);
    // Kernels take mutable views; they never write through an input.
    state.set_input(index, {memory.dtype, memory.dims, memory.strides,
                            const_cast<std::byte*>(memory.data), memory.place});
  });
}

void ExecutionContext::set_output(std::string_view name, const TensorView& memory) {
  at_entry([&] {
    State& state = State::idle(state_);
    const size_t index = require_port(state.engine->outputs(), name, "output");
    const TensorInfo& port = state.engine->outputs()[index];
    const bool is_none = !memory.data && memory.dims.empty();
    if (state.states.has_output(index)) {
      if (is_none) return;
      fail_port(
          ErrorCode::kInvalidArgument, port.name,
          fmt::format("output \"{}\" is a state that the context keeps: read it with output()",
                      name));
    }
    if (is_none) return state.clear_output(index);
    check_memory(*state.engine, state.gpu(), port, memory, "output");
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
    if (!is_apart(memory))
      fail_port(
          ErrorCode::kInvalidArgument, port.name,
          fmt::format("output \"{}\" has shape {} and strides {}, by which elements may share "
                      "memory: give it the strides of a slice or a transpose",
                      name, to_string(memory.dims), to_string(memory.strides)),
          memory.dims);
    state.set_output(index, memory);
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
      const auto only = state.run.only_dims(i);
      if (!given[i] && !state.run.has_input(i) && !only)
        fail_port(
            ErrorCode::kInvalidArgument, ports[i].name,
            fmt::format("no shape is given for input \"{}\", and it is not set", ports[i].name));
      dims.push_back(given[i]                 ? *given[i]
                     : state.run.has_input(i) ? state.run.input_dims(i)
                                              : *only);
    }
    state.run.prepare(dims);
  });
}

Dims ExecutionContext::output_dims(std::string_view name) const {
  return at_entry([&] {
    State& state = State::idle(state_);
    const size_t index = require_port(state.engine->outputs(), name, "output");
    // Else states would be those of the next run.
    if (state.states.empty() || !state.run.has_run()) state.bind();
    return state.run.output_dims(index).value_or(state.engine->outputs()[index].dims);
  });
}

void ExecutionContext::run() {
  at_entry([&] {
    State& state = State::idle(state_);
    state.bind_for_run();
    state.follow_default_stream();
    state.while_running([&](ThreadTeam& team) { state.run.run(team); });
    state.end_run();
  });
}

void ExecutionContext::enqueue(const Stream& stream, std::function<void()> inputs_read) {
  at_entry([&] {
    State& state = State::idle(state_);
    if (!stream.queue_) fail(ErrorCode::kInvalidArgument, "the stream was moved from");
    if (stream.queue_->is_of_gpu) state.require_stream(*stream.queue_);
    state.bind_for_run();
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
      fail(ErrorCode::kInvalidArgument, "an observer must not wait for its own run");
    // Busy to the end: the run's observer may look.
    state_->pending->wait();
    std::exchange(state_->pending, nullptr)->get();
    state_->end_run();
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
    return state.states.output(index);
  });
}

const Plan& EngineInternals::plan(const ExecutionContext& context) {
  const auto& state = ExecutionContext::State::readable(context.state_);
  return *state.engine->state_->plans[state.run.profile()].plan;
}

HeldMemory EngineInternals::memory(const ExecutionContext& context) {
  return ExecutionContext::State::readable(context.state_).memory();
}

const Plan& plan_of(const ExecutionContext& context) { return EngineInternals::plan(context); }
HeldMemory memory_of(const ExecutionContext& context) { return EngineInternals::memory(context); }

std::span<const std::string> ExecutionContext::run_warnings() const {
  return State::readable(state_).run.remarks();
}
size_t ExecutionContext::memory_bytes() const { return State::readable(state_).memory().sum(); }
size_t ExecutionContext::arena_bytes() const { return State::readable(state_).run.arena_bytes(); }

void EngineInternals::observe(ExecutionContext& context, const Observer& observer) {
  ExecutionContext::State::idle(context.state_).run.observe(observer);
}

std::vector<CountedStep> EngineInternals::profile(ExecutionContext& context) {
  auto& state = ExecutionContext::State::idle(context.state_);
  state.bind_for_run();
  state.follow_default_stream();
  std::vector<CountedStep> steps;
  state.while_running([&](ThreadTeam& team) { state.run.profile(team, steps); });
  state.end_run();
  return steps;
}

void observe(ExecutionContext& context, const Observer& observer) {
  at_entry([&] { EngineInternals::observe(context, observer); });
}

std::vector<CountedStep> profile_counted(ExecutionContext& context) {
  return EngineInternals::profile(context);
}

}  // namespace anneal
