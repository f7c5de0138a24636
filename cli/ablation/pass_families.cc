#include "anneal/cli/ablation/pass_families.h"

namespace anneal {
namespace {

constexpr std::string_view kFolding[] = {
    "solve_sizes", "fold_constants", "inline_scalars", "remove_identity",  "pool_to_reduce",
    "fold_scale",  "push_transpose", "compose_moves",  "merge_duplicates",
};
constexpr std::string_view kVertical[] = {
    "fold_pad",          "split_conv_transpose", "conv_transpose_to_phases",
    "fuse_normalize",    "fuse_attention",       "fuse_pointwise",
    "fuse_softmax",      "push_reshape",         "fuse_epilogue",
    "fuse_reduce_input", "name_activations",     "multiply_reciprocals",
};
constexpr std::string_view kHorizontal[] = {"merge_siblings"};
constexpr std::string_view kParts[] = {"push_slice", "solve_indices", "compose_slices"};
constexpr std::string_view kPrecision[] = {
    "dequantize_weights", "quantize_weights",  "gather_quantized_rows",  "widen_half",
    "equalize_channels",  "insert_quantize",   "unify_scales",           "move_quantize",
    "integer_products",   "drop_rounding",     "keep_quantized_weights", "lower_quantize",
    "assign_precision",   "keep_half_weights", "keep_cache_types",       "keep_exact_sums",
};

constexpr PassFamily kFamilies[] = {
    {.name = "constant folding and layout", .passes = kFolding, .has_layouts = true},
    {.name = "vertical fusion", .passes = kVertical},
    {.name = "horizontal fusion", .passes = kHorizontal},
    {.name = "concat and slice elimination", .passes = kParts, .has_placement = true},
    {.name = "8 and 16 bits of the model", .passes = kPrecision, .is_for_precision = true},
};

}  // namespace

std::span<const PassFamily> pass_families() { return kFamilies; }

}  // namespace anneal
