// Which operator a node names: a row of the table, a function of the model, control flow, or a
// sequence operator.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <tuple>

#include "anneal/graph/op/custom_operator.h"
#include "anneal/importer/node/unsupported.h"
#include "anneal/importer/ops/rows.h"

namespace anneal_onnx {
class FunctionProto;
class ModelProto;
class NodeProto;
}  // namespace anneal_onnx

namespace anneal {

using Opsets = std::map<std::string, int, std::less<>>;  // by domain
// By domain, name and overload.
using FunctionTable =
    std::map<std::tuple<std::string, std::string, std::string>, const anneal_onnx::FunctionProto*>;

std::string canonical_domain(const std::string& domain);  // "" of ai.onnx
// Fail with kInvalidModel, and with kUnsupported for an opset of ai.onnx that is newer than known.
Opsets opsets_of(const anneal_onnx::ModelProto& model);
Opsets opsets_of(const anneal_onnx::FunctionProto& function);
// Fails with kInvalidModel if two functions have the same key.
FunctionTable functions_of(const anneal_onnx::ModelProto& model);
// null if the node calls no function.
const anneal_onnx::FunctionProto* find_function(const FunctionTable& functions,
                                                const anneal_onnx::NodeProto& node);

bool is_control_flow(const anneal_onnx::NodeProto& node);
bool is_sequence_operator(const anneal_onnx::NodeProto& node);
int opset_of(const anneal_onnx::NodeProto& node, const Opsets& opsets);
// "Conv (ai.onnx 17)", for the report.
std::string describe(const anneal_onnx::NodeProto& node, const Opsets& opsets);

// The operator from outside that the node names; null if there is none, or if a row has the node.
std::shared_ptr<const CustomOperator> find_custom(const CustomOperators& operators,
                                                  const anneal_onnx::NodeProto& node,
                                                  const Opsets& opsets);

// null if there is none, which is reported together with the operators in the node's bodies that
// have none.
const OpRow* row_of(const anneal_onnx::NodeProto& node, const std::string& name,
                    const Opsets& opsets, const FunctionTable& functions,
                    const CustomOperators& operators, UnsupportedReport& unsupported);
// Reports the operators in the node's bodies that Anneal does not have.
void report_bodies(const anneal_onnx::NodeProto& node, const std::string& name,
                   const Opsets& opsets, const FunctionTable& functions,
                   const CustomOperators& operators, UnsupportedReport& unsupported);

}  // namespace anneal
