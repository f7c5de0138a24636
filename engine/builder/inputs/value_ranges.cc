#include "anneal/engine/builder/inputs/value_ranges.h"

#include <algorithm>
#include <cmath>

#include "anneal/engine/builder/inputs/value_walk.h"

namespace anneal {

std::optional<ShortAxis> RangeRefusal::short_axis() const {
  constexpr double kMost = 1LL << 40;
  // An index may be one less than the size, and negative; a length may be the size itself.
  const double at_end = accepted.low < 0 ? 1 : 0;
  const double wanted = std::max(std::ceil(range.high) + at_end, std::ceil(-range.low));
  if (slot == kNoSlot || wanted > kMost) return std::nullopt;
  return ShortAxis{slot, axis, static_cast<int64_t>(wanted)};
}

ValueRanges::ValueRanges(const Plan& plan, std::span<const Tensor> weights, const SizedPlan& sized,
                         const SymbolValues& symbols)
    : walk_(std::make_unique<ValueWalk>(plan, weights, sized.facts, symbols, 0)) {}

ValueRanges::~ValueRanges() = default;

RangeFindings ValueRanges::find(std::span<const ValueInterval> inputs) {
  std::vector<ValueRange> values;
  for (size_t i = 0; i < inputs.size(); ++i) values.push_back({inputs[i], static_cast<int>(i)});
  RangeFindings findings;
  walk_->run(values, findings);
  return findings;
}

}  // namespace anneal
