// How many nodes a model stands for at least, told before they are imported.
#pragma once
#include <cstdint>

#include "anneal/importer/graph/operators.h"
#include "anneal/importer/onnx/onnx.pb.h"

namespace anneal {

// Nodes of the graph and of the local functions that it calls, each call anew, as far as its
// outputs need them. Bodies of control flow do not count, nor do calls deeper than most_depth.
// At most kManyNodes.
inline constexpr int64_t kManyNodes = int64_t{1} << 40;
int64_t least_nodes(const anneal_onnx::GraphProto& graph, const FunctionTable& functions,
                    int most_depth);

}  // namespace anneal
