// A device's primary context, which is shared with everything else in the process that uses the
// device, and what calls on it came to.
#pragma once
#include <atomic>
#include <mutex>
#include <string>
#include <string_view>

#include "anneal/kernels/cuda/driver.h"

namespace anneal::cuda {

// Thread-safe. Streams, buffers and modules share it with their device, so that any of them may end
// first.
class Context {
 public:
  // Fails with kDevice. `name` is how errors call the device: "cuda:0 (NVIDIA A10)". `explain`, if
  // not null, tells more of this thread's last error than the driver can.
  Context(const Driver& driver, CUdevice device, std::string name, std::string (*explain)());
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Driver& driver() const { return driver_; }
  CUdevice device() const { return device_; }
  const std::string& name() const { return name_; }
  int attribute(CUdevice_attribute attribute) const;

  // Fails with kDevice: "WHAT on cuda:0 (...): CUDA_ERROR_...". A sticky error means that the
  // device is lost: enter() fails from then on.
  void check(CUresult result, std::string_view what);

  // Makes the context this thread's current one for as long as the object lives.
  class Current {
   public:
    explicit Current(const Context& context) : context_(context) {
      entered_ = context.driver_.cuCtxPushCurrent(context.handle_) == CUDA_SUCCESS;
    }
    ~Current() {
      CUcontext ignored = nullptr;
      if (entered_) context_.driver_.cuCtxPopCurrent(&ignored);
    }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    const Context& context_;
    bool entered_;
  };
  // Fails with kDevice if the device was lost.
  [[nodiscard]] Current enter() const;

 private:
  const Driver& driver_;
  const CUdevice device_;
  const std::string name_;
  std::string (*const explain_)();
  CUcontext handle_ = nullptr;
  std::atomic<bool> is_lost_ = false;
  mutable std::mutex mutex_;
  std::string why_lost_;
};

}  // namespace anneal::cuda
