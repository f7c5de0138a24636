// The common base of all devices of this backend.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "anneal/core/access_counts.h"
#include "anneal/core/device.h"
#include "anneal/kernels/cuda/api/driver.h"
#include "anneal/kernels/cuda/code/code.h"
#include "anneal/kernels/cuda/code/compiler.h"
#include "anneal/kernels/cuda/cost/device_spec.h"
#include "anneal/kernels/cuda/runtime/launch.h"

namespace anneal::cuda {

class GpuDevice : public Device {
 public:
  explicit GpuDevice(const DeviceSpec& spec) : spec_(spec) {}
  DeviceKind kind() const final { return DeviceKind::kCuda; }
  const DeviceSpec& spec() const { return spec_; }
  Code& code() { return code_; }

 private:
  const DeviceSpec spec_;
  Code code_;
};

// A place where functions run.
class GpuStream : public DeviceStream {
 public:
  virtual void launch(const Function& function, const Geometry& geometry, Arguments& arguments) = 0;
  virtual std::vector<FunctionCounts> take_counts() = 0;  // as in backend.h
  void set_spins(bool spins) { spins_ = spins; }

 protected:
  bool spins() const { return spins_; }

 private:
  bool spins_ = false;
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
