#include "anneal/importer/graph/operators.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/fail.h"
#include "anneal/importer/graph/node_order.h"
#include "anneal/importer/onnx/onnx.pb.h"

namespace anneal {
namespace {

using anneal_onnx::FunctionProto;
using anneal_onnx::GraphProto;
using anneal_onnx::ModelProto;
using anneal_onnx::NodeProto;

constexpr std::string_view kSequenceOperators[] = {
    "ConcatFromSequence", "SequenceAt",     "SequenceConstruct", "SequenceEmpty",
    "SequenceErase",      "SequenceInsert", "SequenceLength",    "SplitToSequence"};

Opsets imported_opsets(const auto& imports) {
  Opsets opsets;
  for (const auto& import : imports) {
    if (import.version() < 1 || import.version() >= kLatest)
      fail(ErrorCode::kInvalidModel,
           fmt::format("opset {} of domain \"{}\"", import.version(), import.domain()));
    const std::string domain = canonical_domain(import.domain());
    if (domain.empty() && import.version() > kNewestOpset)
      fail(ErrorCode::kUnsupported, fmt::format("opset {} of ai.onnx: the newest known is {}",
                                                import.version(), kNewestOpset));
    int& version = opsets[domain];
    version = std::max(version, static_cast<int>(import.version()));
  }
  return opsets;
}

}  // namespace

std::string canonical_domain(const std::string& domain) {
  return domain == "ai.onnx" ? "" : domain;
}

Opsets opsets_of(const ModelProto& model) {
  Opsets opsets = imported_opsets(model.opset_import());
  // Files from before opsets were named in the file.
  if (model.opset_import().empty() && model.ir_version() < 3) opsets[""] = 1;
  return opsets;
}

Opsets opsets_of(const FunctionProto& function) { return imported_opsets(function.opset_import()); }

FunctionTable functions_of(const ModelProto& model) {
  FunctionTable functions;
  for (const FunctionProto& function : model.functions())
    if (!functions
             .try_emplace(
                 {canonical_domain(function.domain()), function.name(), function.overload()},
                 &function)
             .second)
      fail(ErrorCode::kInvalidModel,
           fmt::format("function \"{}\" is defined twice", function.name()));
  return functions;
}

const FunctionProto* find_function(const FunctionTable& functions, const NodeProto& node) {
  const auto found =
      functions.find({canonical_domain(node.domain()), node.op_type(), node.overload()});
  return found == functions.end() ? nullptr : found->second;
}

bool is_control_flow(const NodeProto& node) {
  const std::string& op = node.op_type();
  return canonical_domain(node.domain()).empty() && (op == "If" || op == "Loop" || op == "Scan");
}

bool is_sequence_operator(const NodeProto& node) {
  return canonical_domain(node.domain()).empty() &&
         std::ranges::find(kSequenceOperators, node.op_type()) != std::end(kSequenceOperators);
}

int opset_of(const NodeProto& node, const Opsets& opsets) {
  const auto opset = opsets.find(canonical_domain(node.domain()));
  return opset == opsets.end() ? 1 : opset->second;
}

std::string describe(const NodeProto& node, const Opsets& opsets) {
  const std::string domain = canonical_domain(node.domain());
  return fmt::format("{} ({} {})", node.op_type(), domain.empty() ? "ai.onnx" : domain,
                     opset_of(node, opsets));
}

std::shared_ptr<const CustomOperator> find_custom(const CustomOperators& operators,
                                                  const NodeProto& node, const Opsets& opsets) {
  if (operators.empty() || is_control_flow(node) || is_sequence_operator(node)) return nullptr;
  const std::string domain = canonical_domain(node.domain());
  const int opset = opset_of(node, opsets);
  if (find_row(domain, node.op_type(), opset)) return nullptr;
  return find_operator(operators, domain, node.op_type(), opset);
}

const OpRow* row_of(const NodeProto& node, const std::string& name, const Opsets& opsets,
                    const FunctionTable& functions, const CustomOperators& operators,
                    UnsupportedReport& unsupported) {
  const std::string domain = canonical_domain(node.domain());
  if (domain.empty() && !opsets.contains(domain))
    fail(ErrorCode::kInvalidModel, "the model imports no opset of ai.onnx");
  if (const OpRow* row = find_row(domain, node.op_type(), opset_of(node, opsets))) return row;
  const bool other = find_row(domain, node.op_type()) != nullptr;
  const char* reason = other ? "not implemented for this opset" : kNotImplemented;
  // A model that ONNX Runtime saved at optimization level ALL is for the machine that saved it.
  if (domain == "com.microsoft.nchwc")
    reason = "a file that ONNX Runtime optimized for one machine; build from the original file";
  unsupported.add(describe(node, opsets), name, reason);
  report_bodies(node, name, opsets, functions, operators, unsupported);
  return nullptr;
}

void report_bodies(const NodeProto& node, const std::string& name, const Opsets& opsets,
                   const FunctionTable& functions, const CustomOperators& operators,
                   UnsupportedReport& unsupported) {
  const auto report = [&](const GraphProto& body) {
    for (int i = 0; i < body.node_size(); ++i) {
      const NodeProto& inner = body.node(i);
      const std::string inner_name = name + "/" + node_name(inner, i);
      if (is_control_flow(inner)) {
        report_bodies(inner, inner_name, opsets, functions, operators, unsupported);
      } else if (!find_function(functions, inner) && !is_sequence_operator(inner) &&
                 !find_custom(operators, inner, opsets)) {
        row_of(inner, inner_name, opsets, functions, operators, unsupported);
      }
    }
  };
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_g()) report(attribute.g());
    for (const GraphProto& body : attribute.graphs()) report(body);
  }
}

}  // namespace anneal
