// Models written in tests, node by node.
#pragma once
#include <gtest/gtest.h>

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "anneal/graph/text/text.h"
#include "anneal/importer/onnx/onnx.pb.h"
#include "anneal/tests/error_of.h"

namespace anneal {

inline std::vector<std::byte> bytes_of(const google::protobuf::MessageLite& message) {
  const std::string text = message.SerializePartialAsString();
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

inline std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// "f32[N,3]": that of the first output.
inline std::string output_type(const Graph& graph) {
  return to_string(graph.value(graph.outputs()[0].value).type(), graph.sizes());
}

class ModelBuilder {
 public:
  explicit ModelBuilder(int opset = 17) {
    model.set_ir_version(8);
    auto* import = model.add_opset_import();
    import->set_domain("");
    import->set_version(opset);
    model.mutable_graph()->set_name("test");
  }
  anneal_onnx::GraphProto& graph() { return *model.mutable_graph(); }

  // dims: a number, or a name; "" and "?" are sizes without a name.
  ModelBuilder& input(const std::string& name, const std::vector<std::string>& dims,
                      int type = anneal_onnx::TensorProto::FLOAT) {
    auto* value = graph().add_input();
    value->set_name(name);
    auto* tensor = value->mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(type);
    tensor->mutable_shape();
    for (const std::string& dim : dims) {
      auto* added = tensor->mutable_shape()->add_dim();
      if (dim.empty() || dim == "?") continue;
      const bool number = dim.find_first_not_of("-0123456789") == dim.npos;
      number ? added->set_dim_value(std::stoll(dim)) : added->set_dim_param(dim);
    }
    return *this;
  }
  ModelBuilder& output(const std::string& name) {
    graph().add_output()->set_name(name);
    return *this;
  }
  ModelBuilder& floats(const std::string& name, const std::vector<int64_t>& dims,
                       const std::vector<float>& values) {
    auto* tensor = add_tensor(name, dims, anneal_onnx::TensorProto::FLOAT);
    for (const float value : values) tensor->add_float_data(value);
    return *this;
  }
  ModelBuilder& integers(const std::string& name, const std::vector<int64_t>& values) {
    auto* tensor =
        add_tensor(name, {static_cast<int64_t>(values.size())}, anneal_onnx::TensorProto::INT64);
    for (const int64_t value : values) tensor->add_int64_data(value);
    return *this;
  }
  ModelBuilder& small_integers(const std::string& name, const std::vector<int64_t>& dims, int type,
                               const std::vector<int>& values) {
    auto* tensor = add_tensor(name, dims, type);
    for (const int value : values) tensor->add_int32_data(value);
    return *this;
  }
  anneal_onnx::NodeProto& node(const std::string& op, const std::vector<std::string>& inputs,
                               const std::vector<std::string>& outputs,
                               const std::string& name = "") {
    return fill(*graph().add_node(), op, inputs, outputs, name);
  }
  static anneal_onnx::NodeProto& fill(anneal_onnx::NodeProto& node, const std::string& op,
                                      const std::vector<std::string>& inputs,
                                      const std::vector<std::string>& outputs,
                                      const std::string& name = "") {
    node.set_op_type(op);
    for (const auto& input : inputs) node.add_input(input);
    for (const auto& output : outputs) node.add_output(output);
    if (!name.empty()) node.set_name(name);
    return node;
  }
  anneal_onnx::TensorProto* add_tensor(const std::string& name, const std::vector<int64_t>& dims,
                                       int type) {
    auto* tensor = graph().add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(type);
    for (const int64_t dim : dims) tensor->add_dims(dim);
    return tensor;
  }
  std::vector<std::byte> bytes() const { return bytes_of(model); }

  anneal_onnx::ModelProto model;
};

inline void set(anneal_onnx::NodeProto& node, const std::string& name, int64_t value) {
  auto* attribute = node.add_attribute();
  attribute->set_name(name);
  attribute->set_type(anneal_onnx::AttributeProto::INT);
  attribute->set_i(value);
}
inline void set(anneal_onnx::NodeProto& node, const std::string& name, float value) {
  auto* attribute = node.add_attribute();
  attribute->set_name(name);
  attribute->set_type(anneal_onnx::AttributeProto::FLOAT);
  attribute->set_f(value);
}
inline void set(anneal_onnx::NodeProto& node, const std::string& name, const char* value) {
  auto* attribute = node.add_attribute();
  attribute->set_name(name);
  attribute->set_type(anneal_onnx::AttributeProto::STRING);
  attribute->set_s(value);
}
inline void set(anneal_onnx::NodeProto& node, const std::string& name,
                const std::vector<int64_t>& values) {
  auto* attribute = node.add_attribute();
  attribute->set_name(name);
  attribute->set_type(anneal_onnx::AttributeProto::INTS);
  for (const int64_t value : values) attribute->add_ints(value);
}

}  // namespace anneal
