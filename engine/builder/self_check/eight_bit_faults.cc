#include "anneal/engine/builder/self_check/eight_bit_faults.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "anneal/core/new_tensor.h"
#include "anneal/optimizer/precision/quantized_weights.h"

namespace anneal {
namespace {

// Values that become f32 for one comparison.
constexpr size_t kMostFaults = 8;

void add_names(const Plan& plan, std::set<std::string>& names) {
  for (const Slot& slot : plan.slots) names.insert(slot.name);
  for (const Plan& body : plan.bodies) add_names(body, names);
}

void add_order(const Plan& plan, std::vector<std::string>& order) {
  for (const uint32_t input : plan.inputs) order.push_back(plan.slots[input].name);
  for (const Step& step : plan.steps)
    for (const uint32_t output : step.outputs)
      if (output != kNoSlot) order.push_back(plan.slots[output].name);
  for (const Plan& body : plan.bodies) add_order(body, order);
}

// Rounds to the integers that the scaling has. Vectorized: std::nearbyint() is a call.
void round_to_8_bits(std::span<float> elements, const Scaling& scaling) {
  constexpr float kTies = 0x1.8p23F;  // a sum with it is a whole number
  const float scale = scaling.scales.at(0);
  const auto zero = static_cast<float>(scaling.zeros.empty() ? 0 : scaling.zeros[0]);
  const float least = (scaling.integer == DataType::kU8 ? 0 : -128) - zero;
  for (float& value : elements) {
    const float steps = std::min(std::max(value / scale, least), least + 255);
    const float rounded = ((steps + kTies) - kTies) * scale;
    value = value - value == 0 ? rounded : value;
  }
}

void round_to_8_bits(const TensorView& value, const Scaling& scaling) {
  if (value.dtype == DataType::kF32 && is_row_major(value))
    return round_to_8_bits({value.as<float>(), static_cast<size_t>(count(value.dims))}, scaling);
  std::vector<float> elements = floats_of(value);
  round_to_8_bits(elements, scaling);
  write_floats(value, elements);
}

}  // namespace

EightBitFaults::EightBitFaults(WatchedEngine& exact, const Plan& reduced,
                               const PrecisionOptions& precision)
    : exact_(exact) {
  if (!precision.ranges) return;
  std::set<std::string> names;
  add_names(reduced, names);
  std::vector<std::string> order;
  add_order(exact.plan(), order);
  for (const std::string& value : order) {
    const auto range = precision.ranges->tensors.find(value);
    if (range == precision.ranges->tensors.end() ||
        !names.contains(value + std::string(kQuantizedStem)) || places_.contains(value))
      continue;
    scalings_.emplace(value, scaling_for(range->second, precision.symmetric));
    places_.emplace(value, order_.size());
    order_.push_back(value);
  }
}

bool EightBitFaults::is_exact(const std::string& value, size_t exact,
                              const std::vector<Fault>& found) const {
  const auto place = places_.find(value);
  return place == places_.end() || place->second < exact ||
         std::ranges::any_of(found, [&](const Fault& fault) { return fault.value == value; });
}

Finding EightBitFaults::simulate(PlanComparison& comparison, const std::vector<Tensor>& inputs,
                                 size_t exact, const std::vector<Fault>& found) {
  std::vector<Tensor> given = inputs;
  for (size_t i = 0; i < given.size(); ++i) {
    const std::string& name = exact_.ports()[i].name;
    if (is_exact(name, exact, found)) continue;
    std::vector<float> elements = floats_of(given[i].view());
    round_to_8_bits(elements, scalings_.at(name));
    const NewTensor fresh = allocate_tensor(given[i].dtype(), given[i].dims());
    write_floats(fresh.view(), elements);
    given[i] = fresh.tensor;
  }
  exact_.set_inputs(std::move(given));
  return comparison.disturbed([&](const ValueKey& key, const Observation& observed) {
    if (observed.step.empty() || is_exact(key.first, exact, found)) return;
    round_to_8_bits(observed.value, scalings_.at(key.first));
  });
}

Fault EightBitFaults::fault_of(const PlanComparison& comparison, const std::vector<Tensor>& inputs,
                               const std::string& value) const {
  Fault fault{.value = value, .step = {}};
  std::vector<float> elements = comparison.exact_value(value);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (exact_.ports()[i].name == value) elements = floats_of(inputs[i].view());
  std::vector<float> rounded = elements;
  round_to_8_bits(rounded, scalings_.at(value));
  const ValueError error = value_error(rounded, elements);
  fault.largest = error.largest;
  fault.difference = error.relative;
  return fault;
}

std::vector<Fault> EightBitFaults::find(PlanComparison& comparison,
                                        const std::vector<Tensor>& inputs) {
  std::vector<Fault> found;
  const auto is_bad = [&](size_t exact) {
    return simulate(comparison, inputs, exact, found).is_bad();
  };
  while (found.size() < kMostFaults && is_bad(0)) {
    size_t good = order_.size(), bad = 0;
    if (is_bad(good)) break;
    while (bad + 1 < good) {
      const size_t middle = bad + (good - bad) / 2;
      (is_bad(middle) ? bad : good) = middle;
    }
    found.push_back(fault_of(comparison, inputs, order_[good - 1]));
  }
  exact_.set_inputs(inputs);
  return found;
}

}  // namespace anneal
