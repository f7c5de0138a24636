#include "anneal/engine/tune/calibration/choose_range.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace anneal {
namespace {

constexpr std::array<std::pair<RangeMethod, std::string_view>, 5> kMethodNames = {{
    {RangeMethod::kMinMax, "minmax"},
    {RangeMethod::kEntropy, "entropy"},
    {RangeMethod::kPercentile, "percentile"},
    {RangeMethod::kMse, "mse"},
    {RangeMethod::kAuto, "auto"},
}};

// Levels of one sign, the least number of bins that entropy keeps, and how many it looks at.
constexpr int kLevels = 128;
constexpr int kEntropyBins = 2048;
constexpr int kMseSteps = 100;

struct FoundRange {
  double min = 0, max = 0;
};

FoundRange extremes(const Histogram& values) {
  return {std::min(0.0, double{values.min()}), std::max(0.0, double{values.max()})};
}

// No more than +-threshold of the extremes.
FoundRange cut(const Histogram& values, double threshold) {
  const FoundRange all = extremes(values);
  return {std::max(all.min, -threshold), std::min(all.max, threshold)};
}

// Magnitudes in `bins` bins up to the largest.
std::vector<double> magnitudes(const Histogram& values) {
  const int used = values.used_bins();
  std::vector<double> counts(static_cast<size_t>(used));
  for (int i = 0; i < used; ++i)
    counts[static_cast<size_t>(i)] = static_cast<double>(values.magnitudes(i));
  return counts;
}

double x_log_x(double x) { return x > 0 ? x * std::log(x) : 0; }

// The divergence of a distribution over bins from its approximation by kLevels levels, for any
// number of bins that are kept, by sums over the first bins.
class Divergence {
 public:
  explicit Divergence(const std::vector<double>& counts) : counts_(counts) {
    for (const double count : counts) {
      sums_.push_back(sums_.back() + count);
      logs_.push_back(logs_.back() + x_log_x(count));
      held_.push_back(held_.back() + (count > 0 ? 1 : 0));
    }
  }

  // The first `kept` bins, what lies beyond added to the last, against the same as levels would
  // have it: each level's count spread evenly over its bins that hold anything.
  double at(size_t kept) const {
    const double inside = sums_[kept], all = sums_.back(), beyond = all - inside;
    if (inside == 0) return std::numeric_limits<double>::infinity();
    double sum = logs_[kept - 1] + x_log_x(counts_[kept - 1] + beyond) - all * std::log(all);
    for (int level = 0; level < kLevels; ++level) {
      const size_t begin = kept * static_cast<size_t>(level) / kLevels;
      const size_t end = kept * static_cast<size_t>(level + 1) / kLevels;
      const double clamped = end == kept ? beyond : 0;
      const double own = sums_[end] - sums_[begin];
      if (own + clamped == 0) continue;
      const bool holds_clamped_alone = clamped > 0 && counts_[end - 1] == 0;
      const int held = held_[end] - held_[begin] + (holds_clamped_alone ? 1 : 0);
      // A level that holds nothing but what was clamped into it.
      sum -= (own + clamped) * std::log(std::max(own / held / inside, 1e-12));
    }
    return sum / all;
  }

