// The numbers that the values of a plan may hold, and the layers that would not accept them.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "anneal/engine/builder/inputs/interval.h"
#include "anneal/engine/builder/inputs/sized_plan.h"

namespace anneal {

// A reader that may get a number that it does not accept.
struct RangeRefusal {
  size_t step = 0;  // of the outermost plan
  ValueInterval range, accepted;
  // The slot whose axis is the limit; kNoSlot: it is no axis.
  uint32_t slot = kNoSlot;
  int axis = 0;

  std::optional<ShortAxis> short_axis() const;
};

// The findings for one choice of ranges.
struct RangeFindings {
  int refusals = 0;
  std::optional<RangeRefusal> first;  // with known limits
  PortUses uses;
  std::map<int, ValueInterval>
      indices;  // by port: elements that a layer reads as indices, unchanged
  std::map<int, ValueInterval> places;  // by port: those of where a layer writes
  std::map<int, ValueInterval> sizes;   // by port: elements that decide sizes
  size_t step = 0;                      // the current step
};

class ValueWalk;

// Intervals of all values of a plan at one choice of sizes. Not thread-safe.
class ValueRanges {
 public:
  // REQUIRES: plan, weights and sized outlive it; sized has no complaint but an empty result.
  ValueRanges(const Plan& plan, std::span<const Tensor> weights, const SizedPlan& sized,
              const SymbolValues& symbols);
  ~ValueRanges();

  RangeFindings find(std::span<const ValueInterval> inputs);  // one per input

 private:
  std::unique_ptr<ValueWalk> walk_;
};

}  // namespace anneal
