#include "anneal/kernels/cpu/base/device.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

#include "anneal/core/fail.h"
#include "anneal/core/parallel.h"

namespace anneal::cpu {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kMost = size_t{1} << 39;  // no sum of sizes that is right needs more

class HostBuffer final : public Buffer {
 public:
  HostBuffer(size_t bytes, std::shared_ptr<Allocator> allocator)
      : allocator_(std::move(allocator)), size_(bytes) {
    if (bytes > kMost)
      fail(ErrorCode::kOutOfMemory, fmt::format("cannot allocate {} bytes", bytes));
    void* const memory = allocator_ ? allocator_->allocate(whole(), kAlignment)
                                    : std::aligned_alloc(kAlignment, whole());
    data_ = static_cast<std::byte*>(memory);
    if (!data_)
      fail(ErrorCode::kOutOfMemory,
           fmt::format("cannot allocate {} bytes of memory{}", bytes,
                       allocator_ ? ": the application's allocator has none" : ""));
  }
  ~HostBuffer() override {
    if (allocator_)
      allocator_->release(data_, whole());
    else
      std::free(data_);
  }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  std::byte* data() override { return data_; }
  size_t size() const override { return size_; }

 private:
  size_t whole() const { return (size_ / kAlignment + 1) * kAlignment; }

  std::shared_ptr<Allocator> allocator_;
  std::byte* data_ = nullptr;
  size_t size_;
};

// Every launch has ended when it returns.
class HostStream final : public DeviceStream {
 public:
  void wait() override {}
};

std::optional<Isa> isa_from_name(std::string_view text) {
  for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kFull})
    if (to_string(isa) == text) return isa;
  return std::nullopt;
}

}  // namespace

std::string processor_model() {
  std::ifstream lines("/proc/cpuinfo");
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "x86-64";
}

bool computes_bf16(Isa isa) {
  static const bool has = [] {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512bf16") != 0;
  }();
  return isa == Isa::kFull && has;
}

std::string CpuDevice::description() const {
  return fmt::format("x86-64, {} instructions, {} cores", to_string(isa_), hardware_threads());
}

// "AMD EPYC 9B45, full, oneDNN 2.6.3"
std::string CpuDevice::machine() const {
  const std::string processor = fmt::format("{}, {}", processor_model(), to_string(isa_));
  return libraries_ == nullptr ? processor : fmt::format("{}, {}", processor, libraries_(isa_));
}

std::unique_ptr<Buffer> CpuDevice::allocate(size_t bytes) {
  return std::make_unique<HostBuffer>(bytes, allocator_);
}

std::unique_ptr<DeviceStream> CpuDevice::make_stream() { return std::make_unique<HostStream>(); }

void CpuDevice::copy(std::byte* to, const std::byte* from, size_t bytes, DeviceStream&) {
  if (bytes > 0) std::memmove(to, from, bytes);
}

std::unique_ptr<Device> open_device(std::string_view target, std::string (*libraries)(Isa)) {
  if (target == "cpu") return std::make_unique<CpuDevice>("cpu", current_isa(), libraries);
  constexpr std::string_view kPrefix = "cpu:";
  const auto isa = target.substr(0, kPrefix.size()) == kPrefix
                       ? isa_from_name(target.substr(kPrefix.size()))
                       : std::nullopt;
  if (!isa) {
    fail(ErrorCode::kInvalidArgument,
         fmt::format("\"{}\" is no CPU target: use cpu, or cpu:baseline, cpu:avx2, cpu:avx512, "
                     "cpu:full",
                     target));
  }
  if (*isa > current_isa()) {
    fail(ErrorCode::kDevice,
         fmt::format(
             "target \"{}\" needs more instruction sets: this CPU with ANNEAL_MAX_ISA={} allows {}",
             target, to_string(max_isa()), to_string(current_isa())));
  }
  return std::make_unique<CpuDevice>(std::string(target), *isa, libraries);
}

}  // namespace anneal::cpu
