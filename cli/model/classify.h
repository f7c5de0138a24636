// A classifier run over a dataset.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "anneal/cli/output/progress.h"
#include "anneal/engine/data/dataset.h"
#include "anneal/engine/run/engine.h"
#include "anneal/engine/tune/metric/scores.h"

namespace anneal {

struct Prediction {
  std::string sample;
  std::optional<int64_t> label;
  std::vector<RankedClass> best;  // five, or as many as there are classes
  bool right() const { return !best.empty() && label == best[0].index; }
  bool among_five() const;
};

struct ClassifyOptions {
  ContextOptions context;
  int64_t batch = 0;     // 0: 1, or what the engine was built for
  int data_threads = 0;  // that read samples
  std::string output;    // with the scores; empty: the first
};

struct ClassificationRun {
  std::vector<Prediction> predictions;  // one per sample, in order
  std::vector<double> batch_milliseconds;
  double total_milliseconds = 0;
  int64_t batch = 1;
  int64_t classes = 0;  // that the network tells apart
};

// Fails with kInvalidArgument if an input gets nothing, a batch does not fit, the output holds no
// scores, or a label is no class of the network.
ClassificationRun classify(const std::shared_ptr<const Engine>& engine,
                           const std::shared_ptr<const Dataset>& samples,
                           const ClassifyOptions& options, ProgressLine& progress);

}  // namespace anneal
