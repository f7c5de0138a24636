// The CPU as a Device, with the properties that its kernels need beyond core/device.h.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "anneal/core/device.h"
#include "anneal/core/isa.h"

namespace anneal::cpu {

class CpuDevice final : public Device {
 public:
  // libraries: names the libraries whose kernels this device uses; may be null.
  CpuDevice(std::string target, Isa isa, std::string (*libraries)(Isa))
      : target_(std::move(target)), isa_(isa), libraries_(libraries) {}
  Isa isa() const { return isa_; }  // the most that kernels of this device may use

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string target() const override { return target_; }
  std::string description() const override;
  std::string machine() const override;
  std::unique_ptr<Buffer> allocate(size_t bytes) override;
  std::shared_ptr<Allocator> allocator() const override { return allocator_; }
  void set_allocator(std::shared_ptr<Allocator> allocator) { allocator_ = std::move(allocator); }
  std::unique_ptr<DeviceStream> make_stream() override;
  void copy(std::byte* to, const std::byte* from, size_t bytes, DeviceStream& stream) override;

 private:
  std::string target_;
  Isa isa_;
  std::string (*libraries_)(Isa);
  std::shared_ptr<Allocator> allocator_ = {};  // null: the system
};

// Of the device that a request of this backend names.
inline Isa isa_of(const Device& device) { return static_cast<const CpuDevice&>(device).isa(); }

std::string processor_model();  // of this machine, as Linux names it

// Whether products of bf16 are computed in bf16, with AVX512_BF16; elsewhere in f32.
bool computes_bf16(Isa isa);

// "cpu" or "cpu:ISA". Fails with kInvalidArgument if it is neither, with kDevice if this CPU (or
// ANNEAL_MAX_ISA) does not allow that much.
std::unique_ptr<Device> open_device(std::string_view target, std::string (*libraries)(Isa));

}  // namespace anneal::cpu
