// The families of CUDA kernels: backend.cc's table lists them in order of preference.
#pragma once
#include <span>

#include "anneal/kernels/kernel.h"

namespace anneal::cuda {

std::span<const KernelEntry> assembly_entries();
std::span<const KernelEntry> attention_entries();
std::span<const KernelEntry> conv_depthwise_entries();
std::span<const KernelEntry> conv_entries();
std::span<const KernelEntry> matmul_entries();
std::span<const KernelEntry> movement_entries();
std::span<const KernelEntry> normalize_entries();
std::span<const KernelEntry> pointwise_entries();
std::span<const KernelEntry> pool_entries();
std::span<const KernelEntry> quantize_entries();
std::span<const KernelEntry> reduce_entries();
std::span<const KernelEntry> softmax_entries();

}  // namespace anneal::cuda
