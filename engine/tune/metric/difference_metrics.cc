#include "anneal/engine/tune/metric/difference_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/engine/data/elements.h"
#include "anneal/engine/tune/metric/judged_output.h"

namespace anneal {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLargest = std::numeric_limits<double>::max();

// Sums over the values of a sample.
struct Comparison {
  double product = 0, squares = 0, reference_squares = 0;
  double noise = 0, largest_difference = 0;

  void add(double is, double should_be) {
    if (!std::isfinite(is) || !std::isfinite(should_be)) {
      if (is != should_be && !(std::isnan(is) && std::isnan(should_be))) add_worst();
      return;
    }
    const double difference = std::abs(is - should_be);
    product += is * should_be;
    squares += is * is;
    reference_squares += should_be * should_be;
    noise += difference * difference;
    largest_difference = std::max(largest_difference, difference);
  }
  void add_worst() { squares = noise = largest_difference = kInfinity; }
};

class DifferenceMetric : public Metric {
 public:
  explicit DifferenceMetric(std::string output) : output_(std::move(output)) {}
  bool wants_reference() const override { return true; }

 protected:
  Comparison compare(const Answer& answer) const {
    check(answer.reference.size() == answer.outputs.size(), "a reference was wanted");
    const auto fits = [&](const Tensor& output) {
      return is_float(output.dtype()) || (!output_.empty() && is_integer(output.dtype()));
    };
    if (find_output(answer, output_, fits) == answer.outputs.size())
      fail_without_output(answer, output_, "of floats", name());
    Comparison comparison;
    for (size_t i = 0; i < answer.outputs.size(); ++i) {
      const Tensor &output = answer.outputs[i], &reference = answer.reference[i];
      if ((!output_.empty() && answer.names[i] != output_) || !fits(output)) continue;
      if (output.dims() != reference.dims()) {  // sizes that depend on values
        comparison.add_worst();
        continue;
      }
      const size_t size = size_of(output.dtype()), reference_size = size_of(reference.dtype());
      const std::byte* at = output.bytes().data();
      const std::byte* reference_at = reference.bytes().data();
      for (int64_t k = 0; k < output.count(); ++k, at += size, reference_at += reference_size)
        comparison.add(read_element(output.dtype(), at),
                       read_element(reference.dtype(), reference_at));
    }
    return comparison;
  }

 private:
  const std::string output_;
};

class Cosine final : public DifferenceMetric {
 public:
  using DifferenceMetric::DifferenceMetric;
  std::string name() const override { return "cosine"; }
  std::string unit() const override { return "%"; }
  SampleScore judge(const Answer& answer) const override {
    const Comparison found = compare(answer);
    if (found.squares == 0 && found.reference_squares == 0) return {1};
    const double cosine = found.product / std::sqrt(found.squares * found.reference_squares);
    return {std::isfinite(cosine) ? std::clamp(cosine, -1.0, 1.0) : 0};
  }
  double score(std::span<const SampleScore* const> samples) const override {
    double sum = 0;
    for (const SampleScore* sample : samples) sum += sample->front();
    return 100 * (sum / static_cast<double>(samples.size()));
  }
};

class Sqnr final : public DifferenceMetric {
 public:
  using DifferenceMetric::DifferenceMetric;
  std::string name() const override { return "SQNR"; }
  std::string unit() const override { return "dB"; }
  bool has_drop() const override { return false; }
  SampleScore judge(const Answer& answer) const override {
    const Comparison found = compare(answer);
    return {std::min(found.reference_squares, kLargest), std::min(found.noise, kLargest)};
  }
  double score(std::span<const SampleScore* const> samples) const override {
    double signal = 0, noise = 0;
    for (const SampleScore* sample : samples) {
      signal += (*sample)[0];
      noise += (*sample)[1];
    }
    if (noise == 0) return kMostDecibels;
    if (noise == kInfinity) return -kMostDecibels;
    return std::clamp(10 * std::log10(signal / noise), -kMostDecibels, kMostDecibels);
  }

 private:
  static constexpr double kMostDecibels = 200;
};

class MaxError final : public DifferenceMetric {
 public:
  using DifferenceMetric::DifferenceMetric;
  std::string name() const override { return "max-error"; }
  std::string unit() const override { return ""; }
  bool has_drop() const override { return false; }
  SampleScore judge(const Answer& answer) const override {
    return {std::min(compare(answer).largest_difference, kLargest)};
  }
  double score(std::span<const SampleScore* const> samples) const override {
    double largest = 0;
    for (const SampleScore* sample : samples) largest = std::max(largest, sample->front());
    return 0 - largest;  // of none 0, not -0
  }
};

}  // namespace

std::shared_ptr<const Metric> cosine_metric(std::string output) {
  return std::make_shared<Cosine>(std::move(output));
}
std::shared_ptr<const Metric> sqnr_metric(std::string output) {
  return std::make_shared<Sqnr>(std::move(output));
}
std::shared_ptr<const Metric> max_error_metric(std::string output) {
  return std::make_shared<MaxError>(std::move(output));
}

}  // namespace anneal
