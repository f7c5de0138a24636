// What all devices of this backend have.
#pragma once
#include <memory>
#include <string>

#include "anneal/kernels/cuda/compiler.h"
#include "anneal/kernels/cuda/device.h"
#include "anneal/kernels/cuda/driver.h"

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
class GpuStream : public Stream {
 public:
  virtual void launch(const Function& function, const Geometry& geometry, Arguments& arguments) = 0;
};

// A device behind a driver. What it is given by reference lives as long as the process.
struct DriverDevice {
  const Driver& driver;
  const Compiler& compiler;
  int ordinal = 0;
  std::string name;                    // of the device, in errors; the driver's name of it is added
  bool keeps_images = true;            // whether engine files keep what the compiler makes
  std::string target{};                // empty: that of its architecture
  std::string (*explain)() = nullptr;  // tells more of this thread's last error, or ""
};
// Fails with kDevice.
std::unique_ptr<Device> open_driver_device(const DriverDevice& what);

}  // namespace anneal::cuda
