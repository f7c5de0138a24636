// Builds graphs for a card and writes the machine code of their plans: what machine_code_test.py
// disassembles.
//
//   device_code TARGET GRAPHS FOLDER
//
// GRAPHS holds texts of graphs (docs/graph_text.md), each behind a line "== NAME". Of case i every
// compiled program j is written to FOLDER/i.j.cubin; JSON on standard output names NVRTC's version,
// what the plan of each case runs and what its functions take of the card. Ends with 77 if there is
// no NVRTC.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/engine/builder/builder.h"
#include "anneal/engine/plan.h"
#include "anneal/graph/text/text.h"
#include "anneal/kernels/cuda/api/libraries.h"
#include "anneal/kernels/cuda/code/code_image.h"
#include "anneal/kernels/cuda/code/cubin.h"
#include "anneal/kernels/cuda/cost/mma_config.h"

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

// "64x64x64, 2x2 warps, 3 stages" of a step on tensor cores; else empty.
std::string tile_of(const Step& step) {
  for (const MmaConfig& config : mma_configs())
    if (step.kernel.ends_with(".mma") && std::ranges::equal(tactic_of(config), step.tactic))
      return to_string(config);
  return {};
}

Json json_of(const Plan& plan, const std::string& file_prefix) {
  Json steps = Json::array(), programs = Json::array();
  for (const Step& step : plan.steps)
    if (step.device == 0 && !step.kernel.empty())
      steps.push_back({{"name", step.name}, {"kernel", step.kernel}, {"tile", tile_of(step)}});
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

int run(const std::string& target, const std::string& graphs, const std::string& folder) {
  if (!nvrtc_library().table) {
    fmt::print(stderr, "{}\n", nvrtc_library().why_not);
    return 77;
  }
  Json all = Json::array();
  for (const Case& each : read_cases(graphs)) {
    GraphBuildOptions options;
    options.targets = {target};
    const EngineFile file = with_context([&] { return fmt::format("case \"{}\"", each.name); },
                                         [&] { return build(parse_graph(each.graph), options); });
    Json json = {{"case", each.name}};
    json.update(json_of(file.plans[0], fmt::format("{}/{}", folder, all.size())));
    all.push_back(std::move(json));
  }
  int major = 0, minor = 0;
  nvrtc_library().table->nvrtcVersion(&major, &minor);
  const Json report = {{"nvrtc", fmt::format("{}.{}", major, minor)}, {"cases", std::move(all)}};
  fmt::print("{}\n", report.dump(1));
  return 0;
}

}  // namespace
}  // namespace anneal::cuda

int main(int count, char** arguments) {
  if (count != 4) {
    fmt::print(stderr, "usage: device_code TARGET GRAPHS FOLDER\n");
    return 2;
  }
  try {
    return anneal::cuda::run(arguments[1], arguments[2], arguments[3]);
  } catch (const anneal::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
