// Gemm, for operators that contain it.
#pragma once
#include "anneal/importer/ops/expression.h"

namespace anneal {

// The result of a node with Gemm's inputs and attributes. activation: of each element; may be null.
Outputs gemm(Node& node, const FunctionRef<Expression(Expression)>* activation);

}  // namespace anneal
