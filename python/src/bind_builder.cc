// Building, calibrating and tuning.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "anneal/engine/onnx/onnx_builder.h"
#include "anneal/python/src/bindings.h"
#include "anneal/python/src/callbacks.h"
#include "anneal/python/src/calls.h"
#include "anneal/python/src/reports.h"
#include "anneal/python/src/session.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace anneal::python {
namespace {

nb::bytes bytes_of(const std::vector<std::byte>& bytes) {
  return nb::bytes(bytes.data(), bytes.size());
}

// The engine file, or None if it was written to `path`; and the report.
nb::tuple build(const ModelSource& source, BuildOptions options, const SampleSource* samples,
                const nb::object& progress, const std::string& path) {
  CallbackErrors errors;
  const OnnxModel model = source.get();
  if (samples != nullptr)
    options.calibration.samples = dataset_of(model, *samples, options, errors);
  options.progress = progress_callback(progress, errors);
  if (!path.empty()) {
    const BuildReport report =
        without_gil(errors, [&] { return build_engine(model, path, options); });
    return nb::make_tuple(nb::none(), report_dict(report));
  }
  const BuiltEngine built = without_gil(errors, [&] { return build_engine(model, options); });
  return nb::make_tuple(bytes_of(built.bytes), report_dict(built.report));
}

// The table as text, and the warnings.
nb::tuple calibrate_model(const ModelSource& source, const SampleSource& samples,
                          BuildOptions options, const nb::object& progress) {
  CallbackErrors errors;
  const OnnxModel model = source.get();
  const auto dataset = dataset_of(model, samples, options, errors);
  options.progress = progress_callback(progress, errors);
  const Calibration found = without_gil(errors, [&] { return calibrate(model, dataset, options); });
  return nb::make_tuple(to_string(found.table), found.warnings);
}

// The engine file, or None if it was written to `path`; and the frontier as JSON.
nb::tuple tune_model(const ModelSource& source, const SampleSource& samples,
                     const MetricSource& measured, BuildOptions options, const nb::object& progress,
                     const std::string& path) {
  CallbackErrors errors;
  const OnnxModel model = source.get();
  const auto dataset = dataset_of(model, samples, options, errors);
  const auto metric = metric_of(measured, errors);
  options.progress = progress_callback(progress, errors);
  if (!path.empty()) {
    const Frontier frontier =
        without_gil(errors, [&] { return tune(model, dataset, metric, path, options); });
    return nb::make_tuple(nb::none(), to_string(frontier, FrontierForm::kJson));
  }
  const TunedEngine tuned =
      without_gil(errors, [&] { return tune(model, dataset, metric, options); });
  return nb::make_tuple(bytes_of(tuned.bytes), to_string(tuned.frontier, FrontierForm::kJson));
}

std::string compare(const SharedEngine& a, const SharedEngine& b, const nb::dict& inputs,
                    int threads, std::optional<double> rtol, std::optional<double> atol) {
  std::vector<SampleTensor> tensors;
  for (const auto& [key, array] : inputs) {
    const std::string name = port_name(key);
    const auto port = std::ranges::find(a.engine->inputs(), name, &TensorInfo::name);
    const DataType dtype = port == a.engine->inputs().end() ? DataType::kF32 : port->dtype;
    tensors.push_back({name, tensor_of(array, dtype, name, a.numpy)});
  }
  const nb::gil_scoped_release release;
  return compare_engines(a.engine, b.engine, tensors, threads, rtol, atol);
}

std::string frontier_text(const std::string& json, const std::string& form) {
  const Frontier frontier = parse_frontier(json);
  if (form == "csv") return to_string(frontier, FrontierForm::kCsv);
  if (form == "svg") return to_string(frontier, FrontierForm::kSvg);
  return to_string(frontier, FrontierForm::kTable);
}

nb::tuple frontier_summary(const std::string& json) {
  const FrontierSummary summary = summarize(parse_frontier(json));
  return nb::make_tuple(summary.speed, summary.loss);
}

}  // namespace

void bind_builder(nb::module_& module) {
  module.def("build", &build, "model"_a, "options"_a, "samples"_a.none(), "progress"_a.none(),
             "path"_a, nb::call_guard<Call>(),
             nb::sig("def build(model: ModelSource, options: BuildOptions, samples: SampleSource | "
                     "None, progress: object, path: str) -> tuple[bytes | None, dict[str, "
                     "typing.Any]]"));
  module.def("calibrate", &calibrate_model, "model"_a, "samples"_a, "options"_a,
             "progress"_a.none(), nb::call_guard<Call>(),
             nb::sig("def calibrate(model: ModelSource, samples: SampleSource, options: "
                     "BuildOptions, progress: object) -> tuple[str, list[str]]"));
  module.def("tune", &tune_model, "model"_a, "samples"_a, "metric"_a, "options"_a,
             "progress"_a.none(), "path"_a, nb::call_guard<Call>(),
             nb::sig("def tune(model: ModelSource, samples: SampleSource, metric: MetricSource, "
                     "options: BuildOptions, progress: object, path: str) -> tuple[bytes | None, "
                     "str]"));
  module.def(
      "ranges", [](const std::string& text) { return ranges_dict(parse_calibration_table(text)); },
      "table"_a, nb::sig("def ranges(table: str) -> dict[str, dict[str, typing.Any]]"),
      "The ranges of a calibration table by tensor.");
  module.def(
      "inspect",
      [](const std::string& path) {
        const nb::gil_scoped_release release;
        return inspect_file(path);
      },
      "path"_a, "The contents of a model or an engine file as JSON.");
  module.def("compare", &compare, "a"_a, "b"_a, "inputs"_a, "threads"_a, "rtol"_a.none(),
             "atol"_a.none(), nb::call_guard<Call>(),
             nb::sig("def compare(a: Engine, b: Engine, inputs: dict[str, typing.Any], threads: "
                     "int, rtol: float | None, atol: float | None) -> str"),
             "The comparison of two engines as JSON.");
  module.def("frontier_text", &frontier_text, "json"_a, "form"_a);
  module.def("frontier_summary", &frontier_summary, "json"_a,
             nb::sig("def frontier_summary(json: str) -> tuple[str, str]"));
}

}  // namespace anneal::python
