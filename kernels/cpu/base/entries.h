// The kernel files of the CPU, one function each; backend.cc puts them in order of preference.
#pragma once
#include <span>

#include "anneal/kernels/kernel.h"

namespace anneal::cpu {

// Fast kernels: each refuses what it does not do.
std::span<const KernelEntry> tiled_pointwise_entries();
std::span<const KernelEntry> winograd_conv_entries();
std::span<const KernelEntry> onednn_conv_entries();
std::span<const KernelEntry> onednn_matmul_entries();
std::span<const KernelEntry> onednn_pool_entries();
std::span<const KernelEntry> packed_matmul_entries();
std::span<const KernelEntry> packed_attention_entries();
std::span<const KernelEntry> int8_depthwise_entries();
std::span<const KernelEntry> direct_conv_entries();
std::span<const KernelEntry> implicit_conv_entries();
std::span<const KernelEntry> nhwc_conv_entries();
std::span<const KernelEntry> phased_conv_transpose_entries();
std::span<const KernelEntry> nhwc_pool_entries();
std::span<const KernelEntry> nhwc_resize_entries();
std::span<const KernelEntry> simd_norm_entries();
std::span<const KernelEntry> simd_reduce_entries();
std::span<const KernelEntry> arg_reduce_entries();
std::span<const KernelEntry> topk_entries();
std::span<const KernelEntry> tiled_quantize_entries();
std::span<const KernelEntry> recurrent_entries();
std::span<const KernelEntry> copy_entries();
std::span<const KernelEntry> pad_entries();
std::span<const KernelEntry> index_tuple_entries();

// References: readable, and right for every type, stride and epilogue that infer() accepts.
std::span<const KernelEntry> reference_pointwise_entries();
std::span<const KernelEntry> reference_conv_entries();
std::span<const KernelEntry> reference_matmul_entries();
std::span<const KernelEntry> reference_attention_entries();
std::span<const KernelEntry> reference_pool_entries();
std::span<const KernelEntry> reference_norm_entries();
std::span<const KernelEntry> reference_reduce_entries();
std::span<const KernelEntry> reference_movement_entries();
std::span<const KernelEntry> reference_gather_entries();
std::span<const KernelEntry> reference_resize_entries();
std::span<const KernelEntry> reference_quantize_entries();
std::span<const KernelEntry> reference_recurrent_entries();
std::span<const KernelEntry> reference_select_entries();
std::span<const KernelEntry> reference_nms_entries();
std::span<const KernelEntry> reference_grid_sample_entries();
std::span<const KernelEntry> reference_roi_align_entries();

}  // namespace anneal::cpu
