// Calibration of an ONNX file in one call, for applications that build int8 engines:
//
//   auto samples = open_dataset("pictures", find_data_format("pictures"), onnx_inputs("m.onnx"));
//   OnnxBuildOptions options;
//   options.precision.int8 = true;
//   options.precision.ranges =
//       std::make_shared<CalibrationTable>(calibrate_onnx("m.onnx", samples));
//   build_engine("m.onnx", "m.engine", options);
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "anneal/engine/builder/onnx_builder.h"
#include "anneal/engine/data/dataset.h"
#include "anneal/optimizer/calibration_table.h"

namespace anneal {

struct OnnxCalibrationOptions {
  std::string method = "auto";  // "minmax", "entropy", "percentile", "mse": docs/quantization.md
  double percentile = 99.99;    // of the method of that name
  bool symmetric = false;       // as PrecisionOptions::symmetric will be
  // "on", "off", or "auto": where it makes the measured error less (docs/quantization.md)
  std::string fit_weights = "auto", correct_bias = "auto", equalize = "auto";
  int threads = 0;       // of an inference; 0: one per core
  int data_threads = 0;  // that read samples; 0: one per core
  std::map<std::string, OnnxBuildOptions::InputBounds> input_bounds;  // of the build that follows
  std::function<void(int64_t done, int64_t all)> progress = [](int64_t, int64_t) {};
};

// What samples are made for: the model's inputs.
std::vector<DataInput> onnx_inputs(const std::string& onnx_path);

// Runs the model in f32 on the CPU over the samples, once, as calibrate() does. Fails as
// build_engine() does, as reading the samples does, and with kInvalidArgument on values that are
// not finite, naming sample and tensor, and on a method that there is not.
CalibrationTable calibrate_onnx(const std::string& onnx_path,
                                const std::shared_ptr<const Dataset>& samples,
                                const OnnxCalibrationOptions& options = {});

}  // namespace anneal
