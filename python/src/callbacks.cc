#include "anneal/python/src/callbacks.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <utility>

#include "anneal/core/error.h"
#include "anneal/engine/onnx/onnx_builder.h"
#include "anneal/python/src/arrays.h"
#include "anneal/python/src/calls.h"
#include "anneal/python/src/dims_caster.h"

namespace nb = nanobind;

namespace anneal::python {
namespace {

// A dict from names to arrays, or the array of the only input.
std::vector<SampleTensor> sample_of(nb::handle item, const std::vector<DataInput>& inputs,
                                    const NumPy& numpy) {
  std::vector<SampleTensor> tensors;
  if (!nb::isinstance<nb::dict>(item)) {
    if (inputs.size() != 1)
      throw Error(ErrorCode::kInvalidArgument,
                  "the model has " + std::to_string(inputs.size()) +
                      " inputs: give each sample as a dict from their names to arrays");
    tensors.push_back({inputs[0].name, tensor_of(item, inputs[0].dtype, inputs[0].name, numpy)});
    return tensors;
  }
  const auto sample = nb::borrow<nb::dict>(item);
  for (const auto& [name, array] : sample) {
    const std::string text = port_name(name);
    const auto input = std::ranges::find(inputs, text, &DataInput::name);
    const DataInput wanted = input != inputs.end() ? *input : DataInput{.name = text, .dims = {}};
    tensors.push_back({text, tensor_of(array, wanted.dtype, text, numpy)});
  }
  return tensors;
}

std::shared_ptr<NumPy> shared_numpy() {
  return {new NumPy, [](NumPy* dropped) {
            const nb::gil_scoped_acquire acquire;
            delete dropped;
          }};
}

// The class of each pixel.
Tensor mask_of(nb::handle array, const NumPy& numpy) {
  Tensor mask = tensor_of(numpy.dense_int32(array), DataType::kI32, "mask", numpy);
  if (mask.dims().rank() != 2)
    throw Error(ErrorCode::kInvalidArgument, "a mask has " + std::to_string(mask.dims().rank()) +
                                                 " axes: give integers [height, width]");
  return mask;
}

// Samples, labels and masks that are sequences of Python. The errors must outlive it.
class PythonSamples : public Dataset {
 public:
  PythonSamples(const SampleSource& source, std::vector<DataInput> inputs, CallbackErrors& errors)
      : items_(shared(source.items)),
        masks_(shared(source.masks)),
        numpy_(shared_numpy()),
        size_(static_cast<int64_t>(nb::len(source.items))),
        has_masks_(!source.masks.is_none()),
        labels_(source.labels),
        inputs_(std::move(inputs)),
        errors_(errors) {}

  int64_t size() const override { return size_; }
  std::vector<SampleTensor> read(int64_t i) const override {
    return with_gil(errors_, [&] { return sample_of(nb::object((*items_)[i]), inputs_, *numpy_); });
  }
  std::optional<int64_t> label(int64_t i) const override {
    return labels_.empty() ? std::nullopt : labels_.at(static_cast<size_t>(i));
  }
  std::optional<Tensor> mask(int64_t i) const override {
    if (!has_masks_) return std::nullopt;
    return with_gil(errors_, [&]() -> std::optional<Tensor> {
      const nb::object mask = (*masks_)[i];
      if (mask.is_none()) return std::nullopt;
      return mask_of(mask, *numpy_);
    });
  }

 private:
  std::shared_ptr<nb::object> items_, masks_;
  std::shared_ptr<NumPy> numpy_;
  int64_t size_;
  bool has_masks_;
  std::vector<std::optional<int64_t>> labels_;
  std::vector<DataInput> inputs_;
  CallbackErrors& errors_;
};

// False, also NumPy's; other results, such as None and 0, are none.
bool is_false(nb::handle result) {
  if (nb::isinstance<nb::bool_>(result)) return !nb::cast<bool>(result);
  const nb::object dtype = nb::getattr(result, "dtype", nb::none());
  return nb::str(dtype).equal(nb::str("bool")) && PyObject_IsTrue(result.ptr()) == 0;
}

nb::dict arrays_of(std::span<const std::string> names, std::span<const Tensor> tensors,
                   const NumPy& numpy) {
  nb::dict arrays;
  for (size_t i = 0; i < tensors.size(); ++i)
    arrays[nb::cast(names[i])] = numpy.copy_of(tensors[i].view());
  return arrays;
}

}  // namespace

OnnxModel ModelSource::get() const {
  if (!path.empty()) return {path};
  return {std::span(static_cast<const std::byte*>(data.data()), data.size()), folder};
}

ProgressCallback progress_callback(const nb::object& function, CallbackErrors& errors) {
  return [function = shared(function), &errors](const Progress& progress) {
    if (is_ending()) return false;
    return with_gil(errors, [&] {
      if (PyErr_CheckSignals() != 0) nb::raise_python_error();
      if (function->is_none()) return true;
      const nb::object go_on = (*function)(progress.what, progress.share, progress.seconds_left);
      return !is_false(go_on);
    });
  };
}

std::shared_ptr<const Dataset> dataset_of(const OnnxModel& model, const SampleSource& samples,
                                          const BuildOptions& options, CallbackErrors& errors) {
  const std::vector<DataInput> inputs =
      without_gil(errors, [&] { return onnx_inputs(model, options); });
  std::shared_ptr<const Dataset> dataset;
  if (!samples.path.empty()) {
    dataset = without_gil(
        errors, [&] { return open_dataset(samples.path, find_data_format(samples.path), inputs); });
  } else {
    dataset = std::make_shared<PythonSamples>(samples, inputs, errors);
  }
  return samples.which.empty() ? dataset : subset(dataset, samples.which);
}

std::shared_ptr<const Metric> metric_of(const MetricSource& metric, CallbackErrors& errors) {
  if (metric.judge.is_none()) return make_metric(metric.name, metric.output);
  const auto judge = shared(metric.judge);
  const auto numpy = shared_numpy();
  return mean_metric(
      metric.name, metric.unit,
      [=, &errors](const Answer& answer) {
        return with_gil(errors, [&] {
          const nb::object mask =
              answer.mask ? numpy->copy_of(answer.mask->view()) : nb::object(nb::none());
          return nb::cast<double>(
              (*judge)(answer.sample, answer.label, arrays_of(answer.names, answer.outputs, *numpy),
                       arrays_of(answer.names, answer.reference, *numpy), mask));
        });
      },
      metric.wants_reference, metric.wants_masks);
}

LogSink log_sink(std::shared_ptr<nb::object> function) {
  if (!function || function->is_none()) return {};
  return [function = std::move(function)](Severity severity, std::string_view text) {
    if (!Py_IsInitialized()) return;
    const nb::gil_scoped_acquire acquire;
    const CallBack inside;
    const nb::object call = *function;
    if (call.is_none()) return;
    constexpr int kInfo = 20, kWarning = 30;  // of logging
    try {
      call(severity == Severity::kInfo ? kInfo : kWarning, text);
    } catch (nb::python_error& error) {
      if (error.matches(PyExc_KeyboardInterrupt))
        PyErr_SetInterrupt();  // the progress callback raises it, or the return to Python
      else
        error.discard_as_unraisable("the log of anneal");
    }
  };
}

}  // namespace anneal::python
