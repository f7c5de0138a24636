#include "anneal/engine/tune/calibration/prepared_graph.h"

#include <algorithm>
#include <span>
#include <string>

#include "anneal/engine/builder/target_support.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/optimizer/pipeline/pipeline.h"

namespace anneal {
namespace {}  // namespace

Graph prepared_for_precision(const Graph& model, const PassOptions& passes) {
  Graph graph = model.clone();
  PassOptions options = passes;
  options.precision = {};
  const Target target = open_target(kCalibrationDevice, cpu_backend());
  options.ask_targets = ask_targets({&target});
  const std::span<const Pass> all = default_pipeline();
  const auto first = std::ranges::find(all, kFirstOfPrecision, &Pass::name);
  std::erase_if(options.skip, [&](const std::string& name) {
    return std::find_if(all.begin(), first, [&](const Pass& pass) { return pass.name == name; }) ==
               first &&
           name != kAllPasses;
  });
  std::erase_if(options.only, [&](const std::string& name) {
    return std::find_if(all.begin(), first, [&](const Pass& pass) { return pass.name == name; }) ==
           first;
  });
  if (!passes.only.empty() && options.only.empty()) options.skip = {std::string(kAllPasses)};
  run_pipeline(graph, all.first(static_cast<size_t>(first - all.begin())), options);
  return graph;
}

}  // namespace anneal
