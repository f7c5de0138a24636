// BuildOptions, with names instead of enumerators.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <string_view>
#include <utility>

#include "anneal/core/error.h"
#include "anneal/engine/builder/build_options.h"
#include "anneal/optimizer/calibration_table.h"
#include "anneal/python/src/bindings.h"
#include "anneal/python/src/callbacks.h"
#include "anneal/python/src/dims_caster.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace anneal::python {
namespace {

// The value of that name, of those that to_string() names.
template <class Value, size_t N>
Value named(std::string_view name, const Value (&values)[N], const char* what) {
  std::string known;
  for (const Value value : values) {
    if (to_string(value) == name) return value;
    known += (known.empty() ? "" : ", ") + std::string(to_string(value));
  }
  throw Error(ErrorCode::kInvalidArgument,
              std::string(what) + " \"" + std::string(name) + "\" is none of " + known);
}

Precision precision_named(const std::string& name) {
  return named(name, kAllPrecisions, "precision");
}

RangeMethod method_named(const std::string& name) {
  constexpr RangeMethod kMethods[] = {RangeMethod::kMinMax, RangeMethod::kEntropy,
                                      RangeMethod::kPercentile, RangeMethod::kMse,
                                      RangeMethod::kAuto};
  return named(name, kMethods, "range method");
}

using Shapes = std::map<std::string, Dims>;

Shapes shapes_of(const nb::dict& sizes) {
  Shapes shapes;
  for (const auto& [input, dims] : sizes) {
    const auto name = nb::cast<std::string>(nb::str(input));
    shapes[name] = dims_of(dims, name);
  }
  return shapes;
}

void add_profile(BuildOptions& options, const nb::dict& min, const nb::dict& opt,
                 const nb::dict& max) {
  options.profiles.push_back({.min = shapes_of(min), .opt = shapes_of(opt), .max = shapes_of(max)});
}

void set_layers(BuildOptions& options,
                const std::vector<std::pair<std::string, std::string>>& layers) {
  options.precision.layers.clear();
  for (const auto& [pattern, precision] : layers)
    options.precision.layers.push_back({pattern, precision_named(precision)});
}

void set_types(BuildOptions& options, const std::vector<std::string>& names) {
  options.precision.types.clear();
  for (const std::string& name : names) {
    if (name == "best")
      options.precision.best = true;
    else
      options.precision.types.insert(precision_named(name));
  }
}

}  // namespace

void bind_options(nb::module_& module) {
  nb::class_<BuildOptions>(module, "BuildOptions", "As BuildOptions of C++.")
      .def(nb::init<>())
      .def_rw("targets", &BuildOptions::targets)
      .def_rw("default_inputs", &BuildOptions::default_inputs)
      .def_rw("states", &BuildOptions::states)
      .def_rw("exact", &BuildOptions::exact)
      .def_rw("tf32", &BuildOptions::tf32)
      .def_rw("skip_passes", &BuildOptions::skip_passes)
      .def_rw("only_passes", &BuildOptions::only_passes)
      .def_rw("skip_kernels", &BuildOptions::skip_kernels)
      .def_rw("libraries", &BuildOptions::libraries)
      .def_rw("allow_fallback", &BuildOptions::allow_fallback)
      .def_rw("max_memory", &BuildOptions::max_memory)
      .def_rw("time_kernels", &BuildOptions::time_kernels)
      .def_rw("timing_cache", &BuildOptions::timing_cache)
      .def_rw("optimization_level", &BuildOptions::optimization_level)
      .def_rw("time_seconds", &BuildOptions::time_seconds)
      .def_rw("pack_weights", &BuildOptions::pack_weights)
      .def_rw("weights_path", &BuildOptions::weights_path)
      .def_rw("threads", &BuildOptions::threads)
      .def_rw("data_threads", &BuildOptions::data_threads)
      .def("add_profile", &add_profile, "min"_a, "opt"_a, "max"_a,
           nb::sig("def add_profile(self, min: dict[str, typing.Any], opt: dict[str, typing.Any], "
                   "max: dict[str, typing.Any]) -> None"))
      .def("set_precisions", &set_types, "names"_a)
      .def("set_layer_precisions", &set_layers, "layers"_a)
      .def("set_symmetric", [](BuildOptions& self, bool on) { self.precision.symmetric = on; })
      .def("set_weight_format",
           [](BuildOptions& self, std::string format) {
             self.precision.weight_format = std::move(format);
           })
      .def("set_max_layer_error",
           [](BuildOptions& self, float most) { self.precision.max_layer_error = most; })
      .def("set_ranges",
           [](BuildOptions& self, const std::string& table) {
             self.precision.ranges = parse_calibration_table(table);
           })
      .def(
          "set_range_method",
          [](BuildOptions& self, const std::string& name, std::optional<double> percentile) {
            self.calibration.method = method_named(name);
            if (percentile) self.calibration.percentile = *percentile;
          },
          "name"_a, "percentile"_a.none() = nb::none())
      .def(
          "set_log",
          [](BuildOptions& self, const nb::object& function) {
            self.log = log_sink(shared(function));
          },
          "function"_a.none())
      .def(
          "set_self_check",
          [](BuildOptions& self, bool run, std::optional<double> most_work) {
            self.self_check.run = run;
            if (most_work) self.self_check.most_work = *most_work;
          },
          "run"_a, "most_work"_a.none() = nb::none())
      .def(
          "set_tuning",
          [](BuildOptions& self, double budget, int64_t calibrate, int64_t search, double seconds,
             bool modelled_times, size_t most_groups, const std::string& journal,
             const std::string& journal_key) {
            self.tuning = {budget,         calibrate,   search,  seconds,
                           modelled_times, most_groups, journal, journal_key};
          },
          "budget"_a, "calibrate_samples"_a, "search_samples"_a, "seconds"_a, "modelled_times"_a,
          "most_groups"_a, "journal"_a, "journal_key"_a);

  nb::class_<ModelSource>(module, "ModelSource", "A model: a path, or bytes.")
      .def(
          "__init__",
          [](ModelSource* self, std::string path, nb::bytes data, std::string folder) {
            new (self) ModelSource{std::move(path), std::move(data), std::move(folder)};
          },
          "path"_a, "data"_a, "folder"_a);
  nb::class_<SampleSource>(module, "SampleSource", "Samples: a sequence, or a path of data.")
      .def(
          "__init__",
          [](SampleSource* self, nb::object items, std::vector<std::optional<int64_t>> labels,
             std::string path, std::string which, nb::object masks) {
            new (self) SampleSource{std::move(items), std::move(labels), std::move(path),
                                    std::move(which), std::move(masks)};
          },
          "items"_a.none(), "labels"_a, "path"_a, "which"_a, "masks"_a.none());
  nb::class_<MetricSource>(module, "MetricSource", "A metric: a name, or a function.")
      .def(
          "__init__",
          [](MetricSource* self, std::string name, std::string output, nb::object judge,
             std::string unit, bool wants_reference, bool wants_masks) {
            new (self) MetricSource{std::move(name), std::move(output), std::move(judge),
                                    std::move(unit), wants_reference,   wants_masks};
          },
          "name"_a, "output"_a, "judge"_a.none(), "unit"_a, "wants_reference"_a, "wants_masks"_a);
}

}  // namespace anneal::python
