// The common base of all devices of this backend.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <typeindex>
#include <unordered_map>
#include <vector>

#include "anneal/core/access_counts.h"
#include "anneal/core/device.h"
#include "anneal/kernels/cuda/api/driver.h"
#include "anneal/kernels/cuda/code/code.h"
#include "anneal/kernels/cuda/code/compiler.h"
#include "anneal/kernels/cuda/cost/device_spec.h"
#include "anneal/kernels/cuda/runtime/launch.h"

namespace anneal::cuda {

class Context;

class GpuDevice : public Device {
 public:
  explicit GpuDevice(const DeviceSpec& spec) : spec_(spec) {}
  DeviceKind kind() const final { return DeviceKind::kCuda; }
  const DeviceSpec& spec() const { return spec_; }
  Code& code() { return code_; }

  // Whether NVIDIA's libraries run on it, or can be asked about it: not on the emulated device.
  virtual bool takes_libraries() const { return false; }
  // Of a card; null of a device to build for.
  virtual std::shared_ptr<Context> context() const { return nullptr; }
  // Where allocate() takes memory from; null: from the driver.
  void use_allocator(std::shared_ptr<Allocator> allocator) {
    gpu_allocator_ = std::move(allocator);
  }
  // As in backend.h.
  virtual std::optional<unsigned> clock_mhz() const { return std::nullopt; }
  virtual void compile_in_parallel(int /*threads*/) {}
  // What a library keeps for this device, a handle say: one object of each type, made at first use
  // by `make`, destroyed with the device. Thread-safe.
  template <class T>
  T& of_library(const std::function<std::shared_ptr<T>()>& make) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<void>& object = of_libraries_[typeid(T)];
    if (!object) object = make();
    return *static_cast<T*>(object.get());
  }

 protected:
  const std::shared_ptr<Allocator>& gpu_allocator() const { return gpu_allocator_; }

 private:
  const DeviceSpec spec_;
  Code code_;
  std::shared_ptr<Allocator> gpu_allocator_;
  std::mutex mutex_;
  std::unordered_map<std::type_index, std::shared_ptr<void>> of_libraries_;
};

// A place where functions run.
class GpuStream : public DeviceStream {
 public:
  virtual void launch(const Function& function, const Geometry& geometry, Arguments& arguments) = 0;
  virtual void copy(std::byte* to, const std::byte* from, size_t bytes) = 0;  // as Device::copy()
  // Lets a library put work on this stream, in its context, also while the stream records.
  virtual void call(const std::function<void(CUstream)>& work) = 0;
  virtual std::vector<FunctionCounts> take_counts() = 0;  // as in backend.h
  // As found_memory() of device.h.
  std::byte* found_memory(Device& device, size_t bytes) {
    if (!found_memory_ || found_memory_->size() < bytes) {
      if (found_memory_) wait();
      found_memory_.reset();
      found_memory_ = device.allocate(bytes);
    }
    return found_memory_->data();
  }
  void set_spins(bool spins) { spins_ = spins; }

 protected:
  bool spins() const { return spins_; }

 private:
  bool spins_ = false;
  std::unique_ptr<Buffer> found_memory_;
};

using TakeCounts = std::vector<FunctionCounts>(CUstream);

// A device behind a driver. Arguments that it takes by reference live as long as the process.
struct DriverDevice {
  const Driver& driver;
  const Compiler& compiler;
  int ordinal = 0;
  std::string name;                    // of the device, in errors; the driver's name of it is added
  bool keeps_images = true;            // whether engine files keep what the compiler makes
  std::string target{};                // empty: that of its architecture
  std::string (*explain)() = nullptr;  // adds details of this thread's last error, or ""
  TakeCounts* take_counts = nullptr;   // as in backend.h; null: nothing is counted
  // As Device::limit_access(), in the context that is current; null: accesses are not checked.
  CUresult (*limit_access)(CUdeviceptr begin, size_t bytes) = nullptr;
};
// Fails with kDevice.
std::unique_ptr<Device> open_driver_device(const DriverDevice& what);

}  // namespace anneal::cuda
