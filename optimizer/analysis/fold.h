// Folding: what only constants decide is computed while building.
#pragma once
#include "anneal/optimizer/pass.h"

namespace anneal {

enum class FoldDequantize : bool { kLater, kNow };

// Computes the layers of constants whose results are at most PassOptions::fold_budget_bytes, or are
// read by more than elementwise layers: as weights by a product, a convolution or a gather, say.
// Larger elementwise results that only elementwise layers read, or that would take many times the
// memory of their operands, stay layers: their readers compute them in passing. Nothing is computed
// that the memory limit forbids. kLater: a Dequantize of 8 and 16 bits stays, for passes that read
// its scales. Constants that bodies of control flow capture become the bodies' own.
bool fold_layers(Graph& graph, PassRun& run, FoldDequantize dequantize);

}  // namespace anneal
