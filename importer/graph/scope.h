// Scope: where the names of values are looked up during the import.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "anneal/importer/graph/node_order.h"
#include "anneal/importer/graph/operators.h"
#include "anneal/importer/node/node.h"
#include "anneal/importer/node/unsupported.h"

namespace anneal {

struct ScopedValue {
  enum class State : uint8_t {
    kImported,  // value is kNone for an argument that a function call leaves out
    kLost,      // its node is not supported, which has been reported
    kSequence,  // of tensors, which are all known
    kStack,     // a sequence whose length only a run knows (stack.h); its tensor is in `sequence`
    kJoined,    // a sequence that is only concatenated: the result is in `sequence`
    kLeftOut,   // an output that a supported node does not compute: reported when used
  };
  State state = State::kLost;
  ValueId value = ValueId::kNone;
  std::string what = {}, node = {}, reason = {};  // of kLeftOut, for the report
  std::vector<ValueId> sequence = {};             // of kSequence, kStack and kJoined
};

// The scope of the main graph, of a function call, or of a body.
struct Scope {
  std::string prefix = {};  // of names of nodes and values
  Opsets opsets = {};
  Node::Model* model = nullptr;  // the graph that is built
  Scope* outer = nullptr;        // of a body: where names from outside are looked up
  // For a body with a graph of its own: its inputs, keyed by the values of the outer graph that
  // they represent, and these values in order.
  std::unordered_map<ValueId, ValueId> captured = {};
  std::vector<ValueId> captures = {};
  std::unordered_map<std::string, ScopedValue> values = {};
  std::unordered_map<std::string, std::string> outer_names = {};  // of a function's outputs
  std::vector<Node::Attribute> attributes = {};                   // of the call
  int depth = 0;
  // During the import: the nodes of the graph, body or function, and the names of its outputs.
  const NodeList* nodes = nullptr;
  std::span<const std::string> wanted = {};

  // The scope of a body whose nodes become part of this scope's graph.
  Scope body_scope(std::string body_prefix);

  // Fails with kInvalidModel if the name is taken.
  void define(const std::string& name, ScopedValue known);
  // Fails with kInvalidModel if no node produces the value; reports one that is left out.
  const ScopedValue& use(const std::string& name, UnsupportedReport& unsupported);
  // What a name stands for here or outside; null if no node produces it.
  const ScopedValue* find(const std::string& name) const;
  // A value of the outer graph, as the body's graph sees it.
  ValueId capture(ValueId outer_value);
  // The name in the graph of a value that a node of this scope computes.
  std::string graph_name(const std::string& output) const;

 private:
  bool known_outside(const std::vector<Size>& elements) const;
};

}  // namespace anneal
