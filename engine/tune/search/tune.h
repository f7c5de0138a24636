// The search for the fastest engine of an f32 model within an accuracy budget, by measurement.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/engine/data/dataset.h"
#include "anneal/engine/plan.h"
#include "anneal/engine/tune/frontier/frontier.h"
#include "anneal/engine/tune/metric/metric.h"
#include "anneal/engine/tune/search/onnx_tuning.h"
#include "anneal/graph/graph.h"
#include "anneal/optimizer/calibration_table.h"
#include "anneal/optimizer/pass.h"

namespace anneal {

struct TuneOptions {
  std::shared_ptr<const Metric> metric;
  // The most that may be lost against f32, in the metric's unit; of a metric without drops the
  // least score.
  double budget = 0.5;
  std::string target = "cpu";
  PassOptions passes = {};  // of all builds; its precision: `symmetric` alone counts
  std::vector<std::string> skip_kernels = {};
  // The precisions to choose from beside f32; empty: those that are faster on the target.
  std::vector<Precision> precisions = {};
  std::shared_ptr<const CalibrationTable> ranges = {};  // null: the samples say
  int threads = 0;                                      // of an inference; 0: one per core
  int data_threads = 0;                                 // that read samples; 0: one per core
  double seconds = 0;        // after which no more mixes are tried; 0: no limit
  bool is_modelled = false;  // take no times, also where that is possible
  size_t most_groups = 40;
  std::string also = {};  // further text that findings depend on: the metric's command
  // A file of the findings so far, to resume after a kill; empty: none. The caller removes it once
  // the tuned engine is written.
  std::string journal = {};
  std::function<void(const TuneProgress&)> progress = [](const TuneProgress&) {};
};

struct TuneResult {
  Frontier frontier;  // of points, commands are empty
  EngineFile engine;  // the chosen one, for the target
  bool was_resumed = false;
};

// How a build makes a mix; used by `--mix` and the sample. REQUIRES: as many precisions as groups
PrecisionOptions mix_options(std::span<const PrecisionGroup> groups,
                             std::span<const Precision> precisions,
                             std::shared_ptr<const CalibrationTable> ranges, bool symmetric);

// Calibrates. Lowers one group of layers at a time, to measure the effect on the answers to the
// samples that the model is least sure of. Measures the time of each group in each precision. From
// both finds all mixes that could be best (mix_front); judges some mixes, along the front and
// around the budget, on the search samples; times them in turn; takes the fastest within the
// budget, and confirms it on samples held out from the search, or the next mix that passes there.
// With the same journal, or modelled times, an interrupted run ends with the same result. Fails as
// calibrating, building, running and judging do, and with kInvalidArgument on samples that lack the
// metric's labels.
TuneResult tune(const Graph& model, const TuneSamples& samples, const TuneOptions& options);

}  // namespace anneal
