// Tuning of an ONNX file in one call, for applications:
//
//   auto samples = anneal::open_dataset("pictures", anneal::find_data_format("pictures"),
//                                       anneal::onnx_inputs("m.onnx"));
//   anneal::OnnxTuneOptions options;
//   options.metric = anneal::make_metric("top1");
//   options.budget = 0.5;
//   const anneal::Frontier frontier = anneal::tune_onnx("m.onnx", samples, "m.engine", options);
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "anneal/engine/builder/onnx_builder.h"
#include "anneal/engine/data/dataset.h"
#include "anneal/engine/tune/frontier/frontier.h"
#include "anneal/engine/tune/metric/metric.h"
#include "anneal/optimizer/precision.h"

namespace anneal {

// Samples for three purposes, none for two.
struct TuneSamples {
  std::shared_ptr<const Dataset> calibrate, search, confirm;
};
// By the samples' hashes: so many to calibrate and to search with, all others to confirm. 0: a
// fifth, and three tenths. Fails with kInvalidArgument if nothing is left for one of them.
TuneSamples split_samples(const std::shared_ptr<const Dataset>& samples, int64_t calibrate = 0,
                          int64_t search = 0);

struct TuneProgress {
  std::string what{};                    // "group 12 of 40 in int8"
  double share = 0;                      // that is done
  std::optional<double> seconds_left{};  // as far as can be told
};

struct OnnxTuneOptions {
  std::shared_ptr<const Metric> metric{};  // REQUIRES: there is one
  // The most that may be lost against f32, in the metric's unit; of a metric without drops the
  // least score.
  double budget = 0.5;
  // Of all builds. REQUIRES: one target, and no precision but `symmetric`, which tuning chooses.
  BuildOptions build{};
  std::vector<Precision> precisions{};  // beside f32; empty: those that pay on the target
  // As in split_samples().
  int64_t calibrate_samples = 0, search_samples = 0;
  int threads = 0;        // of an inference; 0: one per core
  int data_threads = 0;   // that read samples; 0: one per core
  double seconds = 0;     // after which no more is tried; 0: no end
  std::string journal{};  // a file to go on with after a kill; empty: none. Gone in the end.
  // false cancels: tune_onnx() fails with kCancelled, and goes on from the journal when called
  // again.
  std::function<bool(const TuneProgress&)> progress{};
};

// Writes the chosen engine, whole or not at all. What is tried, and how one is chosen:
// docs/tuning.md. Fails as build_engine() and calibrate_onnx() do, and with kInvalidArgument on
// samples without what the metric wants, or a budget that not even f32 keeps.
Frontier tune_onnx(const std::string& onnx_path, const std::shared_ptr<const Dataset>& samples,
                   const std::string& engine_path, const OnnxTuneOptions& options);

// What build_engine() makes a point of a frontier with.
PrecisionOptions precision_of(const Frontier& frontier, const FrontierPoint& point);

}  // namespace anneal
