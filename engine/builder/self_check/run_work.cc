#include "anneal/engine/builder/self_check/run_work.h"

#include <algorithm>

#include "anneal/core/error.h"
#include "anneal/engine/run/memory/bound_plan.h"

namespace anneal {
namespace {

// The assumed trips of a loop whose trip count an input or a condition decides.
constexpr double kUnknownTrips = 64;

class WorkCounter {
 public:
  explicit WorkCounter(std::span<const Tensor> weights) : weights_(weights) {}

  double of(const Plan& plan, const BoundPlan& bound) const {
    double work = 0;
    for (const Step& step : plan.steps) {
      double written = 0;
      for (const uint32_t output : step.outputs) written += elements(bound, output);
      work += std::holds_alternative<Recurrent>(step.op) ? of_recurrent(step, bound)
                                                         : written * terms(step, bound);
      work += of_bodies(plan, step, bound);
    }
    return work;
  }

 private:
  static double elements(const BoundPlan& bound, uint32_t slot) {
    return slot == kNoSlot ? 0 : static_cast<double>(count(bound.slots[slot].dims));
  }

  // Terms of the sum that gives one element of the step's output.
  static double terms(const Step& step, const BoundPlan& bound) {
    const auto dims = [&](size_t input) -> const Dims& {
      return bound.slots[step.inputs[input]].dims;
    };
    const auto weights_by_axis = [&](int axis) {
      if (dims(1).rank() <= axis) return 1.0;
      return elements(bound, step.inputs[1]) /
             static_cast<double>(std::max<int64_t>(dims(1)[axis], 1));
    };
    if (std::holds_alternative<Conv>(step.op)) return weights_by_axis(0);
    if (std::holds_alternative<ConvTranspose>(step.op)) return weights_by_axis(1);
    if (const auto* product = std::get_if<MatMul>(&step.op)) {
      const Dims& a = dims(0);
      const int axis = a.rank() - (product->transpose_a ? 2 : 1);
      return axis < 0 ? 1.0 : static_cast<double>(a[axis]);
    }
    if (std::holds_alternative<Attention>(step.op))
      return dims(1).rank() > 2 ? 2.0 * static_cast<double>(dims(1)[2]) : 1.0;
    return 0.125;
  }

  // Each element of both weights, for each step and sequence.
  static double of_recurrent(const Step& step, const BoundPlan& bound) {
    const Dims& x = bound.slots[step.inputs[0]].dims;
    const double steps = x.rank() < 2 ? 1.0 : static_cast<double>(x[0]) * static_cast<double>(x[1]);
    return steps * (elements(bound, step.inputs[1]) + elements(bound, step.inputs[2]));
  }

  double trips(const Plan& plan, const Step& step, const BoundPlan& bound) const {
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
    const Tensor& count = weights_[plan.slots[slot].offset];
    if (count.dtype() != DataType::kI64 || count.count() != 1) return kUnknownTrips;
    const double most = std::max(0.0, static_cast<double>(count.as<int64_t>()[0]));
    return loop->counted ? most : std::min(most, kUnknownTrips);
  }

  static std::vector<Dims> dims_in_body(const Step& step, size_t inputs, const BoundPlan& bound) {
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
    return most == 0 ? 0 : most * trips(plan, step, bound);
  }

  std::span<const Tensor> weights_;
};

}  // namespace

double run_work(const Plan& plan, std::span<const Tensor> weights,
                std::span<const Dims> dims_of_inputs) {
  return WorkCounter(weights).of(plan, bind_shapes(plan, weights, dims_of_inputs));
}

}  // namespace anneal
