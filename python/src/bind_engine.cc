// Engine, TensorInfo and Stream.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "anneal/core/error.h"
#include "anneal/engine/run/engine.h"
#include "anneal/engine/run/stream.h"
#include "anneal/python/src/bindings.h"
#include "anneal/python/src/callbacks.h"
#include "anneal/python/src/calls.h"
#include "anneal/python/src/dims_caster.h"
#include "anneal/python/src/session.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace anneal::python {
namespace {

// Numbers, and the names of sizes that are open.
nb::tuple shape_of(const TensorInfo& info) {
  nb::list shape;
  for (int axis = 0; axis < info.dims.rank(); ++axis)
    if (info.dims[axis] >= 0)
      shape.append(info.dims[axis]);
    else
      shape.append(info.dim_names.at(static_cast<size_t>(axis)));
  return nb::tuple(shape);
}

std::string text_of(const TensorInfo& info) {
  std::string sizes;
  for (const std::string& size : info.dim_names) sizes += (sizes.empty() ? "" : ", ") + size;
  return "<TensorInfo " + info.name + ": " + std::string(numpy_name(info.dtype)) + "[" + sizes +
         "]>";
}

std::shared_ptr<SharedEngine> load_file(const std::string& path, const std::string& device,
                                        bool map, int threads,
                                        const std::vector<std::string>& libraries,
                                        const std::string& weights, const nb::object& log) {
  const auto called = shared(log);
  const EngineOptions options{.device = device,
                              .map = map,
                              .threads = threads,
                              .libraries = libraries,
                              .log = log_sink(called),
                              .weights = weights};
  std::shared_ptr<const Engine> engine;
  {
    const nb::gil_scoped_release release;
    engine = Engine::load(path, options);
  }
  return std::make_shared<SharedEngine>(std::move(engine), called);
}

std::shared_ptr<SharedEngine> load_bytes(const nb::bytes& bytes, const std::string& device,
                                         int threads, const std::vector<std::string>& libraries,
                                         const std::string& weights, const nb::object& log) {
  const std::span file(static_cast<const std::byte*>(bytes.data()), bytes.size());
  const auto called = shared(log);
  const EngineOptions options{.device = device,
                              .threads = threads,
                              .libraries = libraries,
                              .log = log_sink(called),
                              .weights = weights};
  std::shared_ptr<const Engine> engine;
  {
    const nb::gil_scoped_release release;
    engine = Engine::load(file, nullptr, options);
  }
  return std::make_shared<SharedEngine>(std::move(engine), called);
}

// A stream whose destructor gives the GIL back while it waits.
class StreamHandle {
 public:
  explicit StreamHandle(Stream stream) : stream_(std::make_unique<Stream>(std::move(stream))) {}
  ~StreamHandle() {
    const Call call;
    // The thread of a parent's stream ends in no child.
    if (!maker_.is_this_process()) stream_.release();  // NOLINT(*unused-return*)
    const nb::gil_scoped_release release;
    stream_.reset();  // waits for the work that is left
  }
  StreamHandle(const StreamHandle&) = delete;
  StreamHandle& operator=(const StreamHandle&) = delete;

  const Stream& get() const {
    if (!maker_.is_this_process())
      throw Error(ErrorCode::kInvalidArgument,
                  "the stream was made before this process was forked, and its thread is in the "
                  "parent process: make a stream in the child");
    return *stream_;
  }

