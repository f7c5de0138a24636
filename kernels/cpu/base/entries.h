// The families of CPU kernels, in order of preference: the lists of backend.cc.
#pragma once
#include <span>

#include "anneal/kernels/kernel.h"

// Fast kernels: each refuses what it does not do.
#define ANNEAL_FAST_CPU_FAMILIES(X) \
  X(copy)                           \
  X(pad)                            \
  X(index_tuple)                    \
  X(scatter)                        \
  X(tiled_pointwise)                \
  X(winograd_conv)                  \
  X(onednn_conv)                    \
  X(onednn_matmul)                  \
  X(onednn_pool)                    \
  X(rounded_matmul)                 \
  X(packed_matmul)                  \
  X(f64_matmul)                     \
  X(packed_attention)               \
  X(int8_depthwise)                 \
  X(direct_conv)                    \
  X(implicit_conv)                  \
  X(nhwc_conv)                      \
  X(depthwise_conv_transpose)       \
  X(columns_conv_transpose)         \
  X(phased_conv_transpose)          \
  X(nhwc_pool)                      \
  X(pool_indices)                   \
  X(nhwc_resize)                    \
  X(nhwc_sampled)                   \
  X(simd_norm)                      \
  X(simd_reduce)                    \
  X(arg_reduce)                     \
  X(cumulative)                     \
  X(topk)                           \
  X(decision_trees)                 \
  X(recurrent)                      \
  X(linear_attention)               \
  X(tiled_quantize)

// References: readable, and right for every type, stride and epilogue that infer() accepts.
#define ANNEAL_REFERENCE_CPU_FAMILIES(X) \
  X(reference_pointwise)                 \
  X(reference_conv)                      \
  X(reference_matmul)                    \
  X(reference_attention)                 \
  X(reference_pool)                      \
  X(reference_norm)                      \
  X(reference_reduce)                    \
  X(reference_movement)                  \
  X(reference_gather)                    \
  X(reference_resize)                    \
  X(reference_quantize)                  \
  X(reference_recurrent)                 \
  X(reference_select)                    \
  X(reference_nms)                       \
  X(reference_grid_sample)               \
  X(reference_roi_align)                 \
  X(reference_custom)

namespace anneal::cpu {

#define ANNEAL_DECLARE_FAMILY(name) std::span<const KernelEntry> name##_entries();
ANNEAL_FAST_CPU_FAMILIES(ANNEAL_DECLARE_FAMILY)
ANNEAL_REFERENCE_CPU_FAMILIES(ANNEAL_DECLARE_FAMILY)
#undef ANNEAL_DECLARE_FAMILY

}  // namespace anneal::cpu
