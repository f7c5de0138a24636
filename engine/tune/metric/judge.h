// Evaluation of engines over samples by a metric, compared with the f32 model.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "anneal/engine/data/dataset.h"
#include "anneal/engine/run/engine.h"
#include "anneal/engine/tune/metric/metric.h"

namespace anneal {

struct Judgement {
  std::vector<SampleScore> scores;  // of each sample, in their order
  // For each sample: the squared difference of an output from the reference's over its square, 1 at
  // most, and the mean of that over the outputs; for integers the share of those that differ.
  std::vector<double> damages;
  double output_error() const;  // the mean
};

std::string to_string(const Judgement& judgement);
// Parses the result of to_string() for `samples` samples; nothing if it is something else.
std::optional<Judgement> parse_judgement(const std::string& text, size_t samples);

struct JudgeOptions {
  int threads = 0;                        // of an inference; 0: one per core
  int data_threads = 0;                   // that read samples; 0: one per core
  size_t kept_bytes = size_t{256} << 20;  // of the reference's outputs; beyond it runs again
};

class Judge {
 public:
  // reference: the model in f32. Fails as run_samples() does, and as Metric::judge.
  Judge(std::shared_ptr<const Metric> metric, std::shared_ptr<const Engine> reference,
        std::shared_ptr<const Dataset> samples, const JudgeOptions& options);
  const Metric& metric() const { return *metric_; }
  const Dataset& samples() const { return *samples_; }
  const Judgement& reference() const { return of_reference_; }
  // How sure the reference is of its best class for each sample: the lead over the next, in
  // standard deviations of the scores. 0 where no output is one of scores.
  const std::vector<double>& margins() const { return margins_; }

  Judgement judge(const std::shared_ptr<const Engine>& engine) const;

 private:
  using Outputs = std::vector<Tensor>;
  template <class Take>
  void for_each_answer(const std::shared_ptr<const Engine>& engine, const Take& take) const;
  SampleScore score_of(int64_t sample, const Outputs& outputs, const Outputs& reference) const;

  const std::shared_ptr<const Metric> metric_;
  const std::shared_ptr<const Engine> reference_;
  const std::shared_ptr<const Dataset> samples_;
  const JudgeOptions options_;
  std::vector<std::string> names_;  // of the outputs
  std::vector<Outputs> kept_;       // of the first samples
  Judgement of_reference_;
  std::vector<double> margins_;
};

}  // namespace anneal
