#include "anneal/engine/builder/inputs/range_search.h"
#include "anneal/core/dtype_kinds.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace anneal {
namespace {

constexpr int64_t kUsualHigh = 9;
// The limit on checked steps in all, for starting points.
constexpr size_t kMostWalkedSteps = 3'000'000;
constexpr size_t kMostSummedPoints = 40;

int64_t saturated_integer(double value) {
  constexpr double kMost = 9223372036854774784.0;  // the largest double below 2^63
  return static_cast<int64_t>(std::clamp(value, -kMost, kMost));
}

}  // namespace

RangeSearch::RangeSearch(const Plan& plan, std::span<const Tensor> weights,
                         std::span<const Dims> dims, const SymbolValues& symbols,
                         const SizedPlan& sized, int64_t most_steps)
    : plan_(plan), dims_(dims), ranges_(plan, weights, sized, symbols), most_steps_(most_steps) {
  for (const uint32_t input : plan_.inputs) {
    const DataType dtype = plan_.slots[input].type.dtype;
    if (is_integer(dtype)) integers_.push_back(chosen_.size());
    chosen_.push_back(is_integer(dtype) ? ValueInterval{0, 0} : ValueInterval{0, 1});
  }
}

std::vector<InputRange> RangeSearch::run() {
  most_refusals_ = settle(kMostWalkedSteps / (plan_.steps.size() + 1) + 1).refusals;
  std::vector<bool> is_limited(chosen_.size());
  for (const size_t input : integers_) is_limited[input] = grow(input);
  const RangeFindings after = find();
  std::vector<InputRange> result;
  for (size_t i = 0; i < chosen_.size(); ++i) result.push_back(drawn(i, is_limited[i], after));
  return result;
}

RangeFindings RangeSearch::find() {
  ++walks_;
  return ranges_.find(chosen_);
}

RangeFindings RangeSearch::settle(size_t most_walks) {
  RangeFindings best = find();
  if (best.refusals == 0) return best;
  std::set<int64_t> points = {0, 1, 2};
  for (const Dims& dims : dims_)
    for (const int64_t dim : dims)
      for (const int64_t point : {dim - 1, dim, dim + 1}) points.insert(point);
  const std::set<int64_t> once = points;
  for (const int64_t a : once)
    if (once.size() < kMostSummedPoints)
      for (const int64_t b : once) points.insert(a + b);
  for (int round = 0; round < 2; ++round)
    for (const size_t input : integers_)
      for (const int64_t point : points) {
        if (walks_ >= most_walks) return best;
        const ValueInterval old = chosen_[input];
        const auto at = static_cast<double>(point);
        chosen_[input] = {at, at};
        RangeFindings found = find();
        if (found.refusals < best.refusals)
          best = std::move(found);
        else
          chosen_[input] = old;
        if (best.refusals == 0) return best;
      }
  return best;
}

bool RangeSearch::accepts(size_t input, const ValueInterval& range) {
  const ValueInterval old = chosen_[input];
  chosen_[input] = range;
  const bool is_fine = find().refusals <= most_refusals_;
  if (!is_fine) chosen_[input] = old;
  return is_fine;
}

// Whether the range has a limit other than its type's.
bool RangeSearch::grow(size_t input) {
  const DataType dtype = plan_.slots[plan_.inputs[input]].type.dtype;
  const double all = std::min(ValueInterval::of(dtype).high, std::ldexp(1, 40));
  const double start = chosen_[input].low;
  bool is_limited = false;
  if (!accepts(input, {start, all})) {
    is_limited = true;
    double good = start, step = 1;
    while (good + step < all && accepts(input, {start, good + step})) {
      good += step;
      step *= 2;
    }
    double bad = std::min(all, good + step);
    while (bad - good > 1) {
      const double middle = std::floor((good + bad) / 2);
      (accepts(input, {start, middle}) ? good : bad) = middle;
    }
  }
  const double high = chosen_[input].high;
  if (start > 0 && !accepts(input, {0, high})) {
    is_limited = true;
    double good = start, bad = 0;
    while (good - bad > 1) {
      const double middle = std::floor((good + bad) / 2);
      (accepts(input, {middle, high}) ? good : bad) = middle;
    }
  }
  return is_limited;
}

InputRange RangeSearch::drawn(size_t input, bool is_limited, const RangeFindings& findings) const {
  const DataType dtype = plan_.slots[plan_.inputs[input]].type.dtype;
  if (!is_integer(dtype)) return {0, 1};
  const auto port = static_cast<int>(input);
  const auto found = findings.uses.find(port);
  const PortUse use = found == findings.uses.end() ? PortUse() : found->second;
  const ValueInterval limits = chosen_[input];
  const auto within = [&](double low, double high, InputRole role) {
    const double first = std::clamp(low, limits.low, limits.high),
                 last = std::clamp(high, limits.low, limits.high);
    InputRange range{saturated_integer(first), saturated_integer(last), role};
    if (role != InputRole::kMask && role != InputRole::kSize)
      range.markers.assign(use.looked_for.begin(), use.looked_for.end());
    return range;
  };
  const auto index = findings.indices.find(port);
  const auto size = findings.sizes.find(port);
  if (size != findings.sizes.end())
    return within(std::max(1.0, limits.low), limits.low + static_cast<double>(most_steps_),
                  InputRole::kSize);
  if (index != findings.indices.end())
    return within(std::max(limits.low, std::max(0.0, index->second.low)), limits.high,
                  findings.places.contains(port) ? InputRole::kPlace : InputRole::kIndex);
  if (use.is_tested) return within(0, 1, InputRole::kMask);
  if (is_limited) return within(limits.low, limits.high, InputRole::kIndex);
  if (use.within)
    return within(std::max(1.0, use.within->low), use.within->high + 1, InputRole::kIndex);
  if (use.is_compared) return within(0, 1, InputRole::kMask);
  const ValueInterval all = ValueInterval::of(dtype);
  if (is_8bit(dtype)) return within(std::max(all.low, limits.low), all.high, InputRole::kNumber);
  if (use.is_factor) return within(0, 1, InputRole::kMask);
  return within(0, kUsualHigh, InputRole::kNumber);
}

}  // namespace anneal
