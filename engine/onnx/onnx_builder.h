// From an ONNX model to an engine:
//   anneal::BuildOptions options;
//   options.precision.types = {anneal::Precision::kF16};
//   const anneal::BuildReport report = anneal::build_engine("m.onnx", "m.engine", options);
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/engine/builder/build_options.h"
#include "anneal/engine/builder/build_report.h"
#include "anneal/engine/data/dataset.h"
#include "anneal/engine/onnx/onnx_model.h"
#include "anneal/engine/run/engine.h"
#include "anneal/engine/tune/frontier/frontier.h"
#include "anneal/engine/tune/metric/metric.h"

namespace anneal {

struct TunedEngine {
  std::vector<std::byte> bytes;  // of the chosen point
  Frontier frontier;
  bool was_resumed = false;  // from the journal
};

// All fail with Error: kIo, kCannotWrite, kInvalidModel, kUnsupported (naming all that is missing),
// kInvalidArgument, kLimit, kOutOfMemory, kCancelled. They are safe to call from several threads.

// The same model, options and targets give the same bytes, unless new times of kernels are taken.
BuiltEngine build_engine(const OnnxModel& model, const BuildOptions& options = {});
// As above, to a file, which is written whole or not at all.
BuildReport build_engine(const OnnxModel& model, std::string_view engine_path,
                         const BuildOptions& options = {});

// Builds an engine again with the weights of another model of its topology (docs/refit.md). Of
// `options` libraries, threads, progress, log and weights_path count. Fails with kInvalidModel,
// naming the input, layer or value, if the plan would change, and with kIncompatiblePlan on a
// damaged engine. An engine whose weights are apart stays, and gets a new file of weights.
BuiltEngine refit_engine(std::span<const std::byte> engine, const OnnxModel& model,
                         const BuildOptions& options = {});
// As above, to a file, which may be that of the engine. Empty: the weights alone are written.
BuildReport refit_engine(const std::string& engine_path, const OnnxModel& model,
                         std::string_view output_path, const BuildOptions& options = {});

// The model's inputs, as open_dataset() needs them.
std::vector<DataInput> onnx_inputs(const OnnxModel& model, const BuildOptions& options = {});
// The contents of a model or an engine file as JSON: docs/cli.md, `anneal inspect --json`.
std::string inspect_file(const std::string& path);
// Compares each tensor that both engines have, in runs on the same inputs: random if not given. As
// JSON: docs/cli.md, `anneal compare --json`. Unset tolerances: of the coarsest float type.
std::string compare_engines(const std::shared_ptr<const Engine>& a,
                            const std::shared_ptr<const Engine>& reference,
                            const std::vector<SampleTensor>& inputs = {}, int threads = 0,
                            std::optional<double> rtol = {}, std::optional<double> atol = {});

// Measures the ranges of the model's tensors over the samples, in f32 on the CPU, for a build with
// the same options. Fails with kInvalidArgument on values that are not finite, naming the tensor.
Calibration calibrate(const OnnxModel& model, const std::shared_ptr<const Dataset>& samples,
                      const BuildOptions& options = {});

// Finds the fastest mix of precisions within options.tuning.budget, by measurement on the samples
// (docs/tuning.md). Fails with kInvalidArgument if samples lack the metric's labels or masks, or if
// not even f32 meets the budget. If a call failed or was cancelled, the next one resumes from
// options.tuning.journal, which is removed when the engine is written.
Frontier tune(const OnnxModel& model, const std::shared_ptr<const Dataset>& samples,
              const std::shared_ptr<const Metric>& metric, std::string_view engine_path,
              const BuildOptions& options = {});
// As above, in memory. The journal is kept.
TunedEngine tune(const OnnxModel& model, const std::shared_ptr<const Dataset>& samples,
                 const std::shared_ptr<const Metric>& metric, const BuildOptions& options = {});

}  // namespace anneal
