// Calibration: runs a model over samples and records the ranges of tensors that 8-bit layers would
// read. It also records the extremes of all tensors that engines without 8 bits store.
#pragma once
#include <memory>
#include <vector>

#include "anneal/engine/builder/build_options.h"
#include "anneal/engine/builder/build_report.h"
#include "anneal/engine/data/dataset.h"
#include "anneal/graph/graph.h"
#include "anneal/optimizer/calibration_table.h"

namespace anneal {

// The samples that the model needs: its inputs, with the sizes that the engine for calibration has.
std::vector<DataInput> calibration_inputs(const Graph& model);

// Runs the model in f32 on the CPU over the samples, which must be the same each time they are
// read: once over all, one at a time or in the model's fixed batch (an incomplete last batch
// repeats samples); before it over the first 32, to see whether equalizing pays, and after it over
// the first 100, to measure the errors of layers. In branches and loop bodies ranges are found,
// errors not measured. Memory: that of an inference that keeps the calibrated tensors, and a
// histogram of 64 KiB per tensor. Of the options these count: calibration, the passes,
// precision.symmetric, the threads and progress. Fails with kInvalidArgument naming the sample and
// the tensor if a value that would be quantized is not finite, with kCancelled, and as reading
// samples and building do.
Calibration calibrate(const Graph& model, const std::shared_ptr<const Dataset>& samples,
                      const BuildOptions& options);

}  // namespace anneal
