// Writes the machine code of plans for cards: what machine_code_test.py disassembles.
//
//   device_code TARGET GRAPHS FOLDER
//   device_code FOLDER ENGINE...
//
// GRAPHS holds texts of graphs (docs/graph_text.md), each behind a line "== NAME", which are built
// for the target. Of an engine file each plan for a card is a case, "ENGINE TARGET". Of case i
// every compiled program j is written to FOLDER/i.j.cubin; JSON on standard output names NVRTC's
// version, of each case the steps with the functions that they launch, and what these take of the
// card. Ends with 77 if there is no NVRTC.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "anneal/bench/gpu/layer_timing.h"
#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/engine/builder/builder.h"
#include "anneal/engine/plan.h"
#include "anneal/engine/run/planned_kernel.h"
#include "anneal/engine/slot_alignment.h"
#include "anneal/graph/text/text.h"
#include "anneal/kernels/cuda/api/libraries.h"
#include "anneal/kernels/cuda/backend.h"
#include "anneal/kernels/cuda/code/code_image.h"
#include "anneal/kernels/cuda/code/cubin.h"
#include "anneal/kernels/cuda/cost/tactic_text.h"
#include "anneal/kernels/cuda/runtime/device.h"

namespace anneal::cuda {
namespace {

using Json = nlohmann::ordered_json;

struct Case {
  std::string name, graph;
};

std::vector<Case> read_cases(const std::string& path) {
  std::ifstream lines(path);
  if (!lines) fail(ErrorCode::kInvalidArgument, fmt::format("{} cannot be read", path));
  std::vector<Case> cases;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("== ")) {
      cases.push_back({line.substr(3), {}});
    } else {
      if (cases.empty())
        fail(ErrorCode::kInvalidArgument,
             fmt::format("{} must begin with a line \"== NAME\"", path));
      cases.back().graph += line + "\n";
    }
  }
  return cases;
}

bool knows_outputs(const Plan& plan, const Step& step) {
  return std::ranges::all_of(step.outputs, [&](uint32_t slot) {
    return slot == kNoSlot ||
           std::ranges::all_of(plan.slots[slot].type.shape, [](Size size) { return size.known(); });
  });
}

// The functions that the layer's step launches, by name. Where values decide how many results there
// are, only a run knows them: then all functions of the device.
std::vector<std::string> functions_launched(const bench::PlannedLayer& layer, Device& device) {
  const Step& step = layer.planned();
  const KernelEntry* const entry = find_kernel(cuda_backend(), step.kernel);
  if (entry == nullptr) return {};
  const StepOperands operands = operands_of(layer.file, layer.plan(), step);
  KernelResult made = entry->make(request_of(layer.plan(), step, operands, device));
  if (!made) fail(ErrorCode::kInternal, fmt::format("step {}: {}", step.name, made.reason()));
  know_alignments(**made, alignments_of(layer.plan(), step.inputs),
                  alignments_of(layer.plan(), step.outputs));
  std::vector<std::string> names;
  if (!knows_outputs(layer.plan(), step)) {
    for (const auto& function : code_of(device).functions()) names.push_back(function->name);
    return names;
  }
  for (const bench::LaunchFacts& launch : bench::launches_of(**made, layer))
    names.push_back(launch.function);
  return names;
}

Json json_of(const EngineFile& file, size_t number, const std::string& file_prefix) {
  bench::PlannedLayer layer;
  layer.file.plans = {file.plans[number]};
  layer.file.weights = file.weights;
  const Plan& plan = layer.plan();
  const auto device = cuda_backend().open(plan.target);
  Json steps = Json::array(), programs = Json::array();
  for (const Step& step : plan.steps) {
    layer.step = static_cast<size_t>(&step - plan.steps.data());
    steps.push_back({{"name", step.name},
                     {"op", to_string(step.op)},
                     {"kernel", step.kernel},
                     {"tile", tactic_text(step.kernel, step.tactic)},
                     {"functions", step.device == 0 ? functions_launched(layer, *device)
                                                    : std::vector<std::string>()}});
  }
  for (const CodePart& part : parts_of(plan.code)) {
    const std::string file = fmt::format("{}.{}.cubin", file_prefix, programs.size());
    write_file_atomically(file, part.cubin);
    Json functions = Json::array();
    for (const FunctionResources& each : resources_of(part.cubin))
      functions.push_back({{"name", each.name},
                           {"registers", each.registers},
                           {"stack_bytes", each.stack_bytes},
                           {"shared_bytes", each.shared_bytes}});
    programs.push_back({{"file", file}, {"functions", std::move(functions)}});
  }
  return {{"steps", std::move(steps)}, {"programs", std::move(programs)}};
}

Json cases_of_graphs(const std::string& target, const std::string& graphs,
                     const std::string& folder) {
  Json all = Json::array();
  for (const Case& each : read_cases(graphs)) {
    GraphBuildOptions options;
    options.targets = {target};
    const EngineFile file = with_context([&] { return fmt::format("case \"{}\"", each.name); },
                                         [&] { return build(parse_graph(each.graph), options); });
    Json json = {{"case", each.name}};
    json.update(json_of(file, 0, fmt::format("{}/{}", folder, all.size())));
    all.push_back(std::move(json));
  }
  return all;
}

Json cases_of_engines(const std::string& folder, const std::vector<std::string>& engines) {
  Json all = Json::array();
  for (const std::string& path : engines) {
    const EngineFile file = read_engine_file(path);
    for (size_t i = 0; i < file.plans.size(); ++i) {
      const std::string& target = file.plans[i].target;
      if (!target.starts_with("sm_")) continue;
      Json json = {
          {"case", fmt::format("{} {}", std::filesystem::path(path).stem().string(), target)}};
      json.update(json_of(file, i, fmt::format("{}/{}", folder, all.size())));
      all.push_back(std::move(json));
    }
  }
  return all;
}

int run(const std::vector<std::string>& arguments) {
  if (!nvrtc_library().table) {
    fmt::print(stderr, "{}\n", nvrtc_library().why_not);
    return 77;
  }
  const bool is_of_graphs = arguments[0].starts_with("sm_");
  Json all = is_of_graphs
                 ? cases_of_graphs(arguments[0], arguments.at(1), arguments.at(2))
                 : cases_of_engines(arguments[0], {arguments.begin() + 1, arguments.end()});
  int major = 0, minor = 0;
  nvrtc_library().table->nvrtcVersion(&major, &minor);
  const Json report = {{"nvrtc", fmt::format("{}.{}", major, minor)}, {"cases", std::move(all)}};
  fmt::print("{}\n", report.dump(1));
  return 0;
}

}  // namespace
}  // namespace anneal::cuda

int main(int count, char** arguments) {
  const std::vector<std::string> given(arguments + 1, arguments + count);
  if (given.size() < 2 || (given[0].starts_with("sm_") && given.size() != 3)) {
    fmt::print(stderr, "usage: device_code TARGET GRAPHS FOLDER | device_code FOLDER ENGINE...\n");
    return 2;
  }
  try {
    return anneal::cuda::run(given);
  } catch (const anneal::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
