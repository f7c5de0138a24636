#include "anneal/engine/profiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "anneal/core/fail.h"
#include "anneal/engine/symbols.h"

namespace anneal {
namespace {

[[noreturn]] void refuse_plan(const Plan& plan, std::string_view why) {
  fail(ErrorCode::kIncompatiblePlan,
       fmt::format("the plan for {}, profile {}: {}", plan.target, plan.profile, why));
}

void check_same_ports(const Plan& first, const Plan& plan, const std::vector<uint32_t>& first_ports,
                      const std::vector<uint32_t>& ports) {
  if (first_ports.size() != ports.size()) refuse_plan(plan, "it has other inputs or outputs");
  for (size_t i = 0; i < ports.size(); ++i) {
    const Slot& a = first.slots[first_ports[i]];
    const Slot& b = plan.slots[ports[i]];
    if (a.name != b.name || a.type.dtype != b.type.dtype || a.type.container != b.type.container ||
        a.type.shape.rank() != b.type.shape.rank())
      refuse_plan(plan, fmt::format("\"{}\" is no input or output of the others", b.name));
  }
}

}  // namespace

void check_profiles(const EngineFile& file) {
  std::map<std::string_view, std::vector<const Plan*>> by_target;
  for (const Plan& plan : file.plans) {
    std::vector<const Plan*>& plans = by_target[plan.target];
    if (plan.profile != plans.size())
      refuse_plan(plan, "its number is taken twice, or a lower one is missing");
    plans.push_back(&plan);
  }
  for (size_t i = 0; i < file.plans.size(); ++i)
    if (file.plans[i].profile != i / by_target.size())
      refuse_plan(file.plans[i], "it is not among the plans of its profile");
  for (const auto& [target, plans] : by_target) {
    if (plans.size() != by_target.begin()->second.size())
      refuse_plan(*plans.back(), "other targets have more profiles, or fewer");
    for (const Plan* plan : plans) {
      const Plan& first = *plans[0];
      if (plan->devices != first.devices) refuse_plan(*plan, "it is for other devices");
      check_same_ports(first, *plan, first.inputs, plan->inputs);
      check_same_ports(first, *plan, first.outputs, plan->outputs);
      if (plan->states != first.states) refuse_plan(*plan, "it has other states");
    }
  }
}

ProfileRange range_of(const Plan& plan) {
  ProfileRange range;
  for (const uint32_t input : plan.inputs) {
    Dims least, most;
    double elements = 1;
    for (const Size size : port_shape(plan, input)) {
      const Bounds bounds = plan.sizes->range(size);
      least.push_back(bounds.min);
      most.push_back(bounds.max);
      elements *= static_cast<double>(bounds.max);
    }
    range.min.push_back(least);
    range.max.push_back(most);
    range.elements += elements;
  }
  return range;
}

bool takes(const ProfileRange& range, std::span<const std::optional<Dims>> input_dims) {
  check(input_dims.size() == range.min.size(), "dims for each input of the plan");
  for (size_t i = 0; i < input_dims.size(); ++i) {
    if (!input_dims[i]) continue;
    const Dims &dims = *input_dims[i], &least = range.min[i], &most = range.max[i];
    if (dims.rank() != most.rank()) return false;
    for (int axis = 0; axis < dims.rank(); ++axis)
      if (dims[axis] < least[axis] || dims[axis] > most[axis]) return false;
  }
  return true;
}

std::optional<size_t> choose_profile(std::span<const ProfileRange> ranges,
                                     std::span<const std::optional<Dims>> input_dims) {
  std::optional<size_t> chosen;
  for (size_t i = 0; i < ranges.size(); ++i)
    if (takes(ranges[i], input_dims) && (!chosen || ranges[i].elements < ranges[*chosen].elements))
      chosen = i;
  return chosen;
}

std::string to_string(const ProfileRange& range, size_t input) {
  if (range.min[input] == range.max[input]) return to_string(range.max[input]);
  return fmt::format("{} to {}", to_string(range.min[input]), to_string(range.max[input]));
}

}  // namespace anneal