 private:
  Maker maker_;
  std::unique_ptr<Stream> stream_;
};

void bind_tensor_info(nb::module_& module) {
  nb::class_<TensorInfo>(module, "TensorInfo", "An input or output of an engine.")
      .def_ro("name", &TensorInfo::name)
      .def_prop_ro(
          "dtype", [](const TensorInfo& info) { return numpy_name(info.dtype); },
          "The element type by NumPy's name: \"float32\", \"bool\"; \"bfloat16\" is ml_dtypes'.")
      .def_prop_ro("shape", &shape_of, nb::sig("def shape(self) -> tuple[int | str, ...]"),
                   "Sizes in elements; the name of a size that is open until inputs are given: "
                   "(\"N\", 3, 224, 224).")
      .def_ro("min_shape", &TensorInfo::min_dims, "The smallest sizes that are allowed.")
      .def_ro("max_shape", &TensorInfo::max_dims, "The largest sizes that are allowed.")
      .def_prop_ro(
          "default",
          [](const TensorInfo& info) -> nb::object {
            if (!info.default_value) return nb::none();
            return NumPy().copy_of(info.default_value->view());
          },
          nb::sig("def default(self) -> numpy.typing.NDArray[typing.Any] | None"),
          "The value of an input that a run leaves out; None: each run must give the input.")
      .def_prop_ro(
          "state_output",
          [](const TensorInfo& info) -> std::optional<std::string> {
            if (info.state_output.empty()) return std::nullopt;
            return info.state_output;
          },
          "The output that a session keeps as the value of this input in its next run; None: none.")
      .def("__repr__", &text_of);
}

template <class Ports>
nb::tuple infos_of(const Ports& ports, nb::handle owner) {
  nb::list infos;
  for (const SharedEngine::Port& port : ports)
    infos.append(nb::cast(*port.info, nb::rv_policy::reference_internal, owner));
  return nb::tuple(infos);
}

// What Python's collector of cycles asks: an engine holds its log, a session its engine and its
// observer.
int traverse_engine(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const auto& log = nb::inst_ptr<SharedEngine>(self)->log;
  if (log) Py_VISIT(log->ptr());
  return 0;
}

int clear_engine(PyObject* self) {
  if (!nb::inst_ready(self)) return 0;
  const auto& log = nb::inst_ptr<SharedEngine>(self)->log;
  if (log) std::exchange(*log, nb::none());
  return 0;
}

int traverse_session(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  int result = 0;
  nb::inst_ptr<Session>(self)->visit([&](nb::handle held) {
    if (result == 0 && held.is_valid()) result = visit(held.ptr(), arg);
  });
  return result;
}

int clear_session(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<Session>(self)->clear();
  return 0;
}

const PyType_Slot kEngineSlots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&traverse_engine)},
                                    {Py_tp_clear, reinterpret_cast<void*>(&clear_engine)},
                                    {0, nullptr}};
const PyType_Slot kSessionSlots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&traverse_session)},
                                     {Py_tp_clear, reinterpret_cast<void*>(&clear_session)},
                                     {0, nullptr}};

}  // namespace

