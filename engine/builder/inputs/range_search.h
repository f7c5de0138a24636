// The search for integers of inputs that the layers of a plan accept.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "anneal/engine/builder/inputs/input_range.h"
#include "anneal/engine/builder/inputs/value_ranges.h"

namespace anneal {

// Grows the ranges of integer inputs for as long as no further reader refuses. Not thread-safe.
class RangeSearch {
 public:
  // REQUIRES: all arguments outlive it; the dims bind, and sized is the plan at their symbols.
  RangeSearch(const Plan& plan, std::span<const Tensor> weights, std::span<const Dims> dims,
              const SymbolValues& symbols, const SizedPlan& sized,
              int64_t most_steps = kMostDecidedSteps);

  // Chooses the points from which ranges grow: those that the fewest readers refuse, as far as a
  // limited number of walks through the plan finds them.
  RangeFindings settle(size_t most_walks);
  size_t walks() const { return walks_; }  // so far

  std::vector<InputRange> run();  // by input

 private:
  RangeFindings find();
  bool accepts(size_t input, const ValueInterval& range);
  bool grow(size_t input);
  InputRange drawn(size_t input, bool is_limited, const RangeFindings& findings) const;

  const Plan& plan_;
  std::span<const Dims> dims_;
  ValueRanges ranges_;
  std::vector<size_t> integers_;       // inputs
  std::vector<ValueInterval> chosen_;  // by input
  int64_t most_steps_;                 // of sizes that values decide
  int most_refusals_ = 0;
  size_t walks_ = 0;
};

}  // namespace anneal
