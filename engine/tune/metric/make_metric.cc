#include "anneal/engine/tune/metric/metric.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/engine/tune/metric/bootstrap.h"
#include "anneal/engine/tune/metric/difference_metrics.h"
#include "anneal/engine/tune/metric/judged_output.h"
#include "anneal/engine/tune/metric/mask_metric.h"
#include "anneal/engine/tune/metric/scores.h"

namespace anneal {
namespace {

// The nearest number that a journal can keep.
double finite(double value) {
  constexpr double kLargest = std::numeric_limits<double>::max();
  return std::isnan(value) ? -kLargest : std::clamp(value, -kLargest, kLargest);
}

double mean_score(std::span<const SampleScore* const> samples) {
  double sum = 0;
  for (const SampleScore* sample : samples) sum += sample->front();
  return finite(sum / static_cast<double>(samples.size()));
}

// The share of samples whose label is among the k best classes.
class TopClasses final : public Metric {
 public:
  TopClasses(int64_t k, std::string output) : k_(k), output_(std::move(output)) {}
  std::string name() const override { return fmt::format("top-{}", k_); }
  std::string unit() const override { return "%"; }
  bool wants_labels() const override { return true; }
  bool is_share() const override { return true; }

  SampleScore judge(const Answer& answer) const override {
    if (!answer.label)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("the sample \"{}\" has no label, which {} needs: give labels, or choose a "
                       "metric without, such as cosine",
                       answer.sample, name()));
    const size_t index = scores_index(answer);
    const ScoreLayout layout = *layout_of(answer.outputs[index], 2);
    if (*answer.label < 0 || *answer.label >= layout.classes)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("the sample \"{}\" has the label {}, but the output \"{}\" has {} classes, "
                       "from 0 on; --label-offset is added to labels",
                       answer.sample, *answer.label, answer.names[index], layout.classes));
    const auto best = best_classes(answer.outputs[index], layout, 0, k_);
    return {std::any_of(best.begin(), best.end(),
                        [&](const RankedClass& ranked) {
                          return ranked.index == *answer.label && !std::isnan(ranked.score);
                        })
                ? 1.0
                : 0.0};
  }
  double score(std::span<const SampleScore* const> samples) const override {
    return 100 * mean_score(samples);
  }

 private:
  static std::optional<ScoreLayout> layout_of(const Tensor& output, int64_t least) {
    const auto layout = score_layout(output.dtype(), output.dims(), least);
    return layout && layout->samples == 1 ? layout : std::nullopt;
  }
  size_t scores_index(const Answer& answer) const {
    // Among several outputs, one with few numbers is less likely to be that of the scores.
    for (const int64_t least : {10, 2}) {
      const size_t index = find_output(answer, output_, [&](const Tensor& output) {
        return layout_of(output, least).has_value();
      });
      if (index < answer.outputs.size()) return index;
    }
    fail_without_output(answer, output_, "of scores, floats [1,classes]", name());
  }

  const int64_t k_;
  const std::string output_;
};

class MeanMetric final : public Metric {
 public:
  MeanMetric(std::string name, std::string unit, std::function<double(const Answer&)> judge,
             bool wants_reference, bool wants_masks)
      : name_(std::move(name)),
        unit_(std::move(unit)),
        judge_(std::move(judge)),
        wants_reference_(wants_reference),
        wants_masks_(wants_masks) {}
  std::string name() const override { return name_; }
  std::string unit() const override { return unit_; }
  bool wants_masks() const override { return wants_masks_; }
  bool wants_reference() const override { return wants_reference_; }
  SampleScore judge(const Answer& answer) const override { return {finite(judge_(answer))}; }
  double score(std::span<const SampleScore* const> samples) const override {
    return mean_score(samples);
  }

 private:
  const std::string name_, unit_;
  const std::function<double(const Answer&)> judge_;
  const bool wants_reference_, wants_masks_;
};

using MetricPtr = std::shared_ptr<const Metric>;
constexpr struct {
  std::string_view name;
  MetricPtr (*make)(const std::string& output);
} kMetrics[] = {
    {"top1",
     [](const std::string& output) -> MetricPtr {
       return std::make_shared<TopClasses>(1, output);
     }},
    {"top5",
     [](const std::string& output) -> MetricPtr {
       return std::make_shared<TopClasses>(5, output);
     }},
    {"miou", [](const std::string& output) { return mask_metric(output, MasksOf::kSamples); }},
    {"miou-f32",
     [](const std::string& output) { return mask_metric(output, MasksOf::kReference); }},
    {"cosine", [](const std::string& output) { return cosine_metric(output); }},
    {"sqnr", [](const std::string& output) { return sqnr_metric(output); }},
    {"max-error", [](const std::string& output) { return max_error_metric(output); }},
};

}  // namespace

