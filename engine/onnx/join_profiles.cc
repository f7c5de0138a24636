#include "anneal/engine/onnx/join_profiles.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/engine/builder/weight_pool.h"
#include "anneal/engine/profiles.h"

namespace anneal {
namespace {

void check_ranks(const Plan& first, const Plan& plan, std::vector<uint32_t> Plan::*ports,
                 std::string_view what) {
  for (size_t i = 0; i < (plan.*ports).size(); ++i) {
    const Slot& port = plan.slots[(plan.*ports)[i]];
    const int rank = port.type.shape.rank(),
              first_rank = first.slots[(first.*ports)[i]].type.shape.rank();
    if (rank != first_rank)
      fail_port(ErrorCode::kInvalidArgument, port.name,
                fmt::format("{} \"{}\" is of rank {} in profile 0 and of rank {} in profile {}: "
                            "build an engine for each",
                            what, port.name, first_rank, rank, plan.profile));
  }
}

// Moves the weights of a plan to another pool.
void pool_weights(Plan& plan, const std::vector<Tensor>& weights, WeightPool& pool) {
  for (Slot& slot : plan.slots)
    if (slot.storage == Storage::kWeight) slot.offset = pool.add(weights[slot.offset], slot.name);
  for (size_t i = 0; i < plan.input_defaults.size(); ++i) {
    uint32_t& value = plan.input_defaults[i];
    if (value != kNoDefault)
      value = static_cast<uint32_t>(pool.add(weights[value], plan.slots[plan.inputs[i]].name));
  }
  for (Plan& body : plan.bodies) pool_weights(body, weights, pool);
}

}  // namespace

EngineFile join_profiles(std::vector<EngineFile> by_profile) {
  if (by_profile.size() == 1) return std::move(by_profile[0]);
  EngineFile& first = by_profile.at(0);
  WeightPool pool(first.weights_apart ? EqualWeights::kOfOneName : EqualWeights::kAll);
  EngineFile joined;
  joined.producer = first.producer;
  joined.model_name = first.model_name;
  joined.weights_apart = first.weights_apart;
  for (uint32_t profile = 0; profile < by_profile.size(); ++profile) {
    EngineFile file = std::move(by_profile[profile]);
    for (Plan& plan : file.plans) {
      plan.profile = profile;
      pool_weights(plan, file.weights, pool);
      const Plan& shown = joined.plans.empty() ? plan : joined.plans[0];
      check_ranks(shown, plan, &Plan::inputs, "input");
      check_ranks(shown, plan, &Plan::outputs, "output");
      joined.plans.push_back(std::move(plan));
    }
  }
  joined.weights = pool.take();
  check_profiles(joined);
  return joined;
}

}  // namespace anneal
