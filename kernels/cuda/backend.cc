// The CUDA backend's kernels in order of preference: fast ones first, for each op the most general
// one last.
#include "anneal/kernels/cuda/backend.h"

#include <algorithm>

#include "anneal/kernels/cuda/code/code_image.h"
#include "anneal/kernels/cuda/cost/tactic_text.h"
#include "anneal/kernels/cuda/cudnn/cudnn_kernel.h"
#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/function_kernel.h"
#include "anneal/kernels/cuda/runtime/context.h"
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

std::optional<int> gpu_number(const Device& device) {
  const auto* const mine = dynamic_cast<const cuda::GpuDevice*>(&device);
  const auto context = mine == nullptr ? nullptr : mine->context();
  if (!context) return std::nullopt;
  return mine->takes_libraries() ? context->device() : -1;
}

void use_gpu_allocator(Device& device, std::shared_ptr<Allocator> allocator) {
  if (auto* const mine = dynamic_cast<cuda::GpuDevice*>(&device))
    mine->use_allocator(std::move(allocator));
}

void set_spins(DeviceStream& stream, bool spins) {
  if (auto* const mine = dynamic_cast<cuda::GpuStream*>(&stream)) mine->set_spins(spins);
}

std::string know_alignments(Kernel& kernel, std::span<const uint32_t> inputs,
                            std::span<const uint32_t> outputs) {
  if (auto* const mine = dynamic_cast<cuda::FunctionKernel*>(&kernel))
    mine->know_alignments(inputs, outputs);
  return cuda::cudnn_misalignment(kernel, inputs, outputs);
}

size_t second_level_cache(const Device& device) {
  const auto* const mine = dynamic_cast<const cuda::GpuDevice*>(&device);
  return mine == nullptr ? 0 : static_cast<size_t>(mine->spec().l2_bytes);
}

std::optional<unsigned> clock_mhz(const Device& device) {
  const auto* const mine = dynamic_cast<const cuda::GpuDevice*>(&device);
  return mine == nullptr ? std::nullopt : mine->clock_mhz();
}

bool is_card(const Device& device) {
  const auto* const mine = dynamic_cast<const cuda::GpuDevice*>(&device);
  return mine != nullptr && mine->takes_libraries() && mine->context() != nullptr;
}

void compile_in_parallel(Device& device, int threads) {
  if (auto* const mine = dynamic_cast<cuda::GpuDevice*>(&device))
    mine->compile_in_parallel(threads);
}

std::string tactic_text(std::string_view kernel, std::span<const std::byte> tactic) {
  return cuda::tactic_text(kernel, tactic);
}

std::vector<std::byte> joined_code(std::span<const std::byte> a, std::span<const std::byte> b) {
  std::vector<cuda::CodePart> parts = cuda::parts_of(a);
  for (cuda::CodePart& part : cuda::parts_of(b))
    if (std::ranges::find(parts, part) == parts.end()) parts.push_back(std::move(part));
  return cuda::code_image(parts);
}

}  // namespace anneal
