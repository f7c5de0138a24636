// Attributes of nodes, and graphs' inputs and outputs, in one line each.
#pragma once
#include <string>
#include <vector>

#include "anneal/importer/onnx/onnx.pb.h"

namespace anneal::random_graphs {

using onnx = anneal_onnx::TensorProto;

inline anneal_onnx::AttributeProto& attribute(anneal_onnx::NodeProto& node, const std::string& name,
                                              anneal_onnx::AttributeProto::AttributeType type) {
  auto* added = node.add_attribute();
  added->set_name(name);
  added->set_type(type);
  return *added;
}
inline void set(anneal_onnx::NodeProto& node, const std::string& name, int64_t value) {
  attribute(node, name, anneal_onnx::AttributeProto::INT).set_i(value);
}
inline void set(anneal_onnx::NodeProto& node, const std::string& name, float value) {
  attribute(node, name, anneal_onnx::AttributeProto::FLOAT).set_f(value);
}
inline void set(anneal_onnx::NodeProto& node, const std::string& name, const std::string& value) {
  attribute(node, name, anneal_onnx::AttributeProto::STRING).set_s(value);
}
inline void set(anneal_onnx::NodeProto& node, const std::string& name,
                const std::vector<int64_t>& values) {
  auto& added = attribute(node, name, anneal_onnx::AttributeProto::INTS);
  for (const int64_t value : values) added.add_ints(value);
}
inline void set(anneal_onnx::NodeProto& node, const std::string& name,
                const anneal_onnx::GraphProto& value) {
  *attribute(node, name, anneal_onnx::AttributeProto::GRAPH).mutable_g() = value;
}

}  // namespace anneal::random_graphs
