// The kernel that runs one of cuDNN's plans.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "anneal/core/result.h"
#include "anneal/kernels/cuda/cudnn/layer_operations.h"
#include "anneal/kernels/kernel.h"

namespace anneal::cuda {

// The layer's graph, or why there is none.
using LayerOperations = std::function<Result<Operations>(EpilogueForm)>;

// With a tactic the plan in it, else cuDNN's first one. Refuses with a reason.
KernelResult make_cudnn_kernel(const Request& request, const LayerOperations& layer);
// Why a kernel of cuDNN cannot run on memory of these alignments, as know_alignments() in
// kernels/cuda/backend.h has them; empty if it can, and for other kernels.
std::string cudnn_misalignment(const Kernel& kernel, std::span<const uint32_t> inputs,
                               std::span<const uint32_t> outputs);
// The tactics of the best plans; none where make_cudnn_kernel() refuses.
std::vector<Tactic> cudnn_tactics(const Request& request, const LayerOperations& layer);

}  // namespace anneal::cuda
