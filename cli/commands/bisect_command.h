// `anneal bisect`, for tests with passes of their own.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "anneal/cli/model/import_model.h"
#include "anneal/engine/builder/build_options.h"
#include "anneal/engine/compare/compare_outputs.h"
#include "anneal/optimizer/pass.h"

namespace anneal {

struct BisectFlags {
  std::string model, target = "cpu", json;
  ShapeFlags shapes;
  std::vector<std::string> inputs;
  BuildOptions build;  // its passes
  Tolerance tolerance = {.rtol = 1e-3, .atol = 1e-5};
  int threads = 0;
  bool verbose = false;
};

// Prints the rewrite of the passes that does harm to the graph, which is flags.model imported.
// Returns the exit status.
int bisect(const Graph& graph, const BisectFlags& flags, std::span<const Pass> passes);

}  // namespace anneal
