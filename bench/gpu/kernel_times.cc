// The time of single layers on a GPU in every configuration of our kernels.
//
//   anneal_gpu_times [--device cuda|cuda:N|emulated|sm_90] [--compile] [--once] [--launches N]
//                    [--plays N] [--configs N] <CASES
//
// Each line of standard input is a case, {"name": ..., "graph": TEXT}: a graph (docs/graph_text.md)
// whose layer "y" is timed alone, as the builder would run it. A line of JSON goes to standard
// output for the device and for each case, as soon as it is done. A configuration whose output is
// not that of the builder's is an error, and has no time. With --compile, and for sm_90,
// functions are compiled only, into ANNEAL_CACHE_DIR. --once launches the configuration that the
// builder takes twice and times nothing, for profilers. --configs N: at most N of a case.
//
// Exit status 3: the device is lost, and cases that follow were not begun.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "anneal/bench/gpu/layer_timing.h"
#include "anneal/bench/gpu/output_difference.h"
#include "anneal/core/fail.h"
#include "anneal/kernels/cuda/api/libraries.h"
#include "anneal/kernels/cuda/backend.h"
#include "anneal/kernels/cuda/code/code_image.h"
#include "anneal/kernels/cuda/code/cubin.h"
#include "anneal/kernels/cuda/cost/cost_model.h"
#include "anneal/kernels/cuda/runtime/device.h"
#include "anneal/kernels/cuda/runtime/emulated_gpu.h"

namespace anneal::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kHopeless = 4;     // times as long as the best: is not timed further
constexpr double kShort = 50;       // microseconds: one launch alone takes some, whatever it does
constexpr double kBeyondCache = 3;  // sizes of the L2 cache that operand sets fill
constexpr double kWarmUp = 0.03;    // seconds of work, for clocks that fell while nothing ran
constexpr int kDeviceLost = 3;

struct Options {
  std::string device = "cuda";
  bool once = false, compile = false;
  int launches = 20, plays = 7, configs = 1000;
  bool compiles_only() const { return compile || device.starts_with("sm_"); }
};

void print(const Json& line) {
  fmt::print("{}\n", line.dump());
  std::fflush(stdout);
}

// What the driver says of the card, for floors.
Json attributes_of(const std::string& device) {
  const bool emulated = device == "emulated";
  const cuda::LibraryTable<cuda::Driver>& library = cuda::driver_library();
  if (!emulated && !library.table) return Json::object();
  const cuda::Driver& driver = emulated ? cuda::emulated_gpu().driver : *library.table;
  const int ordinal = device.starts_with("cuda:") ? std::atoi(device.c_str() + 5) : 0;
  constexpr std::pair<const char*, unsigned> kWanted[] = {
      {"clock_khz", 13},        {"multiprocessors", 16}, {"memory_clock_khz", 36},
      {"bus_bits", 37},         {"l2_bytes", 38},        {"threads_per_multiprocessor", 39},
      {"capability_major", 75}, {"capability_minor", 76}};
  Json json = Json::object();
  for (const auto& [name, number] : kWanted) {
    int value = 0;
    const auto attribute = static_cast<cuda::CUdevice_attribute>(number);
    if (driver.cuDeviceGetAttribute(&value, attribute, ordinal) == cuda::CUDA_SUCCESS && value > 0)
      json[name] = value;
  }
  return json;
}

// Of the functions in an image that prepare_code() gave, by name.
std::map<std::string, cuda::FunctionResources> resources_of(const std::vector<std::byte>& image) {
  std::map<std::string, cuda::FunctionResources> found;
  for (const cuda::CodePart& part : cuda::parts_of(image))
    for (const cuda::FunctionResources& each : cuda::resources_of(part.cubin))
      found[each.name] = each;
  return found;
}