void bind_engine(nb::module_& module) {
  bind_tensor_info(module);
  nb::class_<SharedEngine>(module, "Engine", nb::type_slots(kEngineSlots),
                           "A loaded engine. Immutable; threads may share it.")
      .def_static("load_file", &load_file, "path"_a, "device"_a, "map"_a, "threads"_a,
                  "libraries"_a, "weights"_a, "log"_a.none(), nb::call_guard<Call>())
      .def_static("load_bytes", &load_bytes, "data"_a, "device"_a, "threads"_a, "libraries"_a,
                  "weights"_a, "log"_a.none(), nb::call_guard<Call>())
      .def_prop_ro(
          "inputs",
          [](nb::handle self) { return infos_of(nb::cast<SharedEngine&>(self).inputs, self); },
          nb::sig("def inputs(self) -> tuple[TensorInfo, ...]"), "In the model's order.")
      .def_prop_ro(
          "outputs",
          [](nb::handle self) { return infos_of(nb::cast<SharedEngine&>(self).outputs, self); },
          nb::sig("def outputs(self) -> tuple[TensorInfo, ...]"), "In the model's order.")
      .def_prop_ro("device", [](const SharedEngine& self) { return self.engine->device(); })
      .def_prop_ro("load_warnings", [](const SharedEngine& self) {
        const std::span<const std::string> warnings = self.engine->load_warnings();
        return std::vector<std::string>(warnings.begin(), warnings.end());
      });

  nb::class_<StreamHandle>(
      module, "Stream",
      "A queue of runs in order, for Session.enqueue(). Runs on different streams overlap.\n\n"
      "Stream(\"cpu\") takes runs of every engine and has a thread of its own. Stream(\"cuda\"), "
      "\"cuda:1\" and \"emulated\" are streams of a GPU.")
      .def(
          "__init__",
          [](StreamHandle* self, const std::string& device) {
            std::optional<Stream> made;
            {
              const nb::gil_scoped_release release;
              made = Stream::make(device);
            }
            new (self) StreamHandle(std::move(*made));
          },
          "device"_a = "cpu", nb::call_guard<Call>())
      .def_static(
          "from_cuda_address",
          [](uintptr_t address) {
            return new StreamHandle(
                Stream::from_cuda(reinterpret_cast<void*>(address)));  // NOLINT(*int-to-ptr)
          },
          "address"_a, "The stream of a CUstream, which must outlive it.")
      .def(
          "wait",
          [](const StreamHandle& self) {
            const Stream& stream = self.get();
            const nb::gil_scoped_release release;
            stream.wait();
          },
          nb::call_guard<Call>(), "Returns when all runs that were enqueued have ended.");

  nb::class_<Session>(module, "Session", nb::type_slots(kSessionSlots),
                      "Runs one inference at a time: its memory and its prepared kernels.")
      .def(
          "__init__",
          [](Session* self, std::shared_ptr<SharedEngine> engine, int threads, int shape_cache_size,
             size_t max_memory, bool spin, bool prewarm, int64_t micro_batch,
             std::optional<int> profile) {
            if (profile && *profile < 0)
              throw Error(ErrorCode::kInvalidArgument, "profile is " + std::to_string(*profile) +
                                                           ": give None, or an index from 0 on");
            new (self) Session(std::move(engine), {.threads = threads,
                                                   .shape_cache_size = shape_cache_size,
                                                   .max_memory = max_memory,
                                                   .spin = spin,
                                                   .prewarm_profiles = prewarm,
                                                   .micro_batch = micro_batch,
                                                   .profile = profile.value_or(-1)});
          },
          "engine"_a, "threads"_a, "shape_cache_size"_a, "max_memory"_a, "spin"_a, "prewarm"_a,
          "micro_batch"_a, "profile"_a.none(), nb::call_guard<Call>())
      .def("run", &Session::run, "inputs"_a, "out"_a, nb::call_guard<Call>(),
           nb::sig("def run(self, inputs: dict[str, typing.Any], out: dict[str, typing.Any]) -> "
                   "dict[str, typing.Any]"))
      .def("profile", &Session::profile, "inputs"_a, "out"_a, nb::call_guard<Call>(),
           nb::sig("def profile(self, inputs: dict[str, typing.Any], out: dict[str, typing.Any]) "
                   "-> tuple[dict[str, typing.Any], list[tuple[str, str, float, int]]]"))
      .def(
          "enqueue",
          [](Session& self, const nb::dict& inputs, const StreamHandle& stream,
             const nb::dict& out) { self.enqueue(inputs, stream.get(), out); },
          "inputs"_a, "stream"_a, "out"_a, nb::call_guard<Call>(),
          nb::sig("def enqueue(self, inputs: dict[str, typing.Any], stream: Stream, out: "
                  "dict[str, typing.Any]) -> None"))
      .def("wait", &Session::wait, nb::call_guard<Call>(),
           nb::sig("def wait(self) -> dict[str, typing.Any]"))
      .def("is_done", &Session::is_done)
      .def("observe", &Session::observe, "callback"_a.none(), "wants"_a.none(),
           nb::call_guard<Call>())
      .def("prepare", &Session::prepare, "shapes"_a, nb::call_guard<Call>(),
           nb::sig("def prepare(self, shapes: dict[str, collections.abc.Sequence[int]]) -> None"))
      .def("states", &Session::states, nb::call_guard<Call>(),
           nb::sig("def states(self) -> dict[str, typing.Any]"))
      .def("reset_states", &Session::reset_states, "shapes"_a, nb::call_guard<Call>(),
           nb::sig("def reset_states(self, shapes: dict[str, collections.abc.Sequence[int]]) -> "
                   "None"))
      .def_prop_ro("memory_bytes", &Session::memory_bytes)
      .def_prop_ro("run_warnings", &Session::run_warnings)
      .def_prop_ro("copied_inputs", &Session::copied_inputs);
}

}  // namespace anneal::python
