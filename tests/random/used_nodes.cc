#include "anneal/tests/random/used_nodes.h"

#include <algorithm>

namespace anneal::random_graphs {
namespace {

// Calls f for each name that a graph reads.
template <class F>
void for_each_read(anneal_onnx::GraphProto& graph, const F& f) {
  for (auto& node : *graph.mutable_node()) {
    for (auto& input : *node.mutable_input()) f(input);
    for (auto& attribute : *node.mutable_attribute())
      if (attribute.has_g()) for_each_read(*attribute.mutable_g(), f);
  }
  for (auto& output : *graph.mutable_output()) f(*output.mutable_name());
}

template <class List, class Keep>
void keep_if(List& list, const Keep& keep) {
  List kept;
  for (auto& each : list)
    if (keep(each)) *kept.Add() = std::move(each);
  list.Swap(&kept);
}

void keep_used_nodes(anneal_onnx::GraphProto& graph, std::set<std::string>& needed) {
  for (const auto& output : graph.output()) needed.insert(output.name());
  auto& nodes = *graph.mutable_node();
  std::vector<bool> keep(static_cast<size_t>(nodes.size()));
  for (int i = nodes.size() - 1; i >= 0; --i) {
    const auto& outputs = nodes[i].output();
    if (!std::ranges::any_of(outputs, [&](const auto& name) { return needed.contains(name); }))
      continue;
    keep[static_cast<size_t>(i)] = true;
    for (const auto& input : nodes[i].input()) needed.insert(input);
    for (auto& attribute : *nodes[i].mutable_attribute())
      if (attribute.has_g()) keep_used_nodes(*attribute.mutable_g(), needed);
  }
  size_t at = 0;
  keep_if(nodes, [&](const auto&) { return keep[at++]; });
}

}  // namespace

void add_reads(const anneal_onnx::NodeProto& node, std::set<std::string>& reads) {
  reads.insert(node.input().begin(), node.input().end());
  for (const auto& attribute : node.attribute()) {
    if (!attribute.has_g()) continue;
    for (const auto& inner : attribute.g().node()) add_reads(inner, reads);
    for (const auto& output : attribute.g().output()) reads.insert(output.name());
  }
}

void bypass_nodes(anneal_onnx::GraphProto& graph, const std::set<std::string>& nodes,
                  const std::map<std::string, Value>& facts) {
  if (nodes.empty()) return;
  std::map<std::string, std::string> instead;
  const auto find = [&](auto&& self, const anneal_onnx::GraphProto& in) -> void {
    for (const auto& node : in.node()) {
      for (const auto& attribute : node.attribute())
        if (attribute.has_g()) self(self, attribute.g());
      if (!nodes.contains(node.output(0))) continue;
      const Value& result = facts.at(node.output(0));
      for (const auto& input : node.input()) {
        const auto found = facts.find(input);
        if (found == facts.end() || found->second.type != result.type ||
            found->second.dims != result.dims)
          continue;
        instead[node.output(0)] = input;
        break;
      }
    }
    // What leaves a graph keeps its node.
    for (const auto& output : in.output()) instead.erase(output.name());
  };
  find(find, graph);
  const auto replace = [&](std::string& name) {
    for (auto found = instead.find(name); found != instead.end(); found = instead.find(name))
      name = found->second;
  };
  for_each_read(graph, replace);
}

void keep_used(RandomModel& model) {
  auto& graph = *model.proto.mutable_graph();
  std::set<std::string> needed;
  keep_used_nodes(graph, needed);
  const auto used = [&](const auto& named) { return needed.contains(named.name()); };
  keep_if(*graph.mutable_initializer(), used);
  std::vector<Value> inputs;
  std::vector<std::vector<Tensor>> data(model.data.size());
  for (size_t i = 0; i < model.inputs.size(); ++i) {
    if (!needed.contains(model.inputs[i].name)) continue;
    inputs.push_back(model.inputs[i]);
    for (size_t b = 0; b < data.size(); ++b) data[b].push_back(model.data[b][i]);
  }
  keep_if(*graph.mutable_input(), used);
  model.inputs = std::move(inputs);
  model.data = std::move(data);
}

}  // namespace anneal::random_graphs