// What the launches of a kernel take of the card.
Json launches_json(const Candidate& candidate, const PlannedLayer& layer, const Device& device,
                   const std::map<std::string, cuda::FunctionResources>& resources) {
  Json all = Json::array();
  for (const LaunchFacts& launch : launches_of(*candidate.made, layer)) {
    cuda::Work work{.blocks = std::max<int64_t>(launch.blocks, 1),
                    .threads_per_block = launch.threads,
                    .shared_bytes_per_block = launch.shared_bytes};
    Json json = {{"function", launch.function},
                 {"blocks", launch.blocks},
                 {"threads", launch.threads},
                 {"dynamic_shared_bytes", launch.shared_bytes}};
    if (const auto known = resources.find(launch.function); known != resources.end()) {
      json["registers"] = known->second.registers;
      json["stack_bytes"] = known->second.stack_bytes;
      json["fixed_shared_bytes"] = known->second.shared_bytes;
      work.registers_per_thread = known->second.registers;
      work.shared_bytes_per_block += known->second.shared_bytes;
    }
    const cuda::DeviceSpec& spec = cuda::spec_of(device);
    const cuda::Floor floor = cuda::floor_of(spec, work);
    json["resident_blocks"] = floor.resident_blocks;
    json["waves"] = floor.waves;
    json["occupancy"] = static_cast<double>(floor.resident_blocks * launch.threads) /
                        spec.threads_per_multiprocessor;
    all.push_back(std::move(json));
  }
  return all;
}

// Whether the device no longer executes work.
bool is_lost(DeviceStream& stream) {
  try {
    stream.wait();
    return false;
  } catch (const Error&) {
    return true;
  }
}

struct Measurement {
  Json json;
  bool lost = false;
};

// Compares each configuration's output with that of the planned one, which comes first: a time of a
// wrong kernel is none.
class OutputCheck {
 public:
  OutputCheck(const PlannedLayer& layer, const OperandSets& operands, Device& device,
              DeviceStream& stream)
      : layer_(layer), operands_(operands), device_(device), stream_(stream) {}
  // Fails with kInternal, telling the first element that differs too much.
  void check(const Candidate& candidate, Json& json) {
    auto outputs = outputs_of(*candidate.made, operands_, device_, stream_);
    if (candidate.is_planned) {
      planned_ = std::move(outputs);
      return;
    }
    if (planned_.empty()) return;
    double largest = 0;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const uint32_t slot = layer_.planned().outputs[i];
      if (slot == kNoSlot) continue;
      const OutputDifference difference =
          output_difference(layer_.plan().slots[slot].type.dtype, outputs[i], planned_[i]);
      if (!difference.why_wrong.empty())
        fail(ErrorCode::kInternal,
             fmt::format("output {} is not the planned kernel's: {}", i, difference.why_wrong));
      largest = std::max(largest, difference.largest);
    }
    json["differs_by"] = largest;
  }

 private:
  const PlannedLayer& layer_;
  const OperandSets& operands_;
  Device& device_;
  DeviceStream& stream_;
  std::vector<std::vector<std::byte>> planned_;
};

void time_all(const Options& options, const PlannedLayer& layer, Device& device,
              const std::vector<Candidate>& candidates, Json& configs, Measurement& measured) {
  const auto stream = device.make_stream();
  const double cache = cuda::spec_of(device).l2_bytes;
  const bool emulated = options.device == "emulated";
  const OperandSets operands(layer, device, *stream, emulated ? 0 : kBeyondCache * cache,
                             options.launches);
  measured.json["operand_sets"] = operands.count();
  measured.json["operand_bytes"] = operands.bytes();
  measured.json["operands_exceed_l2"] = operands.bytes() > cache;
  OutputCheck outputs(layer, operands, device, *stream);
  double best = 1e9;
  for (size_t i = 0; i < candidates.size(); ++i) {
    Json& json = configs[i];
    try {
      if (options.once) {
        if (candidates[i].is_planned)
          launch_only(*candidates[i].made, operands, device, *stream, 2);
        continue;
      }
      outputs.check(candidates[i], json);
      if (i == 0 && !emulated) warm_up(*candidates[i].made, operands, device, *stream, kWarmUp);
      const Timing timing = time_of(
          *candidates[i].made, operands, device, *stream,
          {options.launches, options.plays, emulated ? 1e12 : std::max(kShort, kHopeless * best)});
      json["us"] = timing.microseconds;
      if (timing.is_hopeless) json["hopeless"] = true;
      if (!timing.is_hopeless) json["launches_in_graph"] = timing.launches;
      if (!timing.is_recorded) json["recorded"] = false;
      json["plays_us"] = timing.plays;
      if (!timing.is_hopeless) best = std::min(best, timing.microseconds);
    } catch (const Error& error) {
      json["error"] = error.what();
      measured.json["error"] =
          fmt::format("{} {}: {}", candidates[i].kernel, candidates[i].config, error.what());
      if (is_lost(*stream)) {
        measured.lost = true;
        return;
      }
    }
  }
}

