#include "anneal/tests/virtual_card/cudnn/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "anneal/tests/virtual_card/library_work.h"

namespace anneal::fake_cudnn {
namespace {

using Json = nlohmann::ordered_json;
using virtual_card::function_of_card;

// Engines: kept kernels for the usual convolutions, kernels that are compiled for the graph, plain
// f32 arithmetic, and Winograd.
constexpr int64_t kKept = 10, kCompiled = 7, kPlain = 0, kWinograd = 3;

// In the file of cuDNN's own properties; it refuses a text that lacks one.
constexpr const char* kNumbers[] = {"regsPerBlock",
                                    "multiProcessorCount",
                                    "warpSize",
                                    "maxSharedMemoryPerBlock",
                                    "maxSharedMemoryPerBlockOptin",
                                    "reservedSharedMemoryPerBlock",
                                    "maxRegistersPerSM",
                                    "maxCtasPerSM",
                                    "maxThreadsPerBlock",
                                    "maxThreadsPerSM",
                                    "pciDeviceId",
                                    "isTccDriver",
                                    "supportCoopLaunch",
                                    "totalGlobalMem",
                                    "smClockRateKHz",
                                    "memClockRateKHz",
                                    "l2CacheSize",
                                    "cudaDeviceId",
                                    "deviceVer",
                                    "driverVer"};

DeviceProperties read_properties(const std::string& text) {
  const char* const attribute = name_of(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object())
    refuse(CUDNN_STATUS_BAD_PARAM, fmt::format("{}: no JSON object", attribute));
  const auto check = [&](const char* key, bool fits) {
    if (!fits)
      refuse(CUDNN_STATUS_BAD_PARAM, fmt::format("{}: {} is missing or wrong", attribute, key));
  };
  for (const char* const key : {"maxGridSize", "maxBlockSize"})
    check(key, json.contains(key) && json[key].is_array() && json[key].size() == 3);
  for (const char* const key : kNumbers)
    check(key, json.contains(key) && json[key].is_number_integer());
  check("deviceName", json.contains("deviceName") && json["deviceName"].is_string());
  return {json["deviceVer"], json["multiProcessorCount"], text};
}

int attribute_of_card(cuda::CUdevice_attribute attribute, int device) {
  int value = 0;
  auto* const ask =
      function_of_card<cuda::CUresult(int*, cuda::CUdevice_attribute, int)>("cuDeviceGetAttribute");
  if (ask == nullptr || ask(&value, attribute, device) != cuda::CUDA_SUCCESS)
    refuse(CUDNN_STATUS_NOT_INITIALIZED, "the virtual card does not answer");
  return value;
}

DeviceProperties properties_of_card(int device) {
  const auto ask = [&](cuda::CUdevice_attribute attribute) {
    return attribute_of_card(attribute, device);
  };
  const int version = 100 * ask(cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                      10 * ask(cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  const Json json = {
      {"maxGridSize", {2147483647, 65535, 65535}},
      {"maxBlockSize", {1024, 1024, 64}},
      {"regsPerBlock", 65536},
      {"multiProcessorCount", ask(cuda::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)},
      {"warpSize", ask(cuda::CU_DEVICE_ATTRIBUTE_WARP_SIZE)},
      {"maxSharedMemoryPerBlock", ask(cuda::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)},
      {"maxSharedMemoryPerBlockOptin",
       ask(cuda::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)},
      {"reservedSharedMemoryPerBlock", 1024},
      {"maxRegistersPerSM", ask(cuda::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR)},
      {"maxCtasPerSM", ask(cuda::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR)},
      {"maxThreadsPerBlock", ask(cuda::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)},
      {"maxThreadsPerSM", ask(cuda::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)},
      {"pciDeviceId", 0},
      {"isTccDriver", 0},
      {"supportCoopLaunch", 1},
      {"totalGlobalMem", int64_t{8} << 30},
      {"smClockRateKHz", ask(cuda::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)},
      {"memClockRateKHz", ask(cuda::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)},
      {"l2CacheSize", ask(cuda::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)},
      {"cudaDeviceId", device},
      {"deviceVer", version},
      {"driverVer", 13000},
      {"deviceName", fmt::format("Virtual card of sm_{}", version / 10)}};
  return read_properties(json.dump());
}

bool is(const Operation& operation, DescriptorType type) { return operation.type == type; }

// Of a graph that is a convolution or a product with what follows it.
struct Pattern {
  const Operation* main = nullptr;  // null: none
  bool is_usual = false;            // a convolution, at most two additions, an activation at most
  size_t mains = 0, pointwise = 0, others = 0;
};

Pattern pattern_of(const OperationGraph& graph) {
  Pattern found;
  size_t additions = 0, activations = 0;
  for (const Operation& each : graph.operations) {
    if (is(each, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)) {
      ++found.pointwise;
      if (each.mode == CUDNN_POINTWISE_ADD) ++additions;
      if (each.mode == CUDNN_POINTWISE_RELU_FWD) ++activations;
    } else if (is(each, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) ||
               is(each, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)) {
      ++found.others;
    } else {
      ++found.mains;
      if (found.main == nullptr) found.main = &each;
    }
  }
  found.is_usual = found.mains == 1 && found.others == 0 &&
                   is(*found.main, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) &&
                   found.main->compute == CUDNN_DATA_FLOAT &&
                   found.pointwise == additions + activations && additions <= 2 && activations <= 1;
  return found;
}

bool is_for_tensor_cores(const OperationGraph& graph, const Operation& main) {
  return std::ranges::all_of(main.inputs, [&](const auto& input) {
    const DataType type = graph.tensors.at(input.second).type;
    return type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16 || type == CUDNN_DATA_FLOAT ||
           type == CUDNN_DATA_INT8;
  });
}

// Kept kernels read 16 bytes at once.
bool is_aligned(const OperationGraph& graph) {
  return std::ranges::all_of(graph.tensors, [](const auto& each) {
    return each.second.is_virtual || each.second.is_by_value || each.second.alignment % 16 == 0;
  });
}

bool is_channels_last(const Tensor& tensor) {
  return tensor.dims[1] == 1 || tensor.strides[1] == 1;
}

// 3x3 filters without strides and dilations.
bool is_for_winograd(const OperationGraph& graph, const Operation& main) {
  const Tensor& w = graph.tensors.at(main.inputs.at("w"));
  return w.dims.size() == 4 && w.dims[2] == 3 && w.dims[3] == 3 && w.dims[1] > 1 &&
         std::ranges::all_of(main.strides, [](int64_t each) { return each == 1; }) &&
         std::ranges::all_of(main.dilations, [](int64_t each) { return each == 1; });
}

int64_t workspace_of(const OperationGraph& graph, int64_t tile) {
  int64_t most = 0;
  for (const auto& [uid, tensor] : graph.tensors) most = std::max(most, tensor.count());
  return std::min(most * 4, int64_t{1} << 20) * tile / 256 * 256;
}

}  // namespace

int64_t version() {
  const char* const set = std::getenv("ANNEAL_FAKE_CUDNN_VERSION");
  return set != nullptr ? std::atoll(set) : 91900;
}

std::shared_ptr<const PropertiesMeaning> properties_of(const Descriptor& d) {
  auto made = std::make_shared<PropertiesMeaning>();
  if (d.has(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION))
    made->properties = read_properties(d.text(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION));
  else if (d.has(CUDNN_ATTR_DEVICEPROP_DEVICE_ID))
    made->properties =
        properties_of_card(static_cast<int>(d.integer(CUDNN_ATTR_DEVICEPROP_DEVICE_ID)));
  else
    made->properties = current_properties();
  return made;
}

DeviceProperties current_properties() {
  auto* const ask = function_of_card<int()>("virtual_card_current_device");
  const int device = ask == nullptr ? -1 : ask();
  if (device < 0) refuse(CUDNN_STATUS_NOT_INITIALIZED, "no context of the virtual card is current");
  return properties_of_card(device);
}

std::vector<Config> configs_of(const OperationGraph& graph, const DeviceProperties& device) {
  const Pattern pattern = pattern_of(graph);
  if (pattern.main == nullptr || pattern.mains > 2) return {};
  const Operation& main = *pattern.main;
  const bool is_attention = is(main, CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
  const bool is_product = is(main, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  // Two products are attention; a convolution has one epilogue, without sums.
  if (pattern.mains == 2 && !is_product) return {};
  if (!is_product && pattern.others != 0) return {};
  if (is_attention && pattern.pointwise != 0) return {};
  if (device.device_version < 750) return {};
  std::vector<Config> configs;
  const auto add = [&](int64_t engine, int64_t tiles, bool has_workspace) {
    for (int64_t tile = 0; tile < tiles; ++tile)
      configs.push_back({engine, tile, has_workspace ? workspace_of(graph, tile) : 0});
  };
  if (pattern.is_usual && is_for_tensor_cores(graph, main) && is_aligned(graph) &&
      is_channels_last(graph.tensors.at(main.inputs.at("x")))) {
    add(kKept, device.device_version >= 900 ? 4 : 3, true);
    if (pattern.pointwise == 0 && is_for_winograd(graph, main)) add(kWinograd, 1, true);
  }
  if (is_for_tensor_cores(graph, main)) add(kCompiled, 2, true);
  if (main.compute == CUDNN_DATA_FLOAT && !is_attention) add(kPlain, 1, false);
  return configs;
}

std::vector<NumericalNote> numerical_notes_of(int64_t engine) {
  switch (engine) {
    case kPlain:
      return {};
    case kWinograd:
      return {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_WINOGRAD,
              CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4};
    default:
      // Products of f32 are done in TF32 there.
      return {CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
  }
}

std::vector<BehaviorNote> behavior_notes_of(int64_t engine) {
  if (engine == kCompiled) return {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION};
  return {};
}

std::string json_of(const Plan& plan) {
  return Json{{"cudnnVersion", version()},
              {"fake", true},
              {"operationGraph", json_of(plan.graph)},
              {"GPUProfile", Json::parse(plan.device.json)},
              {"engine",
               {{"engineId", plan.config.engine},
                {"smVersion", plan.device.device_version},
                {"workspace", plan.config.workspace_bytes},
                {"knobChoices", {{"CUDNN_KNOB_TYPE_TILE_SIZE", plan.config.tile}}}}}}
      .dump();
}

Plan plan_of(const std::string& text, const DeviceProperties& device) {
  const char* const attribute = name_of(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.value("fake", false))
    refuse(CUDNN_STATUS_BAD_PARAM, fmt::format("{}: no plan of the fake", attribute));
  if (json.value("cudnnVersion", int64_t{0}) != version())
    refuse(CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH,
           fmt::format("{}: a plan of version {}, the library is {}", attribute,
                       json.value("cudnnVersion", int64_t{0}), version()));
  Plan plan;
  try {
    plan.graph = graph_of(json.at("operationGraph"));
    plan.device = read_properties(json.at("GPUProfile").dump());
    const Json& engine = json.at("engine");
    plan.config = {engine.at("engineId"), engine.at("knobChoices").at("CUDNN_KNOB_TYPE_TILE_SIZE"),
                   engine.at("workspace")};
  } catch (const Json::exception& error) {
    refuse(CUDNN_STATUS_BAD_PARAM, fmt::format("{}: {}", attribute, error.what()));
  }
  if (plan.device.device_version != device.device_version ||
      plan.device.multiprocessors != device.multiprocessors)
    refuse(
        CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH,
        fmt::format("{}: a plan for version {} with {} multiprocessors, the device is of version "
                    "{} and has {}",
                    attribute, plan.device.device_version, plan.device.multiprocessors,
                    device.device_version, device.multiprocessors));
  return plan;
}

}  // namespace anneal::fake_cudnn
