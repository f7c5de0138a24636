#include "anneal/engine/tune/metric/classify.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string_view>
#include <utility>

#include "anneal/core/refuse.h"
#include "anneal/engine/data/batch_reader.h"
#include "anneal/engine/data/elements.h"
#include "anneal/engine/tune/samples/batches.h"

namespace anneal {
namespace {

const TensorInfo& score_port(const Engine& engine, const std::string& name) {
  for (const TensorInfo& port : engine.outputs())
    if (name.empty() || port.name == name) return port;
  refuse_argument(fmt::format("the engine has no output \"{}\"", name));
}

using Clock = std::chrono::steady_clock;

constexpr int64_t kAhead = 2;  // batches that are read during a run

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Runs batches on one context, or on two in turn, and collects the predictions in order.
class Classification {
 public:
  Classification(const std::shared_ptr<const Engine>& engine,
                 const std::shared_ptr<const Dataset>& samples, const ClassifyOptions& options)
      : engine_(*engine),
        samples_(*samples),
        options_(options),
        port_(score_port(*engine, options.output)),
        batch_(batch_size(*engine, samples->read(0), options.batch)),
        reader_(samples, {.batch = batch_,
                          .threads = options.data_threads,
                          .ahead = options.overlap == Overlap::kNone ? 0 : kAhead}) {
    result_.batch = batch_;
    const bool has_streams = options.overlap == Overlap::kContexts;
    lanes_.reserve(2);
    for (int i = 0; i < (has_streams ? 2 : 1); ++i) {
      lanes_.push_back({{}, ExecutionContext(engine, options.context)});
      if (has_streams) lanes_.back().stream = Stream::make();
    }
  }

  ClassificationRun run() {
    const auto began = Clock::now();
    for (size_t next = 0; const auto batch = read(); next = (next + 1) % lanes_.size()) {
      finish(lanes_[next]);
      start(lanes_[next], *batch);
      if (!lanes_[next].stream) finish(lanes_[next]);
      last_ = next;
    }
    for (size_t i = 1; i <= lanes_.size(); ++i) finish(lanes_[(last_ + i) % lanes_.size()]);
    result_.total_milliseconds = milliseconds_since(began) - first_runs_;
    return std::move(result_);
  }

 private:
  struct Lane {
    std::vector<SampleTensor> inputs;  // outlives the run that reads it
    ExecutionContext context;
    std::optional<Stream> stream = {};  // none: runs are waited for at once
    std::optional<Batch> batch = {};    // under way
    Clock::time_point start = {};
    bool has_run = false;
  };

  std::optional<Batch> read() {
    const auto start = Clock::now();
    auto batch = reader_.next();
    result_.reading_milliseconds += milliseconds_since(start);
    return batch;
  }

  void start(Lane& lane, const Batch& batch) {
    lane.inputs = fed(engine_, batch, batch_);
    for (const SampleTensor& input : lane.inputs)
      lane.context.set_input(input.input, input.tensor.view());
    if (!std::exchange(lane.has_run, true)) {
      const auto start = Clock::now();
      lane.context.run();
      first_runs_ += milliseconds_since(start);
    }
    lane.batch = batch;
    lane.start = Clock::now();
    if (lane.stream)
      lane.context.enqueue(*lane.stream, [] {});
    else
      lane.context.run();
    result_.running_milliseconds += milliseconds_since(lane.start);
  }

  void finish(Lane& lane) {
    const auto batch = std::exchange(lane.batch, std::nullopt);
    if (!batch) return;
    const auto start = Clock::now();
    lane.context.wait();
    result_.running_milliseconds += milliseconds_since(start);
    result_.batch_milliseconds.push_back(milliseconds_since(lane.start));
    take_scores(lane.context, *batch);
    if (options_.progress) options_.progress(batch->first + batch->count);
  }

  void take_scores(const ExecutionContext& context, const Batch& batch) {
    const Tensor scores = dense_copy(context.output(port_.name));
    const auto layout = score_layout(DataType::kF32, scores.dims(), 2);
    if (!layout || layout->samples != batch_)
      refuse_argument(
          fmt::format("the output \"{}\" is {}{}, which are no scores of {} sample{}; --output "
                      "names another",
                      port_.name, to_string(scores.dtype()), to_string(scores.dims()), batch_,
                      batch_ == 1 ? "" : "s"));
    result_.classes = layout->classes;
    for (int64_t i = 0; i < batch.count; ++i) {
      const int64_t at = batch.first + i;
      Prediction one{samples_.name(at), samples_.label(at), best_classes(scores, *layout, i, 5)};
      if (one.label && (*one.label < 0 || *one.label >= layout->classes))
        refuse_argument(
            fmt::format("sample \"{}\" has the label {}, but the network has {} classes; "
                        "--label-offset is added to labels",
                        one.sample, *one.label, layout->classes));
      result_.predictions.push_back(std::move(one));
    }
  }

  const Engine& engine_;
  const Dataset& samples_;
  const ClassifyOptions& options_;
  const TensorInfo& port_;
  const int64_t batch_;
  ClassificationRun result_;
  BatchReader reader_;
  std::vector<Lane> lanes_;
  size_t last_ = 0;        // lane that started last
  double first_runs_ = 0;  // milliseconds
};

}  // namespace

std::optional<BestClasses> best_classes(const Tensor& output, int64_t k, int64_t most_samples) {
  const auto layout = score_layout(output.dtype(), output.dims());
  if (!layout) return std::nullopt;
  BestClasses classes{layout->samples, layout->classes, {}};
  for (int64_t sample = 0; sample < std::min(layout->samples, most_samples); ++sample)
    classes.best.push_back(best_classes(output, *layout, sample, k));
  return classes;
}

bool Prediction::among_five() const {
  return std::any_of(best.begin(), best.end(),
                     [&](const RankedClass& ranked) { return label == ranked.index; });
}

ClassificationRun classify(const std::shared_ptr<const Engine>& engine,
                           const std::shared_ptr<const Dataset>& samples,
                           const ClassifyOptions& options) {
  return Classification(engine, samples, options).run();
}

Accuracy accuracy_of(const std::vector<Prediction>& predictions) {
  Accuracy accuracy;
  for (const Prediction& one : predictions) {
    ++accuracy.samples;
    accuracy.labelled += one.label ? 1 : 0;
    accuracy.right += one.right() ? 1 : 0;
    accuracy.among_five += one.among_five() ? 1 : 0;
  }
  if (accuracy.labelled > 0) accuracy.interval = wilson_interval(accuracy.right, accuracy.labelled);
  return accuracy;
}

LossAgainst loss_against(const std::vector<Prediction>& predictions,
                         const std::vector<Prediction>& reference) {
  std::map<std::string_view, const Prediction*> by_name;
  for (const Prediction& one : reference) by_name[one.sample] = &one;
  LossAgainst against;
  std::vector<Prediction> same;
  std::vector<bool> right, reference_right;
  for (const Prediction& one : predictions) {
    const auto found = by_name.find(one.sample);
    if (found == by_name.end())
      refuse_argument(fmt::format("there is no prediction for sample \"{}\"", one.sample));
    Prediction& other = same.emplace_back(*found->second);
    other.label = one.label;
    against.agree += one.best[0].index == other.best[0].index ? 1 : 0;
    if (!one.label) continue;
    right.push_back(one.right());
    reference_right.push_back(other.right());
  }
  against.reference = accuracy_of(same);
  if (!right.empty()) against.loss = net_loss(right, reference_right);
  return against;
}

}  // namespace anneal
