// Values whose rank an If leaves open: a number, or a tensor of one element.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "anneal/importer/graph/import_context.h"
#include "anneal/importer/graph/scope.h"
#include "anneal/importer/ops/rows.h"

namespace anneal {

// Whether an If leaves the rank of the value open, which has been reported then: `what` of `name`
// needs to know it.
bool refuse_open_rank(ValueId value, const std::string& what, const std::string& name,
                      const std::string& where, const Scope& scope, ImportContext& context);

// The If that leaves the rank of an input open, if the node's results are numbers because of that;
// "" if there is none; nullopt if the rank makes a difference, which has been reported.
std::optional<std::string> find_open_rank(const anneal_onnx::NodeProto& proto, const OpRow* row,
                                          const std::string& name,
                                          const std::vector<ValueId>& inputs, const Scope& scope,
                                          ImportContext& context);

}  // namespace anneal
