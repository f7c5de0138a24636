#include "anneal/importer/graph/node_order.h"

#include <fmt/format.h>

#include <queue>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "anneal/core/fail.h"
#include "anneal/importer/onnx/onnx.pb.h"

namespace anneal {
namespace {

// Visits every value that a node reads, or that its bodies read from outside.
void for_values_read(const anneal_onnx::NodeProto& node, const VisitName& visit) {
  for (const std::string& input : node.input()) visit(input);
  for (const auto& attribute : node.attribute())
    if (attribute.has_g()) for_values_from_outside(attribute.g(), visit);
}

}  // namespace

void for_values_from_outside(const anneal_onnx::GraphProto& body, const VisitName& visit) {
  std::unordered_set<std::string_view> own;
  for (const auto& input : body.input()) own.insert(input.name());
  for (const auto& tensor : body.initializer()) own.insert(tensor.name());
  for (const auto& node : body.node()) own.insert(node.output().begin(), node.output().end());
  const VisitName from_outside = [&](const std::string& name) {
    if (!own.contains(name)) visit(name);
  };
  for (const auto& node : body.node()) for_values_read(node, from_outside);
  for (const auto& output : body.output()) from_outside(output.name());
}

std::string node_name(const anneal_onnx::NodeProto& node, int index) {
  return node.name().empty() ? fmt::format("{}_{}", node.op_type(), index) : node.name();
}

std::vector<int> node_order(const NodeList& nodes, std::span<const std::string> wanted) {
  std::unordered_map<std::string_view, int> producers;
  for (int i = 0; i < nodes.size(); ++i) {
    for (const std::string& output : nodes[i].output()) {
      if (output.empty()) continue;
      const auto [other, added] = producers.emplace(output, i);
      if (!added)
        fail(
            ErrorCode::kInvalidModel,
            fmt::format("value \"{}\" is produced twice: by node \"{}\" and by node \"{}\"", output,
                        node_name(nodes[other->second], other->second), node_name(nodes[i], i)));
    }
  }
  std::vector<std::vector<int>> readers(nodes.size()), read(nodes.size());
  std::vector<int> waiting_for(nodes.size(), 0);
  for (int i = 0; i < nodes.size(); ++i) {
    for_values_read(nodes[i], [&](const std::string& value) {
      const auto producer = producers.find(value);
      if (producer == producers.end()) return;
      readers[producer->second].push_back(i);
      read[i].push_back(producer->second);
      ++waiting_for[i];
    });
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
      fail(ErrorCode::kInvalidModel,
           fmt::format("the nodes form a cycle; node \"{}\" is on or behind it",
                       node_name(nodes[i], i)));
  std::vector<bool> needed(nodes.size());
  for (const std::string& name : wanted)
    if (const auto producer = producers.find(name); producer != producers.end())
      needed[producer->second] = true;
  for (auto it = order.rbegin(); it != order.rend(); ++it)
    if (needed[*it])
      for (const int producer : read[*it]) needed[producer] = true;
  std::erase_if(order, [&](int node) { return !needed[node]; });
  return order;
}

}  // namespace anneal