 private:
  const std::vector<double>& counts_;
  std::vector<double> sums_{0}, logs_{0};
  std::vector<int> held_{0};
};

// TensorRT's rule: the threshold of least Kullback-Leibler divergence of the magnitudes.
FoundRange by_entropy(const Histogram& values) {
  const std::vector<double> counts = magnitudes(values);
  const size_t bins = counts.size();
  if (bins <= kLevels) return extremes(values);
  const Divergence divergence(counts);
  const size_t step = std::max<size_t>(bins / kEntropyBins, 1);
  size_t best = bins;
  double least = std::numeric_limits<double>::infinity();
  for (size_t kept = kLevels; kept <= bins; kept += step) {
    const double found = divergence.at(kept);
    if (found < least) {
      least = found;
      best = kept;
    }
  }
  return cut(values, static_cast<double>(best) * values.width());
}

FoundRange by_percentile(const Histogram& values, double percentile) {
  const std::vector<double> counts = magnitudes(values);
  const double wanted = static_cast<double>(values.count()) * percentile / 100;
  double inside = static_cast<double>(values.zeros());
  for (size_t i = 0; i < counts.size(); ++i) {
    inside += counts[i];
    if (inside >= wanted) return cut(values, static_cast<double>(i + 1) * values.width());
  }
  return extremes(values);
}

double range_error(const Histogram& values, const FoundRange& range, bool symmetric) {
  return quantization_error(values, static_cast<float>(range.min), static_cast<float>(range.max),
                            symmetric);
}

// In hundredths of the extremes: both ends at once, then, unless the zero point is to be 0, one
// after the other, twice.
FoundRange by_mse(const Histogram& values, bool symmetric) {
  const FoundRange all = extremes(values);
  FoundRange best = all;
  double least = range_error(values, best, symmetric);
  const auto consider = [&](const FoundRange& candidate) {
    const double found = range_error(values, candidate, symmetric);
    if (found >= least) return;
    least = found;
    best = candidate;
  };
  const bool together = symmetric && all.min < 0;
  for (int step = 1; step < kMseSteps; ++step)
    consider(cut(values, std::max(-all.min, all.max) * step / kMseSteps));
  for (int round = 0; !together && round < 2; ++round) {
    for (int step = 1; step < kMseSteps; ++step) consider({best.min, all.max * step / kMseSteps});
    for (int step = 1; step < kMseSteps; ++step) consider({all.min * step / kMseSteps, best.max});
  }
  return best;
}

FoundRange by(RangeMethod method, const Histogram& values, const RangeOptions& options) {
  switch (method) {
    case RangeMethod::kEntropy:
      return by_entropy(values);
    case RangeMethod::kPercentile:
      return by_percentile(values, options.percentile);
    case RangeMethod::kMse:
      return by_mse(values, options.symmetric);
    default:
      return extremes(values);
  }
}

// The integral of (x - edge)^2 over a bin of evenly spread values, per value.
double squared_distance(double begin, double width, double edge) {
  const double middle = begin + width / 2 - edge;
  return middle * middle + width * width / 12;
}

}  // namespace

std::optional<RangeMethod> range_method(std::string_view name) {
  for (const auto& [method, text] : kMethodNames)
    if (text == name) return method;
  return std::nullopt;
}

double quantization_error(const Histogram& values, float min, float max, bool symmetric) {
  if (values.count() == 0 || values.width() == 0) return 0;
  const bool is_signed = symmetric && min < 0;
  const double most = std::max(std::abs(double{min}), std::abs(double{max}));
  const double low = is_signed ? -most : std::min(0.0, double{min});
  const double high = is_signed ? most : std::max(0.0, double{max});
  const double scale = (high - low) / (is_signed ? 254 : 255);
  // Values of a bin that is narrower than a level lie anywhere within that level.
  const double rounding = scale * scale / 12;
  const int used = values.used_bins();
  double sum = 0;
  for (int i = -used; i < used; ++i) {
    const int64_t count = values.bin(i);
    if (count == 0) continue;
    const double begin = i * values.width(), middle = begin + values.width() / 2;
    const double error = middle > high  ? squared_distance(begin, values.width(), high)
                         : middle < low ? squared_distance(begin, values.width(), low)
                                        : rounding;
    sum += error * static_cast<double>(count);
  }
  return sum / static_cast<double>(values.count());
}

TensorRange choose_range(const Histogram& values, const RangeOptions& options) {
  RangeMethod method = options.method;
  FoundRange range = by(method, values, options);
  if (method == RangeMethod::kAuto) {
    double least = std::numeric_limits<double>::infinity();
    for (const RangeMethod candidate : {RangeMethod::kMinMax, RangeMethod::kMse,
                                        RangeMethod::kPercentile, RangeMethod::kEntropy}) {
      const FoundRange found = by(candidate, values, options);
      const double error = range_error(values, found, options.symmetric);
      if (error < least) {
        least = error;
        method = candidate;
        range = found;
      }
    }
  }
  return {static_cast<float>(range.min), static_cast<float>(range.max), values.min(), values.max(),
          std::string(to_string(method))};
}

}  // namespace anneal
