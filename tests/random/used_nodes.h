// What a graph's outputs need.
#pragma once
#include <map>
#include <set>
#include <string>

#include "anneal/tests/random/random_model.h"

namespace anneal::random_graphs {

// The names that a node reads, those in its bodies included.
void add_reads(const anneal_onnx::NodeProto& node, std::set<std::string>& reads);
// Replaces nodes, named by their first output, by an input of the same type and dims, if they have
// one.
void bypass_nodes(anneal_onnx::GraphProto& graph, const std::set<std::string>& nodes,
                  const std::map<std::string, Value>& facts);
// Erases nodes, constants and inputs that no output needs.
void keep_used(RandomModel& model);

}  // namespace anneal::random_graphs
