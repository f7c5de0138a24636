// Calibration of an ONNX file in one call, for applications that build int8 engines:
//
//   auto samples = anneal::open_dataset("pictures", anneal::find_data_format("pictures"),
//                                       anneal::onnx_inputs("m.onnx"));
//   anneal::BuildOptions options;
//   options.precision.int8 = true;
//   options.precision.ranges =
//       std::make_shared<anneal::CalibrationTable>(anneal::calibrate_onnx("m.onnx", samples));
//   anneal::build_engine("m.onnx", "m.engine", options);
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "anneal/engine/builder/onnx_builder.h"
#include "anneal/engine/data/dataset.h"
#include "anneal/engine/tune/calibration/method.h"
#include "anneal/optimizer/calibration_table.h"

namespace anneal {

struct OnnxCalibrationOptions {
  // How ranges follow from histograms; kAuto: by tensor, what makes the measured error least.
  RangeMethod method = RangeMethod::kAuto;
  double percentile = 99.99;  // of RangeMethod::kPercentile
  bool symmetric = false;     // as PrecisionOptions::symmetric will be
  // What else may be fitted to the samples (docs/quantization.md).
  Use fit_weights = Use::kAuto, correct_bias = Use::kAuto, equalize = Use::kAuto;
  int threads = 0;                            // of an inference; 0: one per core
  int data_threads = 0;                       // that read samples; 0: one per core
  InputBoundsByName input_bounds = {};        // of the build that follows
  std::set<std::string> default_inputs = {};  // the same: BuildOptions::default_inputs
  // Called after each batch of samples. false cancels: calibrate_onnx() fails with kCancelled.
  std::function<bool(int64_t done, int64_t all)> progress = {};
};

// What samples are made for: the model's inputs.
std::vector<DataInput> onnx_inputs(const std::string& onnx_path);

// Runs the model in f32 on the CPU over the samples, once, as calibrate() does. Fails as
// build_engine() does, as reading the samples does, and with kInvalidArgument on values that are
// not finite, naming sample and tensor.
CalibrationTable calibrate_onnx(const std::string& onnx_path,
                                const std::shared_ptr<const Dataset>& samples,
                                const OnnxCalibrationOptions& options = {});

}  // namespace anneal
