// The CUDA backend's kernels in order of preference: fast ones first, for each op the most general
// one last.
#include "anneal/kernels/cuda/backend.h"

#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/fused_product_kernel.h"
#include "anneal/kernels/cuda/runtime/device.h"
#include "anneal/kernels/cuda/runtime/gpu_device.h"

namespace anneal {
namespace {

constexpr KernelFamily kFamilies[] = {
    cuda::conv_depthwise_entries,  //
    cuda::conv_entries,            //
    cuda::matmul_entries,          //
    cuda::attention_entries,       //
    cuda::pool_entries,            //
    cuda::pointwise_entries,       //
    cuda::quantize_entries,        //
    cuda::reduce_entries,          //
    cuda::softmax_entries,         //
    cuda::normalize_entries,       //
    cuda::movement_entries,        //
    cuda::assembly_entries,        //
};

constexpr Backend kBackend{DeviceKind::kCuda, cuda::open_device, kFamilies};

}  // namespace

const Backend& cuda_backend() { return kBackend; }

bool is_cuda_target(std::string_view target) {
  return target.starts_with("sm_") || target == "cuda" || target.starts_with("cuda:") ||
         target == "emulated" || target == kCountingTarget;
}

std::vector<FunctionCounts> take_counts(Stream& stream) {
  auto* const mine = dynamic_cast<cuda::GpuStream*>(&stream);
  return mine == nullptr ? std::vector<FunctionCounts>() : mine->take_counts();
}

void set_spins(Stream& stream, bool spins) {
  if (auto* const mine = dynamic_cast<cuda::GpuStream*>(&stream)) mine->set_spins(spins);
}

void know_alignments(Kernel& kernel, std::span<const uint32_t> inputs,
                     std::span<const uint32_t> outputs) {
  if (auto* const product = dynamic_cast<cuda::FusedProductKernel*>(&kernel))
    product->know_alignments(inputs, outputs);
}

}  // namespace anneal
