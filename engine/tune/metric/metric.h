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

// One sample's results, during the call only.
struct Answer {
  std::string_view sample;             // its name
  std::optional<int64_t> label;        // its class
  std::span<const std::string> names;  // of the outputs
  // In that order: of a batch the part that is this sample's, axis 0 kept.
  std::span<const Tensor> outputs;
  std::span<const Tensor> reference;  // what the model in f32 gives; empty unless wanted
  // The class of each of its pixels, as Dataset::mask() gives it; nothing unless wanted.
  std::optional<Tensor> mask = std::nullopt;
};

// Numbers of one sample, from which several samples' score is computed; finite.
using SampleScore = std::vector<double>;

// Immutable; functions may be called from several threads at a time.
class Metric {
 public:
  virtual ~Metric() = default;
  virtual std::string name() const = 0;  // "top-1"
  virtual std::string unit() const = 0;  // of scores and drops: "%", "dB"; may be empty
  virtual bool wants_labels() const { return false; }
  virtual bool wants_masks() const { return false; }
  virtual bool wants_reference() const { return false; }
  // Whether a sample is right or wrong: it scores 1 or 0, and the score is a percentage.
  virtual bool is_share() const { return false; }
  // Whether the model in f32 has a score to lose from; else a budget is a least score.
  virtual bool has_drop() const { return true; }
  // Fails with kInvalidArgument on outputs that it cannot judge.
  virtual SampleScore judge(const Answer& answer) const = 0;
  // Of the samples together: the more, the better. REQUIRES: at least one
  virtual double score(std::span<const SampleScore* const> samples) const = 0;
};

// By name, `output` being the output with the scores or masks (empty: the first that fits) or with
// the values (empty: all of floats):
//   top1, top5  percent of the samples whose label is the best class, or among the best five
//   miou        percent: mean intersection over union with the samples' masks: of each class that
//               occurs in either the pixels that both have over those that one has, each summed
//               over all samples; the mean over the classes. Outputs are scores [1,C,H,W], whose
//               best is the class; classes, integers [1,H,W] or [1,1,H,W]; or chances of class 1
//               against class 0, floats from 0 to 1, [1,1,H,W]. One of another size than the mask
//               is resized to it, scores and chances bilinearly, classes to the nearest. Pixels
//               that the mask ignores do not count
//   miou-f32    as miou, with the results of the model in f32 instead of masks
//   cosine      percent: mean cosine of the values with those of the model in f32
//   sqnr        dB, 200 at most: signal to quantization noise, the model in f32 being the signal
//   max-error   minus the largest difference of a value from that of the model in f32
// A value that is NaN, or infinite where the model in f32 gives another, counts as the worst: a
// sample's cosine is then 0, the noise and the difference without bounds, and no class is NaN's.
// Fails with kInvalidArgument on another name.
std::shared_ptr<const Metric> make_metric(std::string_view name, const std::string& output = {});

// An application's own: a number per sample, whose mean is the score. NaN counts as the lowest.
std::shared_ptr<const Metric> mean_metric(std::string name, std::string unit,
                                          std::function<double(const Answer&)> judge,
                                          bool wants_reference = false, bool wants_masks = false);

// A command of the user: for each sample the shell runs `COMMAND FOLDER`, which prints a number.
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
