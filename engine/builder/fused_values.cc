#include "anneal/engine/builder/fused_values.h"

#include <unordered_map>
#include <unordered_set>

namespace anneal {
namespace {

struct Present {
  std::unordered_set<std::string> slots;
  std::unordered_map<std::string, std::string> step_of_origin;
};

void collect(const Plan& plan, Present& present) {
  for (const Slot& slot : plan.slots) present.slots.insert(slot.name);
  for (const Step& step : plan.steps)
    for (const std::string& origin : step.origins)
      present.step_of_origin.try_emplace(origin, step.name);
  for (const Plan& body : plan.bodies) collect(body, present);
}

}  // namespace

std::vector<NamedValue> named_values(const Graph& graph) {
  std::vector<NamedValue> values;
  for (const LayerId id : graph.order()) {
    const Layer& layer = graph.layer(id);
    for (const ValueId output : layer.outputs)
      values.push_back({graph.value(output).name, layer.origins});
  }
  for (const Graph& body : graph.bodies())
    for (NamedValue& value : named_values(body)) values.push_back(std::move(value));
  return values;
}

void record_vanished(std::span<const NamedValue> values, Plan& plan) {
  Present present;
  collect(plan, present);
  for (const NamedValue& value : values) {
    if (!present.slots.insert(value.name).second) continue;
    const std::string* step = nullptr;
    for (const std::string& origin : value.origins)
      if (const auto found = present.step_of_origin.find(origin);
          !step && found != present.step_of_origin.end())
        step = &found->second;
    plan.decisions.push_back(step ? Decision{std::string(kFusedInto), value.name, *step}
                                  : Decision{std::string(kEliminated), value.name,
                                             "computed while building, or not needed"});
  }
}

}  // namespace anneal
