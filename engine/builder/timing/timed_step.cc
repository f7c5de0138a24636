#include "anneal/engine/builder/timing/timed_step.h"

#include <algorithm>

#include "anneal/engine/builder/timing/timing_text.h"

namespace anneal {

TimedStep::TimedStep(const EngineFile& engine_file, const Plan& of, const Step& which)
    : file(engine_file), plan(of), step(which), operands(operands_of(file, plan, step)) {
  for (const uint32_t slot : step.inputs) {
    const bool is_weight = slot != kNoSlot && plan.slots[slot].storage == Storage::kWeight;
    weights.push_back(is_weight ? &file.weights[plan.slots[slot].offset] : nullptr);
  }
}

Request TimedStep::request(Device& device) const {
  Request request = request_of(plan, step, operands, device);
  request.tactic = {};
  return request;
}

std::string TimedStep::text(Device& device) const {
  std::vector<bool> is_weight;
  for (const Tensor* const weight : weights) is_weight.push_back(weight != nullptr);
  return timing_text(request(device), is_weight);
}

bool can_be_timed(const Plan& plan, const Step& step) {
  const auto is_late = [&](uint32_t slot) {
    return slot != kNoSlot && plan.slots[slot].storage == Storage::kDataDependent;
  };
  return step.kernel != kTransfer && bodies_of(step.op).empty() &&
         std::ranges::none_of(step.inputs, is_late) && std::ranges::none_of(step.outputs, is_late);
}

}  // namespace anneal
