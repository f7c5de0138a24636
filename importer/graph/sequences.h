// Sequences of tensors whose length, and the positions that nodes name, are known while importing:
// the graph has their tensors and no sequence.
#pragma once
#include "anneal/importer/graph/scope.h"

namespace anneal {

// The output of a sequence operator, or of an Identity of a sequence. Fails as an operator's row
// does.
ScopedValue import_sequence(const anneal_onnx::NodeProto& proto, Node& node, Scope& scope,
                            UnsupportedReport& unsupported);

}  // namespace anneal
