// The number formats that a model computes with. They decide how exact its outputs must be.
#pragma once
#include "anneal/engine/compare/compare_outputs.h"
#include "anneal/engine/plan.h"
#include "anneal/graph/graph.h"

namespace anneal {

// graph: as imported, before optimization. kQuantized if a Conv, ConvTranspose or MatMul depends on
// a Dequantize and a Quantize depends on it; else kFloat if any value is a float.
Arithmetic arithmetic_of(const Graph& graph);
// The same, as far as a plan shows it: kQuantized if it has such a layer and quantizes at all.
Arithmetic arithmetic_of(const Plan& plan);

}  // namespace anneal
