#include "anneal/engine/tune/calibration/onnx_calibration.h"

#include "anneal/core/fail.h"
#include "anneal/engine/tune/calibration/calibrate.h"
#include "anneal/importer/importer.h"

namespace anneal {

std::vector<DataInput> onnx_inputs(const std::string& onnx_path) {
  return calibration_inputs(import_file(onnx_path, {}).graph);
}

CalibrationTable calibrate_onnx(const std::string& onnx_path,
                                const std::shared_ptr<const Dataset>& samples,
                                const OnnxCalibrationOptions& options) {
  CalibrationOptions calibration;
  calibration.range = {options.method, options.percentile, options.symmetric};
  calibration.choices = {options.fit_weights, options.correct_bias, options.equalize};
  calibration.threads = options.threads;
  calibration.data_threads = options.data_threads;
  if (options.progress)
    calibration.progress = [&options](int64_t done, int64_t all) {
      if (!options.progress(done, all))
        fail(ErrorCode::kCancelled, "the calibration was cancelled");
    };
  const ImportOptions import{.bounds = options.input_bounds,
                             .default_inputs = options.default_inputs};
  return calibrate(import_file(onnx_path, import).graph, samples, calibration).table;
}

}  // namespace anneal
