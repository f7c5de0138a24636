// The only name that libanneal_emulated.so exports.
#include "anneal/core/version.h"
#include "anneal/kernels/cuda/emulated/driver.h"
#include "anneal/kernels/cuda/emulated/host_compiler.h"
#include "anneal/kernels/cuda/runtime/emulated_gpu.h"

// Null if the caller is of another version: its table may have other members.
extern "C" const anneal::cuda::EmulatedGpu* anneal_emulated_gpu(std::string_view version);

const anneal::cuda::EmulatedGpu* anneal_emulated_gpu(std::string_view version) {
  using namespace anneal::cuda;
  static const EmulatedGpu gpu{.driver = emulated_driver(),
                               .compiler = host_compiler(false),
                               .counting_compiler = host_compiler(true),
                               .fault = emulated_fault,
                               .take_counts = emulated_counts,
                               .limit_access = emulated_limit_access,
                               .live_allocations = emulated_live_allocations,
                               .bus_bytes = emulated_bus_bytes};
  return version == anneal::version() ? &gpu : nullptr;
}
