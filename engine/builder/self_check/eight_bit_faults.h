// The values of a model whose 8 bits take a plan away from f32.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "anneal/engine/builder/self_check/plan_comparison.h"
#include "anneal/optimizer/analysis/scaling.h"
#include "anneal/optimizer/precision.h"

namespace anneal {

// Runs f32 with values as 8 bits have them, by the ranges of the table, in place of the plan, whose
// integers have other names and scales.
class EightBitFaults {
 public:
  // reduced: which values are 8 bits there.
  EightBitFaults(WatchedEngine& exact, const Plan& reduced, const PrecisionOptions& precision);

  bool has_any() const { return !scalings_.empty(); }
  // For the inputs that were compared last. Values become f32 until the remaining difference is
  // explained; empty if 8 bits do not cause the difference. Leaves `inputs` set.
  std::vector<Fault> find(PlanComparison& comparison, const std::vector<Tensor>& inputs);

 private:
  // The finding with all values in 8 bits but the first `exact` and those of `found`.
  Finding simulate(PlanComparison& comparison, const std::vector<Tensor>& inputs, size_t exact,
                   const std::vector<Fault>& found);
  bool is_exact(const std::string& value, size_t exact, const std::vector<Fault>& found) const;
  Fault fault_of(const PlanComparison& comparison, const std::vector<Tensor>& inputs,
                 const std::string& value) const;

  WatchedEngine& exact_;
  std::map<std::string, Scaling> scalings_;  // by value
  std::vector<std::string> order_;           // of these values
  std::map<std::string, size_t> places_;     // in order_
};

}  // namespace anneal
