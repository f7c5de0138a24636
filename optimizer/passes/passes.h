// All passes in the order in which they run: the list of pipeline.cc. The top of a pass's file
// describes it.
//
// X(name, kExact or kInexact, summary): an exact pass keeps the results' bits where
// docs/graph_text.md calls them equal.
#pragma once
#include "anneal/optimizer/pass.h"

#define ANNEAL_FOR_EACH_PASS(X)                                                                   \
  X(solve_sizes, kExact, "shape arithmetic becomes constants and size expressions")               \
  X(dequantize_weights, kExact,                                                                   \
    "packed weights are dequantized for targets without a kernel that multiplies by them")        \
  X(push_slice, kExact, "slices move before layers whose constant results are too large to fold") \
  X(fold_constants, kExact, "layers with only constant inputs are computed at build time")        \
  X(solve_indices, kExact, "gathers and scatters by constant indices become slices")              \
  X(quantize_weights, kInexact,                                                                   \
    "weights of products and embeddings are stored in integers of 8 or 4 bits")                   \
  X(gather_quantized_rows, kExact,                                                                \
    "rows of a quantized table are gathered before they are dequantized")                         \
  X(widen_half, kInexact,                                                                         \
    "f16 and bf16 between layers become f32 where the target does not compute in them")           \
  X(inline_scalars, kExact, "scalar constants become literals of elementwise programs")           \
  X(remove_identity, kExact, "layers without effect are removed")                                 \
  X(fold_pad, kExact, "padding is merged into the convolution or pooling that reads it")          \
  X(pool_to_reduce, kInexact, "global poolings become reductions")                                \
  X(split_conv_transpose, kExact, "transposed convolutions without overlap become convolutions")  \
  X(push_transpose, kExact, "transposes move through layers until they cancel")                   \
  X(compose_moves, kExact, "chains of reshapes and transposes are shortened")                     \
  X(compose_slices, kExact, "chains of slices and concats are shortened")                         \
  X(merge_duplicates, kExact, "equal constants and equal layers are merged")                      \
  X(fuse_normalize, kInexact, "normalizations written as several layers become one layer")        \
  X(fuse_attention, kInexact,                                                                     \
    "two products with a softmax between them become one attention layer")                        \
  X(fold_scale, kInexact,                                                                         \
    "constant factors of a layer's inputs or outputs are folded into its weights")                \
  X(equalize_channels, kExact,                                                                    \
    "cross-layer equalization: channels are scaled to similar magnitudes, by powers of two")      \
  X(insert_quantize, kInexact, "inputs of 8-bit layers are quantized by their calibrated ranges") \
  X(unify_scales, kInexact, "operands of Concat and similar ops share one quantization scale")    \
  X(move_quantize, kInexact, "data-movement ops run on quantized values")                         \
  X(integer_products, kInexact, "products of dequantized operands are computed in integers")      \
  X(keep_quantized_weights, kExact,                                                               \
    "products of few rows read weights of 8 bits or fewer without expanding them")                \
  X(lower_quantize, kExact, "Quantize and Dequantize layers become elementwise programs")         \
  X(fuse_pointwise, kExact, "chains of elementwise layers become one layer")                      \
  X(fuse_softmax, kInexact, "a Log or TopK after a softmax is fused with it")                     \
  X(push_reshape, kExact, "elementwise layers move before a reshape, next to the normalization")  \
  X(fuse_epilogue, kExact, "elementwise layers become epilogues of the layer before them")        \
  X(conv_transpose_to_phases, kInexact,                                                           \
    "transposed convolutions with overlap become convolutions for tensor cores")                  \
  X(fuse_reduce_input, kExact,                                                                    \
    "elementwise layers are fused into the reduction or softmax that reads them")                 \
  X(drop_rounding, kInexact, "16-bit roundings between fused operations are removed")             \
  X(name_activations, kInexact, "activation functions are written in their shortest form")        \
  X(multiply_reciprocals, kInexact, "divisions by constants become multiplications")              \
  X(assign_precision, kInexact,                                                                   \
    "products compute in 16 bits, and their operands are stored in 16 bits")                      \
  X(merge_siblings, kExact, "convolutions and products with the same input become one layer")     \
  X(keep_half_weights, kExact, "products of f32 read weights of f16 and bf16 in 16 bits")         \
  X(keep_cache_types, kInexact, "attention of f32 reads caches of f16, bf16, i8 in their type")   \
  X(keep_exact_sums, kExact,                                                                      \
    "sums of whole numbers that are rounded or compared are not computed by Winograd's algorithm")

namespace anneal {

#define ANNEAL_DECLARE_PASS(name, exact, summary) bool name(Graph& graph, PassRun& run);
ANNEAL_FOR_EACH_PASS(ANNEAL_DECLARE_PASS)
#undef ANNEAL_DECLARE_PASS

}  // namespace anneal
