#include "anneal/engine/tune/calibration/onnx_calibration.h"

#include <fmt/format.h>

#include "anneal/engine/tune/calibration/calibrate.h"
#include "anneal/importer/importer.h"

namespace anneal {

std::vector<DataInput> onnx_inputs(const std::string& onnx_path) {
  return calibration_inputs(import_file(onnx_path, {}).graph);
}

CalibrationTable calibrate_onnx(const std::string& onnx_path,
                                const std::shared_ptr<const Dataset>& samples,
                                const OnnxCalibrationOptions& options) {
  const auto method = range_method(options.method);
  if (!method)
    fail(
        Code::kInvalidArgument,
        fmt::format("there is no calibration method \"{}\"; there are minmax, entropy, percentile, "
                    "mse and auto",
                    options.method));
  ImportOptions import;
  for (const auto& [name, bounds] : options.input_bounds)
    import.bounds[name] = {bounds.min, bounds.opt, bounds.max};
  CalibrationOptions calibration;
  calibration.range = {*method, options.percentile, options.symmetric};
  calibration.choices = {parse_use("fit_weights", options.fit_weights),
                         parse_use("correct_bias", options.correct_bias),
                         parse_use("equalize", options.equalize)};
  calibration.threads = options.threads;
  calibration.data_threads = options.data_threads;
  calibration.progress = options.progress;
  return calibrate(import_file(onnx_path, import).graph, samples, calibration).table;
}

}  // namespace anneal
