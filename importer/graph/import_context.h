// ImportContext: the state that all parts of one import share.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "anneal/graph/graph.h"
#include "anneal/graph/op/custom_operator.h"
#include "anneal/importer/graph/operators.h"
#include "anneal/importer/node/rank_choices.h"
#include "anneal/importer/node/unsupported.h"

namespace anneal {

// The limit on nested calls of local functions.
inline constexpr int kMaxCallDepth = 32;
inline constexpr int kMaxNodes = 1'000'000;

struct ImportContext {
  const Graph& main_graph;
  const FunctionTable functions;
  RankChoices& choices;
  const CustomOperators& operators;
  UnsupportedReport unsupported = {};
  int nodes_done = 0;
  // By name of a Loop or Scan: which axes of each carried value vary.
  std::unordered_map<std::string, std::vector<std::vector<bool>>> varying = {};
};

}  // namespace anneal
