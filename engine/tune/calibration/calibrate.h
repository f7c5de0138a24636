// Calibration: runs a model over samples and records the ranges of tensors that 8-bit layers would
// read. It also records the extremes of all tensors that engines without 8 bits store.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "anneal/engine/data/dataset.h"
#include "anneal/engine/tune/calibration/choose_quantization.h"
#include "anneal/engine/tune/calibration/choose_range.h"
#include "anneal/graph/graph.h"
#include "anneal/optimizer/calibration_table.h"
#include "anneal/optimizer/pass.h"

namespace anneal {

struct CalibrationOptions {
  RangeOptions range;
  QuantizationChoices choices;
  PassOptions passes;    // those of the build that follows, but for the precision
  int threads = 0;       // of an inference; 0: one per core
  int data_threads = 0;  // that read samples; 0: one per core
  std::function<void(int64_t done, int64_t all)> progress = [](int64_t, int64_t) {};
};

struct Calibration {
  CalibrationTable table;
  std::vector<std::string> remarks;  // tensors and channels that are always 0, for people
};

// The samples that the model needs: its inputs, with the sizes that the engine for calibration has.
std::vector<DataInput> calibration_inputs(const Graph& model);

// Runs the model in f32 on the CPU over the samples, which must be the same each time they are
// read: once over all, one at a time or in the model's fixed batch (an incomplete last batch
// repeats samples); before it over the first 32, to see whether equalizing pays, and after it over
// the first 100, to measure the errors of layers. In branches and loop bodies ranges are found,
// errors not measured. Memory: that of an inference that keeps the calibrated tensors, and a
// histogram of 64 KiB per tensor. Fails with kInvalidArgument naming the sample and the tensor if a
// value that would be quantized is not finite, and as reading samples and building do.
Calibration calibrate(const Graph& model, const std::shared_ptr<const Dataset>& samples,
                      const CalibrationOptions& options);

}  // namespace anneal
