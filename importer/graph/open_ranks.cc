#include "anneal/importer/graph/open_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "anneal/importer/onnx/onnx.pb.h"

namespace anneal {
namespace {

using anneal_onnx::NodeProto;

bool has_attribute(const NodeProto& node, std::string_view name) {
  return std::ranges::any_of(node.attribute(), [&](const auto& it) { return it.name() == name; });
}

bool keeps_reduced_axes(const NodeProto& node) {
  for (const auto& attribute : node.attribute())
    if (attribute.name() == "keepdims") return attribute.i() != 0;
  return true;
}

// Whether the results, with their shapes, are the same for a number and a tensor of one element.
bool ignores_rank(const NodeProto& node, size_t input) {
  const std::string& op = node.op_type();
  const bool all_axes = node.input_size() == 1 && !has_attribute(node, "axes");
  if (op == "Size" || op == "Range") return true;
  if (op == "Squeeze") return all_axes;
  if (op.starts_with("Reduce")) return all_axes && !keeps_reduced_axes(node);
  if (op == "CumSum" || op == "OneHot" || op == "Trilu") return input == 1;
  if (op == "Reshape" || op == "If") return input == 0;
  return op == "Loop" && input < 2;
}

}  // namespace

bool refuse_open_rank(ValueId value, const std::string& what, const std::string& name,
                      const std::string& where, const Scope& scope, ImportContext& context) {
  const auto open = scope.model->open_ranks.find(value);
  if (open == scope.model->open_ranks.end()) return false;
  context.choices.refuse_alignment(open->second);
  context.unsupported.add(what, name,
                          fmt::format("{}a number or a tensor of one element, as If \"{}\" decides",
                                      where, open->second));
  return true;
}

std::optional<std::string> find_open_rank(const NodeProto& proto, const OpRow* row,
                                          const std::string& name,
                                          const std::vector<ValueId>& inputs, const Scope& scope,
                                          ImportContext& context) {
  std::string passed_on;
  const std::string& op = proto.op_type();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto open = scope.model->open_ranks.find(inputs[i]);
    if (open == scope.model->open_ranks.end()) continue;
    const bool is_onnx = proto.domain().empty() || proto.domain() == "ai.onnx";
    if ((row && is_elementwise(*row)) ||
        (is_onnx && (op == "Identity" || (op == "Expand" && i == 0)))) {
      passed_on = open->second;
      continue;
    }
    if (!is_onnx || !ignores_rank(proto, i)) {
      refuse_open_rank(inputs[i], op, name, fmt::format("input {} is ", i), scope, context);
      return std::nullopt;
    }
  }
  return passed_on;
}

}  // namespace anneal
