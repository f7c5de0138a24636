// All passes. The top of a pass's file describes it; pipeline.cc has the order.
#pragma once
#include "anneal/optimizer/pass.h"

namespace anneal {

bool solve_sizes(Graph& graph, PassRun& run);
bool push_slice(Graph& graph, PassRun& run);
bool fold_constants(Graph& graph, PassRun& run);
bool solve_indices(Graph& graph, PassRun& run);
bool widen_half(Graph& graph, PassRun& run);
bool inline_scalars(Graph& graph, PassRun& run);
bool remove_identity(Graph& graph, PassRun& run);
bool fold_pad(Graph& graph, PassRun& run);
bool pool_to_reduce(Graph& graph, PassRun& run);
bool split_conv_transpose(Graph& graph, PassRun& run);
bool push_transpose(Graph& graph, PassRun& run);
bool compose_moves(Graph& graph, PassRun& run);
bool compose_slices(Graph& graph, PassRun& run);
bool merge_duplicates(Graph& graph, PassRun& run);
bool fuse_normalize(Graph& graph, PassRun& run);
bool equalize_channels(Graph& graph, PassRun& run);
bool insert_quantize(Graph& graph, PassRun& run);
bool unify_scales(Graph& graph, PassRun& run);
bool move_quantize(Graph& graph, PassRun& run);
bool integer_products(Graph& graph, PassRun& run);
bool keep_quantized_weights(Graph& graph, PassRun& run);
bool lower_quantize(Graph& graph, PassRun& run);
bool fuse_pointwise(Graph& graph, PassRun& run);
bool fuse_attention(Graph& graph, PassRun& run);
bool push_reshape(Graph& graph, PassRun& run);
bool fuse_epilogue(Graph& graph, PassRun& run);
bool fuse_reduce_input(Graph& graph, PassRun& run);
bool fuse_softmax(Graph& graph, PassRun& run);
bool fold_scale(Graph& graph, PassRun& run);
bool drop_rounding(Graph& graph, PassRun& run);
bool name_activations(Graph& graph, PassRun& run);
bool multiply_reciprocals(Graph& graph, PassRun& run);
bool assign_precision(Graph& graph, PassRun& run);
bool merge_siblings(Graph& graph, PassRun& run);

}  // namespace anneal
