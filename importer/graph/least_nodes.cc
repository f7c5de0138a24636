#include "anneal/importer/graph/least_nodes.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "anneal/importer/graph/node_order.h"
#include "anneal/importer/onnx/onnx.pb.h"

namespace anneal {
namespace {

using anneal_onnx::FunctionProto;
using anneal_onnx::NodeProto;

class NodeCounter {
 public:
  NodeCounter(const FunctionTable& functions, int most_depth)
      : functions_(functions), most_depth_(most_depth) {}

  int64_t count(const NodeList& nodes, const std::vector<std::string>& wanted, int depth) {
    int64_t all = 0;
    for (const int index : node_order(nodes, wanted)) {
      all = std::min(all + 1 + count_call(nodes[index], depth), kManyNodes);
      if (all == kManyNodes) break;
    }
    return all;
  }

 private:
  int64_t count_call(const NodeProto& call, int depth) {
    const FunctionProto* function = find_function(functions_, call);
    if (!function || depth >= most_depth_) return 0;
    std::vector<std::string> wanted;
    for (int i = 0; i < std::min(call.output_size(), function->output_size()); ++i)
      if (!call.output(i).empty()) wanted.push_back(function->output(i));
    // A function that calls itself has none yet while it is counted.
    const auto [known, is_new] = counts_.try_emplace({function, wanted}, 0);
    if (is_new) known->second = count(function->node(), wanted, depth + 1);
    return known->second;
  }

  const FunctionTable& functions_;
  const int most_depth_;
  std::map<std::pair<const FunctionProto*, std::vector<std::string>>, int64_t> counts_;
};

}  // namespace

int64_t least_nodes(const anneal_onnx::GraphProto& graph, const FunctionTable& functions,
                    int most_depth) {
  std::vector<std::string> wanted;
  for (const auto& output : graph.output()) wanted.push_back(output.name());
  return NodeCounter(functions, most_depth).count(graph.node(), wanted, 0);
}

}  // namespace anneal
