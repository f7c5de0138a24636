#include "anneal/engine/builder/self_check/run_work.h"

#include <algorithm>

#include "anneal/core/error.h"
#include "anneal/engine/builder/work/body_runs.h"
#include "anneal/engine/builder/work/step_operations.h"
#include "anneal/engine/run/memory/bound_plan.h"

namespace anneal {
namespace {

constexpr double kOfElement = 0.125;  // of a step without products

class WorkCounter {
 public:
  explicit WorkCounter(std::span<const Tensor> weights) : weights_(weights) {}

  double of(const Plan& plan, const BoundPlan& bound) const {
    double work = 0;
    for (const Step& step : plan.steps) {
      const std::vector<Dims> outputs = operand_dims(step.outputs, bound);
      const double products =
          operations_of(step, operand_dims(step.inputs, bound), outputs).products / 2;
      double written = 0;
      for (size_t i = 0; i < outputs.size(); ++i)
        if (step.outputs[i] != kNoSlot) written += static_cast<double>(count(outputs[i]));
      work += products > 0 ? products : written * kOfElement;
      work += of_bodies(plan, step, bound);
    }
    return work;
  }

 private:
  static std::vector<Dims> operand_dims(const std::vector<uint32_t>& slots,
                                        const BoundPlan& bound) {
    std::vector<Dims> dims;
    for (const uint32_t slot : slots)
      dims.push_back(slot == kNoSlot ? Dims() : bound.slots[slot].dims);
    return dims;
  }

  // Sizes that are known only at run time count nothing.
  double of_bodies(const Plan& plan, const Step& step, const BoundPlan& bound) const {
    double most = 0;
    for (const BodyUse& use : bodies_of(step.op)) {
      const Plan& body = plan.bodies.at(static_cast<size_t>(use.body));
      try {
        const BoundPlan inner = bind_shapes(
            body, weights_, dims_in_body(step, body.inputs.size(), bound), bound.symbols);
        most = std::max(most, of(body, inner));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kInvalidArgument) throw;
      }
    }
    return most == 0 ? 0 : most * body_trips(plan, weights_, step, bound);
  }

  std::span<const Tensor> weights_;
};

}  // namespace

double run_work(const Plan& plan, std::span<const Tensor> weights,
                std::span<const Dims> dims_of_inputs) {
  return WorkCounter(weights).of(plan, bind_shapes(plan, weights, dims_of_inputs));
}

}  // namespace anneal
