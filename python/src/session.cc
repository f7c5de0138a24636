#include "anneal/python/src/session.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <utility>

#include "anneal/core/error.h"
#include "anneal/engine/run/debug.h"
#include "anneal/python/src/callbacks.h"
#include "anneal/python/src/dims_caster.h"

namespace nb = nanobind;

namespace anneal::python {
namespace {

bool is_fixed(const Dims& dims) {
  return std::ranges::none_of(dims, [](int64_t size) { return size < 0; });
}

// inputs: of the engine, which say which outputs are states.
std::vector<SharedEngine::Port> ports_of(std::span<const TensorInfo> infos,
                                         std::span<const TensorInfo> inputs) {
  std::vector<SharedEngine::Port> ports;
  for (const TensorInfo& info : infos) {
    const bool is_state = std::ranges::any_of(
        inputs, [&](const TensorInfo& input) { return input.state_output == info.name; });
    ports.push_back(
        {&info, nb::str(info.name.data(), info.name.size()), is_fixed(info.dims), is_state});
  }
  return ports;
}

// None counts as nothing.
// Owned: reading an array may run code that changes the dict.
nb::object item_of(const nb::dict& items, const nb::str& name) {
  if (!items.is_valid()) return {};
  PyObject* const found = PyDict_GetItemWithError(items.ptr(), name.ptr());
  if (found == nullptr && PyErr_Occurred()) nb::raise_python_error();
  return found == Py_None ? nb::object() : nb::borrow(found);
}

// Names that no port has: the interface of C++ says which there are.
template <class Refuse>
void check_names(const nb::dict& items, const std::vector<SharedEngine::Port>& ports,
                 Refuse&& refuse) {
  if (!items.is_valid()) return;
  size_t known = 0;
  for (const SharedEngine::Port& port : ports)
    known += PyDict_Contains(items.ptr(), port.name.ptr()) == 1 ? 1u : 0u;
  if (known == nb::len(items)) return;
  for (const nb::handle name : items.keys()) {
    const std::string text = port_name(name);
    if (std::ranges::none_of(ports, [&](const auto& port) { return port.info->name == text; }))
      refuse(text);
  }
}

}  // namespace

SharedEngine::SharedEngine(std::shared_ptr<const Engine> made, std::shared_ptr<nb::object> called)
    : engine(std::move(made)),
      log(std::move(called)),
      inputs(ports_of(engine->inputs(), {})),
      outputs(ports_of(engine->outputs(), engine->inputs())),
      has_states(std::ranges::any_of(outputs, &Port::is_state)) {}

// Waits, without the GIL, until no other thread uses the session.
class Session::Turn {
 public:
  explicit Turn(Session& session) : session_(session) {
    check(session);
    lock_ = std::unique_lock(session.mutex_, std::try_to_lock);
    if (!lock_.owns_lock()) {
      const nb::gil_scoped_release release;
      lock_.lock();
    }
    session.holder_ = std::this_thread::get_id();
  }
  ~Turn() { session_.holder_ = std::thread::id(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  static void check(const Session& session) {
    const std::thread::id holder = session.holder_;
    if (!session.maker_.is_this_process() && (session.is_enqueued_ || holder != std::thread::id()))
      throw Error(ErrorCode::kInvalidArgument,
                  "the session was in a run when this process was forked, and the run is in the "
                  "parent process: make a session in the child");
    if (holder == std::this_thread::get_id())
      throw Error(ErrorCode::kInvalidArgument,
                  "the session is in a call of this thread: the arrays and callbacks of a run must "
                  "not use its session");
  }

  Session& session_;
  std::unique_lock<std::mutex> lock_;
};

Session::Session(std::shared_ptr<const SharedEngine> engine, const ContextOptions& options)
    : shared_(std::move(engine)),
      read_(shared_->inputs.size()),
      written_(shared_->outputs.size()),
      results_(shared_->outputs.size()),
      is_set_(shared_->inputs.size()),
      input_dims_(shared_->inputs.size()) {
  const nb::gil_scoped_release release;
  context_ = std::make_unique<ExecutionContext>(shared_->engine, options);
}

Session::~Session() {
  const Call call;
  late_.reset();
  // The run of a parent process never ends here.
  if (!maker_.is_this_process() && is_enqueued_) context_.release();  // NOLINT(*unused-return*)
  const nb::gil_scoped_release release;
  context_.reset();  // waits for its run
}

void Session::bind_inputs(const nb::dict& inputs) {
  check_names(inputs, shared_->inputs,
              [&](const std::string& name) { context_->set_input(name, {}); });
  for (size_t i = 0; i < read_.size(); ++i) {
    const SharedEngine::Port& port = shared_->inputs[i];
    const TensorInfo& info = *port.info;
    const nb::object given = item_of(inputs, port.name);
    if (!given.is_valid()) {
      if (is_set_[i]) context_->set_input(info.name, {}), are_shapes_new_ = true;
      is_set_[i] = false;
      continue;
    }
    ReadArray array = read_array(given, info.dtype, shared_->numpy, info.name);
    context_->set_input(info.name, array.view);
    copied_inputs_ += array.is_copied ? 1 : 0;
    if (!is_set_[i] || array.view.dims != input_dims_[i]) are_shapes_new_ = true;
    is_set_[i] = true;
    input_dims_[i] = array.view.dims;
    read_[i] = std::move(array);
  }
}

void Session::bind_outputs(const nb::dict& out) {
  // Sizes are those of the next run, which reads the states of the last one.
  const auto result = std::ranges::find(shared_->outputs, false, &SharedEngine::Port::is_state);
  if (shared_->has_states && result != shared_->outputs.end())
    context_->set_output(result->info->name, {});
  // A run at new shapes prepares kernels, which takes long.
  if (are_shapes_new_ && !shared_->outputs.empty()) {
    const nb::gil_scoped_release release;
    context_->output_dims(shared_->outputs[0].info->name);
  }
  are_shapes_new_ = false;
  check_names(out, shared_->outputs,
              [&](const std::string& name) { context_->set_output(name, {}); });
  for (size_t i = 0; i < results_.size(); ++i) {
    const SharedEngine::Port& port = shared_->outputs[i];
    const TensorInfo& info = *port.info;
    results_[i] = {};
    if (port.is_state && !item_of(out, port.name).is_valid()) continue;
    if (const nb::object given = item_of(out, port.name); given.is_valid()) {
      WrittenArray array = written_array(given, info.dtype, shared_->numpy, info.name);
      context_->set_output(info.name, array.view);
      written_[i] = std::move(array);
      results_[i] = given;
      continue;
    }
    const Dims dims = port.is_fixed ? info.dims : context_->output_dims(info.name);
    if (!is_fixed(dims)) continue;  // it is copied after the run
    TensorView memory;
    nb::object array = shared_->numpy.make(info.dtype, dims, memory);
    context_->set_output(info.name, memory);
    results_[i] = std::move(array);
  }
}

void Session::bind(const nb::dict& inputs, const nb::dict& out) {
  if (is_enqueued_)
    throw Error(ErrorCode::kInvalidArgument,
                "the session has an enqueued run: call wait() before anything else");
  try {
    bind_inputs(inputs);
    bind_outputs(out);
  } catch (...) {
    are_shapes_new_ = true;
    throw;
  }
}

nb::dict Session::collect() {
  nb::dict outputs;
  for (size_t i = 0; i < results_.size(); ++i) {
    const SharedEngine::Port& port = shared_->outputs[i];
    if (port.is_state) continue;
    nb::object array = std::move(results_[i]);
    if (!array.is_valid()) array = shared_->numpy.copy_of(context_->output(port.info->name));
    outputs[port.name] = std::move(array);
  }
  // The next run sets them again.
  std::ranges::fill(read_, ReadArray{});
  std::ranges::fill(written_, WrittenArray{});
  return outputs;
}

nb::dict Session::run(const nb::dict& inputs, const nb::dict& out) {
  const Turn turn(*this);
  bind(inputs, out);
  without_gil(errors_, [&] { context_->run(); });
  return collect();
}

nb::tuple Session::profile(const nb::dict& inputs, const nb::dict& out) {
  const Turn turn(*this);
  bind(inputs, out);
  const std::vector<StepTime> times = without_gil(errors_, [&] { return context_->profile(); });
  nb::list steps;
  for (const StepTime& time : times)
    steps.append(nb::make_tuple(time.step, time.kernel, time.microseconds, time.times));
  return nb::make_tuple(collect(), steps);
}

void Session::enqueue(const nb::dict& inputs, const Stream& stream, const nb::dict& out) {
  const Turn turn(*this);
  bind(inputs, out);
  {
    const nb::gil_scoped_release release;
    context_->enqueue(stream, [] {});
  }
  is_enqueued_ = true;
  late_.emplace([this] { return context_->is_done(); });
}

nb::dict Session::wait() {
  const Turn turn(*this);
  if (!std::exchange(is_enqueued_, false)) return {};
  late_.reset();
  without_gil(errors_, [&] { context_->wait(); });
  return collect();
}

bool Session::is_done() {
  // Whoever has the session is in the middle of a run.
  if (holder_.load() != std::thread::id()) return false;
  const Turn turn(*this);
  return context_->is_done();
}

void Session::observe(const nb::object& callback, const nb::object& wants) {
  const Turn turn(*this);
  if (is_enqueued_)
    throw Error(ErrorCode::kInvalidArgument,
                "the session has an enqueued run: call wait() before anything else");
  callback_ = callback.is_none() ? nullptr : shared(callback);
  wants_ = callback.is_none() ? nullptr : shared(wants);
  Observer observer;
  if (callback_)
    observer = [this, call = callback_, filter = wants_](const Observation& observed) {
      with_gil(errors_, [&] {
        if (call->is_none()) return;  // clear() took it
        const nb::str name(observed.name.data(), observed.name.size());
        if (!filter->is_none() && !nb::cast<bool>(nb::bool_((*filter)(name)))) return;
        nb::list iterations;
        for (const LoopIteration& each : observed.iterations)
          iterations.append(nb::make_tuple(each.step, each.number));
        (*call)(name, observed.step, observed.kernel, shared_->numpy.copy_of(observed.value),
                nb::tuple(iterations));
      });
    };
  anneal::observe(*context_, observer);
}

void Session::prepare(const nb::dict& shapes) {
  const Turn turn(*this);
  std::vector<std::string> names;
  for (const nb::handle name : shapes.keys()) names.push_back(port_name(name));
  std::vector<InputShape> inputs;
  for (const nb::handle dims : shapes.values())
    inputs.push_back({names[inputs.size()], dims_of(dims, names[inputs.size()])});
  are_shapes_new_ = true;
  const nb::gil_scoped_release release;
  context_->prepare(inputs);
}

void Session::visit(const std::function<void(nb::handle)>& visitor) const {
  visitor(nb::find(*shared_));  // shared_ holds a reference to it
  if (callback_) visitor(*callback_);
  if (wants_) visitor(*wants_);
}

void Session::clear() {
  // What they drop may run code of Python.
  for (const auto& each : {callback_, wants_})
    if (each) std::exchange(*each, nb::none());
}

nb::dict Session::states() {
  const Turn turn(*this);
  nb::dict states;
  for (const SharedEngine::Port& port : shared_->inputs)
    if (const std::string& output = port.info->state_output; !output.empty()) {
      const TensorView state = context_->output(output);
      TensorView copy;
      states[port.name] = shared_->numpy.make(state.dtype, state.dims, copy);
      copy_tensor(copy, state);
    }
  return states;
}

void Session::reset_states(const nb::dict& shapes) {
  const Turn turn(*this);
  check_names(shapes, shared_->inputs,
              [&](const std::string& name) { context_->set_input(name, {}); });
  for (size_t i = 0; i < shared_->inputs.size(); ++i) {
    const SharedEngine::Port& port = shared_->inputs[i];
    const TensorInfo& info = *port.info;
    const nb::object shape = item_of(shapes, port.name);
    if (info.state_output.empty()) {
      if (shape.is_valid())
        throw Error(ErrorCode::kInvalidArgument,
                    "input \"" + info.name + "\" is no state: it has no shape to begin with",
                    info.name);
      continue;
    }
    if (is_set_[i]) context_->set_input(info.name, {});
    is_set_[i] = false;
    const Dims dims = shape.is_valid() ? dims_of(shape, info.name) : info.dims;
    context_->set_input(info.name, {info.dtype, dims, dims, nullptr});
  }
  are_shapes_new_ = true;
}

size_t Session::memory_bytes() {
  const Turn turn(*this);
  return context_->memory_bytes();
}

std::vector<std::string> Session::run_warnings() {
  const Turn turn(*this);
  const std::span<const std::string> warnings = context_->run_warnings();
  return {warnings.begin(), warnings.end()};
}

}  // namespace anneal::python
