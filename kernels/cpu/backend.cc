// The CPU's kernels in order of preference: fast ones first, for each op its reference last.
#include "anneal/kernels/cpu/backend.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/onednn/onednn.h"

namespace anneal {
namespace {

#define ANNEAL_FAMILY(name) cpu::name##_entries,
constexpr KernelFamily kFast[] = {ANNEAL_FAST_CPU_FAMILIES(ANNEAL_FAMILY)};
constexpr KernelFamily kReferences[] = {ANNEAL_REFERENCE_CPU_FAMILIES(ANNEAL_FAMILY)};
#undef ANNEAL_FAMILY

constexpr auto kFamilies = [] {
  std::array<KernelFamily, std::size(kFast) + std::size(kReferences)> all{};
  std::copy(std::begin(kReferences), std::end(kReferences),
            std::copy(std::begin(kFast), std::end(kFast), all.begin()));
  return all;
}();

std::string libraries(Isa isa) {
  return cpu::onednn::why_unavailable(isa).empty() ? "oneDNN " + cpu::onednn::version()
                                                   : "no oneDNN";
}

std::unique_ptr<Device> open_device(std::string_view target) {
  return cpu::open_device(target, libraries);
}

constexpr Backend kBackend{DeviceKind::kCpu, open_device, kFamilies};

constexpr Backend kReferenceBackend{DeviceKind::kCpu, open_device, kReferences};

}  // namespace

const Backend& cpu_backend() { return kBackend; }
const Backend& cpu_reference_backend() { return kReferenceBackend; }
void use_allocator(Device& device, std::shared_ptr<Allocator> allocator) {
  static_cast<cpu::CpuDevice&>(device).set_allocator(std::move(allocator));
}
bool cpu_computes_bf16(const Device& device) { return cpu::computes_bf16(cpu::isa_of(device)); }
bool cpu_has_vnni(const Device& device) { return cpu::isa_of(device) == Isa::kFull; }

}  // namespace anneal
