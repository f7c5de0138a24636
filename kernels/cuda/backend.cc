// The CUDA backend's kernels in order of preference: fast ones first, for each op the most general
// one last.
#include "anneal/kernels/cuda/backend.h"

#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/fused_product_kernel.h"
#include "anneal/kernels/cuda/runtime/device.h"
#include "anneal/kernels/cuda/runtime/gpu_device.h"

namespace anneal {
namespace {

#define ANNEAL_FAMILY(name) cuda::name##_entries,
constexpr KernelFamily kFamilies[] = {ANNEAL_CUDA_FAMILIES(ANNEAL_FAMILY)};
#undef ANNEAL_FAMILY

constexpr Backend kBackend{DeviceKind::kCuda, cuda::open_device, kFamilies};

}  // namespace

const Backend& cuda_backend() { return kBackend; }

bool is_cuda_target(std::string_view target) {
  return target.starts_with("sm_") || target == "cuda" || target.starts_with("cuda:") ||
         target == "emulated" || target == kCountingTarget;
}

std::vector<FunctionCounts> take_counts(DeviceStream& stream) {
  auto* const mine = dynamic_cast<cuda::GpuStream*>(&stream);
  return mine == nullptr ? std::vector<FunctionCounts>() : mine->take_counts();
}

void set_spins(DeviceStream& stream, bool spins) {
  if (auto* const mine = dynamic_cast<cuda::GpuStream*>(&stream)) mine->set_spins(spins);
}

void know_alignments(Kernel& kernel, std::span<const uint32_t> inputs,
                     std::span<const uint32_t> outputs) {
  if (auto* const product = dynamic_cast<cuda::FusedProductKernel*>(&kernel))
    product->know_alignments(inputs, outputs);
}

}  // namespace anneal
