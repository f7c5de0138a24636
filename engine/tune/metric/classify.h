// Classifiers: the best classes of their outputs, their accuracy over a dataset, and the loss of
// one against another.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "anneal/engine/data/dataset.h"
#include "anneal/engine/run/engine.h"
#include "anneal/engine/tune/metric/accuracy.h"
#include "anneal/engine/tune/metric/scores.h"

namespace anneal {

// The k best classes of each sample of an output, for the first most_samples.
struct BestClasses {
  int64_t samples = 0, classes = 0;  // of the output
  std::vector<std::vector<RankedClass>> best;
};
// nullopt: the output does not look like scores of 10 classes or more. output: dense.
std::optional<BestClasses> best_classes(const Tensor& output, int64_t k, int64_t most_samples);

struct Prediction {
  std::string sample;
  std::optional<int64_t> label;
  std::vector<RankedClass> best;  // five, or as many as there are classes
  bool right() const { return !best.empty() && label == best[0].index; }
  bool among_five() const;
};

// How reading samples and running them share the time. The predictions are the same.
enum class Overlap {
  kNone,       // one after the other, on the caller's thread
  kReadAhead,  // threads read the next batches during a run
  kContexts,   // they do, and two contexts run on a stream each
};

struct ClassifyOptions {
  ContextOptions context;
  int64_t batch = 0;     // 0: 1, or the engine's batch
  int data_threads = 0;  // that read samples ahead
  Overlap overlap = Overlap::kReadAhead;
  std::string output;                                  // with the scores; empty: the first
  std::function<void(int64_t samples)> progress = {};  // after each batch
};

struct ClassificationRun {
  std::vector<Prediction> predictions;  // one per sample, in order
  // From the start of a run to its end; with Overlap::kContexts, until its scores were taken.
  std::vector<double> batch_milliseconds;
  // Of the caller's thread: all of it, and the parts that it waited for samples (or read them) and
  // for runs (or computed them). The first run of each context, which places memory, is left out.
  double total_milliseconds = 0, reading_milliseconds = 0, running_milliseconds = 0;
  int64_t batch = 1;
  int64_t classes = 0;  // number of classes of the network
};

// Fails with kInvalidArgument if an input has no data, a batch does not fit, the output holds no
// scores, or a label is no class of the network.
ClassificationRun classify(const std::shared_ptr<const Engine>& engine,
                           const std::shared_ptr<const Dataset>& samples,
                           const ClassifyOptions& options);

// Top-1 and top-5 accuracy.
struct Accuracy {
  int64_t samples = 0, labelled = 0;
  int64_t right = 0, among_five = 0;
  Interval interval;  // of right / labelled, 95 %; {0, 0} without labels
  double top1() const { return share(right); }
  double top5() const { return share(among_five); }

 private:
  double share(int64_t part) const {
    return labelled == 0 ? 0 : static_cast<double>(part) / static_cast<double>(labelled);
  }
};
Accuracy accuracy_of(const std::vector<Prediction>& predictions);

struct LossAgainst {
  Accuracy reference;  // of the same samples, by the labels of `predictions`
  int64_t agree = 0;   // samples with the same best class
  NetLoss loss = {};   // of the labelled samples; zero without any
};
// Pairs the samples by name. Fails with kInvalidArgument, naming the sample, if the reference lacks
// one. REQUIRES: every prediction of either has a best class
LossAgainst loss_against(const std::vector<Prediction>& predictions,
                         const std::vector<Prediction>& reference);

}  // namespace anneal
