// Metrics: the quality of a network's outputs for samples.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/core/tensor.h"

namespace anneal {

// The network's results for one sample; valid during the call only.
struct Answer {
  std::string_view sample;             // its name
  std::optional<int64_t> label;        // its class
  std::span<const std::string> names;  // of the outputs
  // In that order: the sample's part of the batch, with axis 0.
  std::span<const Tensor> outputs;
  std::span<const Tensor> reference;  // outputs of the model in f32; empty unless wanted
  // The class of each pixel (Dataset::mask()); empty unless wanted.
  std::optional<Tensor> mask = std::nullopt;
};

// Finite numbers of one sample, from which the score of several samples is computed.
using SampleScore = std::vector<double>;

// Immutable; several threads may call all functions at once.
class Metric {
 public:
  virtual ~Metric() = default;
  virtual std::string name() const = 0;  // "top-1"
  virtual std::string unit() const = 0;  // of scores and drops: "%", "dB"; may be empty
  virtual bool wants_labels() const { return false; }
  virtual bool wants_masks() const { return false; }
  virtual bool wants_reference() const { return false; }
  // Whether a sample is either right (1) or wrong (0), and the score is a percentage.
  virtual bool is_share() const { return false; }
  // Whether the budget is a drop from the score of f32; otherwise it is a minimum score.
  virtual bool has_drop() const { return true; }
  // Fails with kInvalidArgument on outputs that it cannot judge.
  virtual SampleScore judge(const Answer& answer) const = 0;
  // The score of all samples together; higher is better. REQUIRES: at least one sample
  virtual double score(std::span<const SampleScore* const> samples) const = 0;
};

// A metric by name. output: the output with the scores or masks (empty: the first that fits), or
// with the values (empty: all float outputs):
//   top1, top5  percent of the samples whose label is the best class, or among the best five
//   miou        percent: mean intersection over union with the samples' masks, summed by class over
//               all samples; the mean is over the classes that occur. Outputs are scores [1,C,H,W],
//               of which the best is the class; classes, integers [1,H,W] or [1,1,H,W]; or
//               probabilities of class 1 against class 0, floats from 0 to 1, [1,1,H,W]. Other
//               sizes are resized to the mask's: classes to the nearest, others bilinearly. Ignored
//               pixels are not counted
//   miou-f32    as miou, with the results of the model in f32 instead of masks
//   cosine      percent: mean cosine of the values with those of the model in f32
//   sqnr        dB, 200 at most: signal to quantization noise, the model in f32 being the signal
//   max-error   minus the largest absolute difference of a value from that of the model in f32
// A NaN, or an infinity where the model in f32 has another value, is the worst result: the sample's
// cosine is 0, noise and difference are infinite, and a NaN score is never the best class.
// Fails with kInvalidArgument on another name.
std::shared_ptr<const Metric> make_metric(std::string_view name, const std::string& output = {});

// A metric of the application: a number per sample, whose mean is the score. NaN is the lowest.
std::shared_ptr<const Metric> mean_metric(std::string name, std::string unit,
                                          std::function<double(const Answer&)> judge,
                                          bool wants_reference = false, bool wants_masks = false);

// A metric by command: for each sample the shell runs `COMMAND FOLDER`, which prints a number.
// FOLDER has each output as NAME.npy, reference/NAME.npy, sample.txt with the name and, if present,
// label.txt and mask/classes.npy. Characters of names other than letters, digits, '.', '-' and '_'
// are '_'; if two names become equal, the later ends in _2, _3, ... Fails with kInvalidArgument on
// a status other than 0 or an output without a number, quoting the output.
std::shared_ptr<const Metric> command_metric(std::string command);

// 95 % interval of reference's score - score; finite. Shares: Agresti and Min (2005) for paired
// samples, which has a width even if no answer changed. Others: a paired bootstrap, the same on
// every machine, which skips resamples without a reference score; if only the other model has none,
// the drop counts as infinite. REQUIRES: both have the same number of samples, at least one
struct DropInterval {
  double drop = 0, low = 0, high = 0;
};
DropInterval drop_of(const Metric& metric, std::span<const SampleScore> samples,
                     std::span<const SampleScore> reference);

}  // namespace anneal