std::shared_ptr<const Metric> make_metric(std::string_view name, const std::string& output) {
  return at_entry([&]() -> std::shared_ptr<const Metric> {
    std::vector<std::string_view> names;
    for (const auto& metric : kMetrics) {
      if (metric.name == name) return metric.make(output);
      names.push_back(metric.name);
    }
    fail(ErrorCode::kInvalidArgument,
         fmt::format("there is no metric \"{}\"; there are {}", name, fmt::join(names, ", ")));
  });
}

std::shared_ptr<const Metric> mean_metric(std::string name, std::string unit,
                                          std::function<double(const Answer&)> judge,
                                          bool wants_reference, bool wants_masks) {
  return at_entry([&]() -> std::shared_ptr<const Metric> {
    if (!judge)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("the metric \"{}\" has no function that judges", name));
    return std::make_shared<MeanMetric>(std::move(name), std::move(unit), std::move(judge),
                                        wants_reference, wants_masks);
  });
}

namespace {

// For right and wrong answers: two pairs are added, half lost and half gained.
DropInterval drop_of_shares(std::span<const SampleScore> samples,
                            std::span<const SampleScore> reference) {
  constexpr double kDeviations = 1.959963984540054;
  double lost = 0, gained = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    lost += reference[i][0] > samples[i][0] ? 1 : 0;
    gained += reference[i][0] < samples[i][0] ? 1 : 0;
  }
  const auto all = static_cast<double>(samples.size());
  const double changed = lost + gained + 1, more = all + 2;
  const double centre = (lost - gained) / more;
  const double half =
      kDeviations * std::sqrt(changed - (lost - gained) * (lost - gained) / more) / more;
  return {100 * (lost - gained) / all, 100 * std::max(centre - half, -1.0),
          100 * std::min(centre + half, 1.0)};
}

}  // namespace

DropInterval drop_of(const Metric& metric, std::span<const SampleScore> samples,
                     std::span<const SampleScore> reference) {
  return at_entry([&]() -> DropInterval {
    if (samples.size() != reference.size() || samples.empty())
      fail(ErrorCode::kInvalidArgument,
           fmt::format(
               "a drop is between scores of the same samples, at least one; given are {} and "
               "{}",
               samples.size(), reference.size()));
    if (metric.is_share()) return drop_of_shares(samples, reference);
    std::vector<const SampleScore*> drawn, reference_drawn;
    size_t numbers = 0;
    for (size_t i = 0; i < samples.size(); ++i) {
      drawn.push_back(&samples[i]);
      reference_drawn.push_back(&reference[i]);
      numbers += 2 + samples[i].size() + reference[i].size();
    }
    // NaN: the reference has no score.
    const auto drop = [&] {
      const double score = metric.score(drawn), reference_score = metric.score(reference_drawn);
      if (!std::isfinite(reference_score)) return std::numeric_limits<double>::quiet_NaN();
      return std::isnan(score) ? std::numeric_limits<double>::max()
                               : finite(reference_score - score);
    };
    const double whole = drop();
    if (std::isnan(whole))
      fail(ErrorCode::kInvalidArgument,
           fmt::format("the metric {} gives the model in f32 no finite score, so that there is "
                       "nothing to compare with",
                       metric.name()));

    constexpr size_t kDrawsPerNumber = 8;  // what a score takes of each, in the time of draws
    Resampler resampler(samples.size());
    std::vector<double> drops;
    for (size_t left = resample_count(kDrawsPerNumber * numbers); left > 0; --left) {
      for (size_t i = 0; i < samples.size(); ++i) {
        const size_t k = resampler.next();
        drawn[i] = &samples[k];
        reference_drawn[i] = &reference[k];
      }
      if (const double one = drop(); !std::isnan(one)) drops.push_back(one);
    }
    if (drops.empty()) return {whole, whole, whole};
    const Interval interval = middle_of(std::move(drops));
    return {whole, interval.low, interval.high};
  });
}

}  // namespace anneal