Measurement measure(const Options& options, const std::string& name, const std::string& graph) {
  // A device of its own, so that its code is that of this layer.
  const auto device = cuda_backend().open(options.device);
  Measurement measured;
  Json& json = measured.json;
  json["name"] = name;
  const PlannedLayer layer = plan_layer(graph, device->target());
  json["bytes"] = layer.bytes();
  json["kernel"] = layer.planned().kernel;
  Candidates candidates = candidates_of(layer, *device);
  // The planned one stands first, so that a limit keeps it.
  std::stable_partition(candidates.all.begin(), candidates.all.end(),
                        [](const Candidate& each) { return each.is_planned; });
  if (static_cast<int>(candidates.all.size()) > options.configs)
    candidates.all.erase(candidates.all.begin() + options.configs, candidates.all.end());
  const auto resources = resources_of(device->prepare_code({}));
  json["refused"] = Json::object();
  for (const auto& [kernel, why] : candidates.refused) json["refused"][kernel] = why;
  Json configs = Json::array();
  for (const Candidate& each : candidates.all)
    configs.push_back({{"kernel", each.kernel},
                       {"config", each.config},
                       {"planned", each.is_planned},
                       {"launches", launches_json(each, layer, *device, resources)}});
  if (!options.compiles_only())
    time_all(options, layer, *device, candidates.all, configs, measured);
  json["configs"] = std::move(configs);
  return measured;
}

int run(const Options& options) {
  const auto device = cuda_backend().open(options.device);  // keeps the context alive
  print({{"device", device->description()}, {"attributes", attributes_of(options.device)}});
  for (std::string line; std::getline(std::cin, line);) {
    if (line.empty()) continue;
    const Json each = Json::parse(line, nullptr, false);
    if (!each.is_object() || !each.contains("name") || !each.contains("graph"))
      fail(ErrorCode::kInvalidArgument,
           fmt::format("\"{}\" is no case: write {{\"name\": ..., \"graph\": ...}}", line));
    const auto name = each["name"].get<std::string>();
    print({{"begins", name}});
    try {
      const Measurement measured = measure(options, name, each["graph"].get<std::string>());
      print(measured.json);
      if (measured.lost) return kDeviceLost;
    } catch (const Error& error) {
      print({{"name", name}, {"error", error.what()}});
    }
  }
  return 0;
}

Options parse(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string_view flag = arguments[i];
    if (flag == "--once" || flag == "--compile") {
      (flag == "--once" ? options.once : options.compile) = true;
      continue;
    }
    if (i + 1 == count)
      fail(ErrorCode::kInvalidArgument, fmt::format("{}: unknown, or without its value", flag));
    const std::string value = arguments[++i];
    if (flag == "--device")
      options.device = value;
    else if (flag == "--launches")
      options.launches = std::max(1, std::atoi(value.c_str()));
    else if (flag == "--plays")
      options.plays = std::max(1, std::atoi(value.c_str()));
    else if (flag == "--configs")
      options.configs = std::max(1, std::atoi(value.c_str()));
    else
      fail(ErrorCode::kInvalidArgument, fmt::format("unknown flag {}", flag));
  }
  return options;
}

}  // namespace
}  // namespace anneal::bench

int main(int count, char** arguments) {
  try {
    return anneal::bench::run(anneal::bench::parse(count, arguments));
  } catch (const anneal::Error& error) {
    fmt::print(stderr, "anneal_gpu_times: {}\n", error.what());
    return 2;
  }
}
