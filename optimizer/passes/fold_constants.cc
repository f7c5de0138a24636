// fold_constants: a layer whose inputs are all constants is computed now.
//
//   y = Pointwise(1, 2) program=add   =>   const y = 3
//   w = Pointwise(w16) program=f32($0); y = MatMul(x, w)   =>   y = MatMul(x, const), of any size
//
// A Dequantize of 8 and 16 bits stays, for integer_products and keep_quantized_weights to see;
// lower_quantize computes those that are left. An elementwise result that would be larger than
// PassOptions::fold_budget_bytes, and that elementwise layers read, stays too: they compute it in
// passing, and the engine file stays small. A transpose of a large matrix that only products read
// stays for compose_moves.
#include "anneal/optimizer/analysis/fold.h"
#include "anneal/optimizer/passes/passes.h"

namespace anneal {

bool fold_constants(Graph& graph, PassRun& run) {
  return fold_layers(graph, run, FoldDequantize::kLater);
}

}  // namespace anneal
