#include "anneal/engine/builder/self_check/run_work.h"

#include "anneal/engine/run/memory/bound_plan.h"

namespace anneal {
namespace {

double elements(const BoundPlan& bound, uint32_t slot) {
  return slot == kNoSlot ? 0 : static_cast<double>(count(bound.slots[slot].dims));
}

// Terms of the sum that gives one element of the step's output.
double terms(const Step& step, const BoundPlan& bound) {
  const auto dims = [&](size_t input) -> const Dims& {
    return bound.slots[step.inputs[input]].dims;
  };
  if (std::holds_alternative<Conv>(step.op))
    return elements(bound, step.inputs[1]) / static_cast<double>(std::max<int64_t>(dims(1)[0], 1));
  if (std::holds_alternative<ConvTranspose>(step.op))
    return elements(bound, step.inputs[1]) / static_cast<double>(std::max<int64_t>(dims(1)[1], 1));
  if (const auto* product = std::get_if<MatMul>(&step.op)) {
    const Dims& a = dims(0);
    return static_cast<double>(a[a.rank() - (product->transpose_a ? 2 : 1)]);
  }
  if (std::holds_alternative<Attention>(step.op)) return 2.0 * static_cast<double>(dims(1)[2]);
  return 0.125;
}

double work_of(const Plan& plan, const BoundPlan& bound) {
  double work = 0;
  for (const Step& step : plan.steps) {
    double written = 0;
    for (const uint32_t output : step.outputs) written += elements(bound, output);
    work += written * terms(step, bound);
  }
  return work;
}

}  // namespace

double run_work(const Plan& plan, std::span<const Tensor> weights,
                std::span<const Dims> dims_of_inputs) {
  return work_of(plan, bind_shapes(plan, weights, dims_of_inputs));
}

}  // namespace anneal
