#include "anneal/tests/random/model_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

namespace anneal::random_graphs {
namespace {

using anneal_onnx::AttributeProto;
using anneal_onnx::GraphProto;
using anneal_onnx::TensorProto;

constexpr int kShown = 64;  // elements of a constant

std::string_view type_name(int type) {
  constexpr std::string_view names[] = {"undefined",  "float",   "uint8",  "int8",   "uint16",
                                        "int16",      "int32",   "int64",  "string", "bool",
                                        "float16",    "double",  "uint32", "uint64", "complex64",
                                        "complex128", "bfloat16"};
  return type >= 0 && type < static_cast<int>(std::size(names)) ? names[type] : "other";
}

std::string value_type(const anneal_onnx::ValueInfoProto& info) {
  const auto& tensor = info.type().tensor_type();
  if (!tensor.has_shape()) return std::string(type_name(tensor.elem_type()));
  std::vector<std::string> dims;
  for (const auto& dim : tensor.shape().dim())
    dims.push_back(dim.has_dim_param() ? dim.dim_param() : std::to_string(dim.dim_value()));
  return fmt::format("{}[{}]", type_name(tensor.elem_type()), fmt::join(dims, ","));
}

std::string elements(const TensorProto& tensor) {
  std::vector<std::string> shown;
  const auto add = [&](const auto& values) {
    for (const auto value : values) {
      if (shown.size() == kShown) {
        shown.emplace_back("...");
        return;
      }
      shown.push_back(fmt::format("{}", value));
    }
  };
  add(tensor.float_data());
  add(tensor.int32_data());
  add(tensor.int64_data());
  return fmt::format("{{{}}}", fmt::join(shown, ", "));
}

std::string tensor_text(const TensorProto& tensor) {
  return fmt::format("{}[{}] {} = {}", type_name(tensor.data_type()), fmt::join(tensor.dims(), ","),
                     tensor.name(), elements(tensor));
}

std::string graph_text(const GraphProto& graph, const std::string& indent);

std::string attribute_text(const AttributeProto& each, const std::string& indent) {
  switch (each.type()) {
    case AttributeProto::FLOAT:
      return fmt::format("{}: float = {}", each.name(), each.f());
    case AttributeProto::INT:
      return fmt::format("{}: int = {}", each.name(), each.i());
    case AttributeProto::STRING:
      return fmt::format("{} = \"{}\"", each.name(), each.s());
    case AttributeProto::INTS:
      return fmt::format("{}: ints = [{}]", each.name(), fmt::join(each.ints(), ", "));
    case AttributeProto::FLOATS:
      return fmt::format("{}: floats = [{}]", each.name(), fmt::join(each.floats(), ", "));
    case AttributeProto::TENSOR:
      return fmt::format("{} = {}[{}] {}", each.name(), type_name(each.t().data_type()),
                         fmt::join(each.t().dims(), ","), elements(each.t()));
    case AttributeProto::GRAPH:
      return fmt::format("{} = {}", each.name(), graph_text(each.g(), indent + "    "));
    default:
      return each.name();
  }
}

std::string graph_text(const GraphProto& graph, const std::string& indent) {
  std::vector<std::string> inputs, outputs, constants;
  for (const auto& input : graph.input()) inputs.push_back(value_type(input) + " " + input.name());
  for (const auto& output : graph.output())
    outputs.push_back(value_type(output) + " " + output.name());
  for (const auto& tensor : graph.initializer()) constants.push_back(tensor_text(tensor));
  std::string text = fmt::format("{} ({}) => ({})", graph.name(), fmt::join(inputs, ", "),
                                 fmt::join(outputs, ", "));
  if (!constants.empty())
    text += fmt::format("\n{}<{}>", indent, fmt::join(constants, ",\n" + indent + " "));
  text += " {\n";
  for (const auto& node : graph.node()) {
    std::vector<std::string> names(node.input().begin(), node.input().end()), attributes;
    for (std::string& name : names)
      if (name.empty()) name = "\"\"";
    for (const auto& each : node.attribute()) attributes.push_back(attribute_text(each, indent));
    text +=
        fmt::format("{}  {} = {}{}({})\n", indent, fmt::join(node.output(), ", "), node.op_type(),
                    attributes.empty() ? "" : fmt::format(" <{}>", fmt::join(attributes, ", ")),
                    fmt::join(names, ", "));
  }
  return text + indent + "}";
}

}  // namespace

std::string model_text(const anneal_onnx::ModelProto& model) {
  return fmt::format("<ir_version: {}, opset_import: [\"\" : {}]>\n{}\n", model.ir_version(),
                     model.opset_import(0).version(), graph_text(model.graph(), ""));
}

}  // namespace anneal::random_graphs
