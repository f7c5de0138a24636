// From an ONNX model to an engine:
//
//   anneal::BuildOptions options;
//   options.precision.types = {anneal::Precision::kF16};
//   const anneal::BuildReport report = anneal::build_engine("m.onnx", "m.engine", options);
#pragma once
#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "anneal/engine/builder/build_options.h"
#include "anneal/engine/builder/build_report.h"
#include "anneal/engine/data/dataset.h"
#include "anneal/engine/onnx/onnx_model.h"
#include "anneal/engine/tune/frontier/frontier.h"
#include "anneal/engine/tune/metric/metric.h"

namespace anneal {

struct TunedEngine {
  std::vector<std::byte> bytes;  // of the chosen point
  Frontier frontier;
  bool was_resumed = false;  // from the journal
};

// All of these fail with Error: kIo, kCannotWrite, kInvalidModel, kUnsupported (naming everything
// that the model needs and Anneal lacks), kInvalidArgument, kLimit, kOutOfMemory, kCancelled. They
// are safe to call from several threads.

// Same model, options and targets: the same bytes, unless kernels are timed and the cache lacks
// their times.
BuiltEngine build_engine(const OnnxModel& model, const BuildOptions& options = {});
// The same to a file, which is written whole or not at all.
BuildReport build_engine(const OnnxModel& model, std::string_view engine_path,
                         const BuildOptions& options = {});

// The inputs that samples are made for.
std::vector<DataInput> onnx_inputs(const OnnxModel& model, const BuildOptions& options = {});

// The ranges of the model's tensors over the samples, in f32 on the CPU. options: of the build that
// follows. Fails with kInvalidArgument on values that are not finite, naming sample and tensor.
Calibration calibrate(const OnnxModel& model, const std::shared_ptr<const Dataset>& samples,
                      const BuildOptions& options = {});

// The fastest mix of precisions within options.tuning.budget, by measurement on the samples
// (docs/tuning.md). Fails with kInvalidArgument on samples without what the metric needs, or a
// budget that not even f32 keeps. A call that failed, or was cancelled, goes on from
// options.tuning.journal when it is repeated; the file is removed once the engine is written.
Frontier tune(const OnnxModel& model, const std::shared_ptr<const Dataset>& samples,
              const std::shared_ptr<const Metric>& metric, std::string_view engine_path,
              const BuildOptions& options = {});
// The same in memory. The journal stays.
TunedEngine tune(const OnnxModel& model, const std::shared_ptr<const Dataset>& samples,
                 const std::shared_ptr<const Metric>& metric, const BuildOptions& options = {});

}  // namespace anneal
