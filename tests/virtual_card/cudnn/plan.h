// Engines, plans and properties of devices of the fake cuDNN.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "anneal/tests/virtual_card/cudnn/graph.h"

namespace anneal::fake_cudnn {

// 91900; another number where ANNEAL_FAKE_CUDNN_VERSION says so.
int64_t version();

// What a plan is made for.
struct DeviceProperties {
  int64_t device_version = 0;  // 900: sm_90
  int64_t multiprocessors = 0;
  std::string json;  // as it was given
};
struct PropertiesMeaning : Meaning {
  DeviceProperties properties;
};
std::shared_ptr<const PropertiesMeaning> properties_of(const Descriptor& descriptor);
// Of the device whose context is current. Fails with Failure where there is none.
DeviceProperties current_properties();

// One way to compute a graph. Several of one engine differ in their tile.
struct Config {
  int64_t engine = 0, tile = 0, workspace_bytes = 0;
};
// Those that the heuristics give for the graph, the best first. Empty: the pattern is not
// supported.
std::vector<Config> configs_of(const OperationGraph& graph, const DeviceProperties& device);
std::vector<NumericalNote> numerical_notes_of(int64_t engine);
std::vector<BehaviorNote> behavior_notes_of(int64_t engine);

struct EngineMeaning : Meaning {
  std::shared_ptr<const GraphMeaning> graph;
  int64_t engine = 0;
};
struct ConfigMeaning : Meaning {
  std::shared_ptr<const EngineMeaning> engine;
  Config config;
};
struct HeuristicsMeaning : Meaning {
  std::shared_ptr<const GraphMeaning> graph;
  std::vector<Config> configs;
};
struct Plan {
  OperationGraph graph;
  Config config;
  DeviceProperties device;
};
struct PlanMeaning : Meaning {
  Plan plan;
};

std::string json_of(const Plan& plan);
// Fails with Failure, as where the plan is of another version or another device.
Plan plan_of(const std::string& json, const DeviceProperties& device);

}  // namespace anneal::fake_cudnn
