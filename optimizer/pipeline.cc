// The passes, in the order in which they run.
#include "anneal/optimizer/passes.h"

namespace anneal {
namespace {

constexpr bool kExact = true, kInexact = false;

constexpr Pass kPipeline[] = {
    {"solve_sizes", "shape arithmetic becomes constants and size expressions", kExact, solve_sizes},
    {"push_slice", "slices move before the layers that make constants too large to fold", kExact,
     push_slice},
    {"fold_constants", "layers whose inputs are all constant are computed now", kExact,
     fold_constants},
    {"solve_indices", "gathers and scatters by constant indices become slices", kExact,
     solve_indices},
    {"widen_half",
     "f16 and bf16 between layers become f32 where the target does not compute in them", kInexact,
     widen_half},
    {"inline_scalars", "inputs that are one number become literals of programs", kExact,
     inline_scalars},
    {"remove_identity", "layers that change nothing go", kExact, remove_identity},
    {"fold_pad", "padding joins the convolution or pool that reads it", kExact, fold_pad},
    {"pool_to_reduce", "pools of one window over everything become reductions", kInexact,
     pool_to_reduce},
    {"split_conv_transpose", "transposed convolutions without overlap become convolutions", kExact,
     split_conv_transpose},
    {"push_transpose", "transposes move to where they meet and vanish", kExact, push_transpose},
    {"compose_moves", "reshapes and transposes in a row become as few as do the same", kExact,
     compose_moves},
    {"compose_slices", "slices and concats of each other become fewer", kExact, compose_slices},
    {"merge_duplicates", "constants and layers that are there twice become one", kExact,
     merge_duplicates},
    {"fuse_normalize", "normalizations that are written out become one layer", kInexact,
     fuse_normalize},
    {"fuse_attention", "two products with a softmax between them become one layer", kInexact,
     fuse_attention},
    {"fold_scale", "constant factors of a layer's inputs or outputs go into its weights", kInexact,
     fold_scale},
    {"equalize_channels",
     "cross-layer equalization: channels are scaled to similar magnitudes, by powers of two",
     kExact, equalize_channels},
    {"insert_quantize", "inputs of 8-bit layers are quantized by their calibrated ranges", kInexact,
     insert_quantize},
    {"unify_scales", "operands of Concat and similar ops share one quantization scale", kInexact,
     unify_scales},
    {"move_quantize", "data-movement ops run on quantized values", kInexact, move_quantize},
    {"integer_products", "products of dequantized operands are computed in integers", kInexact,
     integer_products},
    {"keep_quantized_weights", "products of few rows read their 8-bit weights as they are", kExact,
     keep_quantized_weights},
    {"lower_quantize", "quantizing and dequantizing become programs", kExact, lower_quantize},
    {"fuse_pointwise", "elementwise layers in a row become one", kExact, fuse_pointwise},
    {"fuse_softmax", "a softmax computes its logarithm and its largest elements as well", kInexact,
     fuse_softmax},
    {"push_reshape", "elementwise layers move to the normalization before a reshape", kExact,
     push_reshape},
    {"fuse_epilogue", "elementwise layers join the layer before them", kExact, fuse_epilogue},
    {"fuse_reduce_input", "elementwise layers join the reduction or softmax that reads them",
     kExact, fuse_reduce_input},
    {"drop_rounding", "16-bit roundings between joined operations go", kInexact, drop_rounding},
    {"name_activations", "activation functions take their shortest spelling", kInexact,
     name_activations},
    {"multiply_reciprocals", "divisions by numbers become multiplications", kInexact,
     multiply_reciprocals},
    {"assign_precision", "products compute in 16 bits, and what they read is stored so", kInexact,
     assign_precision},
    {"merge_siblings", "convolutions and products of one input become one layer", kExact,
     merge_siblings},
};

}  // namespace

std::span<const Pass> default_pipeline() { return kPipeline; }

}  // namespace anneal
