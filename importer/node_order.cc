#include "anneal/importer/node_order.h"

#include <functional>
#include <queue>
#include <string>
#include <string_view>
#include <unordered_map>

#include "anneal/core/error.h"
#include "anneal/importer/onnx.pb.h"

namespace anneal {

std::string node_name(const anneal_onnx::NodeProto& node, int index) {
  return node.name().empty() ? node.op_type() + "_" + std::to_string(index) : node.name();
}

std::vector<int> node_order(const NodeList& nodes) {
  std::unordered_map<std::string_view, int> producers;
  for (int i = 0; i < nodes.size(); ++i) {
    for (const std::string& output : nodes[i].output()) {
      if (output.empty()) continue;
      const auto [other, added] = producers.emplace(output, i);
      if (!added)
        fail(Code::kInvalidModel, "value \"" + output + "\" is produced twice: by node \"" +
                                      node_name(nodes[other->second], other->second) +
                                      "\" and by node \"" + node_name(nodes[i], i) + "\"");
    }
  }
  std::vector<std::vector<int>> readers(nodes.size());
  std::vector<int> waiting_for(nodes.size(), 0);
  for (int i = 0; i < nodes.size(); ++i) {
    for (const std::string& input : nodes[i].input()) {
      const auto producer = producers.find(input);
      if (producer == producers.end()) continue;
      readers[producer->second].push_back(i);
      ++waiting_for[i];
    }
  }
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (int i = 0; i < nodes.size(); ++i)
    if (waiting_for[i] == 0) ready.push(i);
  std::vector<int> order;
  while (!ready.empty()) {
    const int next = ready.top();
    ready.pop();
    order.push_back(next);
    for (const int reader : readers[next])
      if (--waiting_for[reader] == 0) ready.push(reader);
  }
  for (int i = 0; i < nodes.size(); ++i)
    if (waiting_for[i] > 0)
      fail(Code::kInvalidModel,
           "the nodes form a cycle; node \"" + node_name(nodes[i], i) + "\" is on or behind it");
  return order;
}

}  // namespace anneal
