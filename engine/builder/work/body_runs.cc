#include "anneal/engine/builder/work/body_runs.h"

#include <algorithm>

namespace anneal {

double body_trips(const Plan& plan, std::span<const Tensor> weights, const Step& step,
                  const BoundPlan& bound) {
  if (const auto* scan = std::get_if<Scan>(&step.op)) {
    if (scan->axes.empty()) return 1;
    const Dims& dims = bound.slots[step.inputs[static_cast<size_t>(scan->carried)]].dims;
    const int64_t axis = scan->axes[0];
    return axis < dims.rank() ? static_cast<double>(dims[static_cast<int>(axis)]) : kUnknownTrips;
  }
  const auto* loop = std::get_if<Loop>(&step.op);
  if (!loop) return 1;
  const uint32_t slot = step.inputs.empty() ? kNoSlot : step.inputs[0];
  if (slot == kNoSlot || plan.slots[slot].storage != Storage::kWeight) return kUnknownTrips;
  const Tensor& count = weights[plan.slots[slot].offset];
  if (count.dtype() != DataType::kI64 || count.count() != 1) return kUnknownTrips;
  const double most = std::max(0.0, static_cast<double>(count.as<int64_t>()[0]));
  return loop->counted ? most : std::min(most, kUnknownTrips);
}

std::vector<Dims> dims_in_body(const Step& step, size_t inputs, const BoundPlan& bound) {
  std::vector<Dims> dims(inputs);
  const auto of_input = [&](size_t i) {
    return i < step.inputs.size() && step.inputs[i] != kNoSlot ? bound.slots[step.inputs[i]].dims
                                                               : Dims();
  };
  const bool is_branch = std::holds_alternative<If>(step.op);
  const bool is_loop = std::holds_alternative<Loop>(step.op);
  for (size_t i = is_loop ? 2 : 0; i < inputs; ++i) dims[i] = of_input(i + (is_branch ? 1 : 0));
  if (const auto* scan = std::get_if<Scan>(&step.op))
    for (size_t i = 0; i < scan->axes.size(); ++i) {
      const size_t at = static_cast<size_t>(scan->carried) + i;
      if (at >= inputs) break;
      Dims slice;
      for (int axis = 0; axis < dims[at].rank(); ++axis)
        if (axis != scan->axes[i]) slice.push_back(dims[at][axis]);
      dims[at] = slice;
    }
  return dims;
}

}  // namespace anneal
