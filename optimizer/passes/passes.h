// All passes in the order in which they run: the list of pipeline.cc. The top of a pass's file
// describes it.
//
// X(name, kExact or kInexact, summary): an exact pass keeps the results' bits where
// docs/graph_text.md calls them equal.
#pragma once
#include "anneal/optimizer/pass.h"

#define ANNEAL_FOR_EACH_PASS(X)                                                                    \
  X(solve_sizes, kExact, "shape arithmetic becomes constants and size expressions")                \
  X(push_slice, kExact, "slices move before the layers that make constants too large to fold")     \
  X(fold_constants, kExact, "layers whose inputs are all constant are computed now")               \
  X(solve_indices, kExact, "gathers and scatters by constant indices become slices")               \
  X(widen_half, kInexact,                                                                          \
    "f16 and bf16 between layers become f32 where the target does not compute in them")            \
  X(inline_scalars, kExact, "inputs that are one number become literals of programs")              \
  X(remove_identity, kExact, "layers that change nothing go")                                      \
  X(fold_pad, kExact, "padding joins the convolution or pool that reads it")                       \
  X(pool_to_reduce, kInexact, "pools of one window over everything become reductions")             \
  X(split_conv_transpose, kExact, "transposed convolutions without overlap become convolutions")   \
  X(push_transpose, kExact, "transposes move to where they meet and vanish")                       \
  X(compose_moves, kExact, "reshapes and transposes in a row become as few as do the same")        \
  X(compose_slices, kExact, "slices and concats of each other become fewer")                       \
  X(merge_duplicates, kExact, "constants and layers that are there twice become one")              \
  X(fuse_normalize, kInexact, "normalizations that are written out become one layer")              \
  X(fuse_attention, kInexact, "two products with a softmax between them become one layer")         \
  X(fold_scale, kInexact, "constant factors of a layer's inputs or outputs go into its weights")   \
  X(equalize_channels, kExact,                                                                     \
    "cross-layer equalization: channels are scaled to similar magnitudes, by powers of two")       \
  X(insert_quantize, kInexact, "inputs of 8-bit layers are quantized by their calibrated ranges")  \
  X(unify_scales, kInexact, "operands of Concat and similar ops share one quantization scale")     \
  X(move_quantize, kInexact, "data-movement ops run on quantized values")                          \
  X(integer_products, kInexact, "products of dequantized operands are computed in integers")       \
  X(keep_quantized_weights, kExact, "products of few rows read their 8-bit weights as they are")   \
  X(lower_quantize, kExact, "quantizing and dequantizing become programs")                         \
  X(fuse_pointwise, kExact, "elementwise layers in a row become one")                              \
  X(fuse_softmax, kInexact, "a softmax computes its logarithm and its largest elements as well")   \
  X(push_reshape, kExact, "elementwise layers move to the normalization before a reshape")         \
  X(fuse_epilogue, kExact, "elementwise layers join the layer before them")                        \
  X(fuse_reduce_input, kExact, "elementwise layers join the reduction or softmax that reads them") \
  X(drop_rounding, kInexact, "16-bit roundings between joined operations go")                      \
  X(name_activations, kInexact, "activation functions take their shortest spelling")               \
  X(multiply_reciprocals, kInexact, "divisions by numbers become multiplications")                 \
  X(assign_precision, kInexact, "products compute in 16 bits, and what they read is stored so")    \
  X(merge_siblings, kExact, "convolutions and products of one input become one layer")

namespace anneal {

#define ANNEAL_DECLARE_PASS(name, exact, summary) bool name(Graph& graph, PassRun& run);
ANNEAL_FOR_EACH_PASS(ANNEAL_DECLARE_PASS)
#undef ANNEAL_DECLARE_PASS

}  // namespace anneal
