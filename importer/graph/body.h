// BodyImporter: the graphs inside a node of control flow.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "anneal/core/result.h"
#include "anneal/importer/graph/node_importer.h"
#include "anneal/importer/graph/scope.h"

namespace anneal {

// A body that becomes a graph of its own, beside the graph that runs it.
struct Body {
  Body(Graph empty, std::string folder, RankChoices& choices)
      : graph(std::move(empty)),
        model{.graph = graph,
              .folder = std::move(folder),
              .reserved_names = {},
              .choices = &choices} {}
  Graph graph;
  Node::Model model;
  Scope scope;
};

class BodyImporter {
 public:
  explicit BodyImporter(NodeImporter& nodes) : nodes_(nodes) {}

  ImportContext& context() { return nodes_.context(); }
  // An empty body. Fails with kUnsupported if it is too deep inside others.
  std::unique_ptr<Body> begin(const std::string& name, Scope& outer);
  void add_input(const anneal_onnx::GraphProto& proto, int index, const Type& type, Body& body);
  // False if something in the body is not supported, which has been reported; refused if the types
  // of its inputs and captures, or the body itself, are invalid.
  Result<bool> import(const anneal_onnx::GraphProto& proto, Body& body);
  // The body's nodes in the graph of the scope, and the values of the body's outputs; none if
  // something is not supported, which has been reported.
  std::optional<Outputs> import_inline(const anneal_onnx::GraphProto& proto, Scope& scope);

 private:
  NodeImporter& nodes_;
};

}  // namespace anneal
