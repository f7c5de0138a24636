// Refitting: other weights in an engine.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <span>
#include <string>

#include "anneal/engine/onnx/onnx_builder.h"
#include "anneal/python/src/bindings.h"
#include "anneal/python/src/callbacks.h"
#include "anneal/python/src/calls.h"
#include "anneal/python/src/reports.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace anneal::python {
namespace {

nb::tuple refit_file(const std::string& engine, const ModelSource& source, BuildOptions options,
                     const nb::object& progress, const std::string& path) {
  CallbackErrors errors;
  const OnnxModel model = source.get();
  options.progress = progress_callback(progress, errors);
  const BuildReport report =
      without_gil(errors, [&] { return refit_engine(engine, model, path, options); });
  return nb::make_tuple(nb::none(), nb::none(), report_dict(report));
}

// The engine, the weights of one whose weights are apart, and the report.
nb::tuple refit_bytes(const nb::bytes& engine, const ModelSource& source, BuildOptions options,
                      const nb::object& progress) {
  CallbackErrors errors;
  const OnnxModel model = source.get();
  options.progress = progress_callback(progress, errors);
  const std::span old(static_cast<const std::byte*>(engine.data()), engine.size());
  const BuiltEngine made = without_gil(errors, [&] { return refit_engine(old, model, options); });
  return nb::make_tuple(nb::bytes(made.bytes.data(), made.bytes.size()),
                        nb::bytes(made.weights.data(), made.weights.size()),
                        report_dict(made.report));
}

}  // namespace

void bind_refit(nb::module_& module) {
  module.def("refit_file", &refit_file, "engine"_a, "model"_a, "options"_a, "progress"_a.none(),
             "path"_a, nb::call_guard<Call>(),
             nb::sig("def refit_file(engine: str, model: ModelSource, options: BuildOptions, "
                     "progress: object, path: str) -> tuple[None, None, dict[str, typing.Any]]"));
  module.def("refit_bytes", &refit_bytes, "engine"_a, "model"_a, "options"_a, "progress"_a.none(),
             nb::call_guard<Call>(),
             nb::sig("def refit_bytes(engine: bytes, model: ModelSource, options: BuildOptions, "
                     "progress: object) -> tuple[bytes, bytes, dict[str, typing.Any]]"));
}

}  // namespace anneal::python
