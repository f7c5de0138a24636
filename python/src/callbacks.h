// Callbacks of a build that are functions and sequences of Python.
#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "anneal/engine/builder/build_options.h"
#include "anneal/engine/data/dataset.h"
#include "anneal/engine/onnx/onnx_model.h"
#include "anneal/engine/tune/metric/metric.h"
#include "anneal/python/src/python_errors.h"

namespace anneal::python {

// A model as Python gives it: a path, or bytes with the folder of their external data.
struct ModelSource {
  std::string path;
  nanobind::bytes data;
  std::string folder;

  OnnxModel get() const;  // valid as long as this
};

// Samples as Python gives them. If `path` is empty, `items` is a sequence whose item i is a dict
// from input names to arrays, or the array of the only input.
struct SampleSource {
  nanobind::object items;
  std::vector<std::optional<int64_t>> labels;  // of each item, or empty
  std::string path;                            // of data on disk
  std::string which;                           // a subset, as subset() takes it; empty: all
  nanobind::object masks;                      // a sequence of arrays [height,width], or None
};

// A metric by name, or a function from (sample, label, outputs, reference, mask) to a number.
struct MetricSource {
  std::string name, output;
  nanobind::object judge;
  std::string unit;
  bool wants_reference = false, wants_masks = false;
};

// `function` is None, or takes (what, share, seconds left); what it returns: whether to go on.
// Signals such as Ctrl-C cancel as well, and the end of the interpreter.
ProgressCallback progress_callback(const nanobind::object& function, CallbackErrors& errors);
std::shared_ptr<const Dataset> dataset_of(const OnnxModel& model, const SampleSource& samples,
                                          const BuildOptions& options, CallbackErrors& errors);
std::shared_ptr<const Metric> metric_of(const MetricSource& metric, CallbackErrors& errors);
// `function` is None or null, or takes a level of the module logging and a text. Its exceptions go
// to sys.unraisablehook; KeyboardInterrupt is raised by the call. It may become None later.
LogSink log_sink(std::shared_ptr<nanobind::object> function);

}  // namespace anneal::python
