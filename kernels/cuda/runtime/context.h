// A device's primary context, which other code in the process shares, and the results of calls on
// it.
#pragma once
#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "anneal/kernels/cuda/api/driver.h"

namespace anneal::cuda {

// As long as it lives, no call of this thread ends a capture that another library has begun. A
// capture in mode GLOBAL, which torch.cuda.graph() begins by default, is invalid as soon as any
// thread of the process allocates, frees, loads code or asks for an event, unless that thread's
// mode is RELAXED.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver) : driver_(driver) {
    exchanged_ = driver_.cuThreadExchangeStreamCaptureMode(&mode_) == CUDA_SUCCESS;
  }
  ~RelaxedCapture() {
    if (exchanged_) driver_.cuThreadExchangeStreamCaptureMode(&mode_);
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const Driver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // the thread's own, once exchanged
  bool exchanged_;
};

// Thread-safe. Streams, buffers and modules share it with their device, so that they may be
// destroyed in any order.
class Context {
 public:
  // Fails with kDevice. `name` is the name of the device in errors: "cuda:0 (NVIDIA A10)".
  // `explain`, if not null, adds details of this thread's last error.
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

  // As long as it lives, the context is this thread's current one, and no capture of another
  // library meets what is called. The context is pushed first and popped last: a driver may refuse
  // to exchange the mode of a thread without one, and pushing is no call that ends a capture.
  class Current {
   public:
    ~Current() {
      relaxed_.reset();
      CUcontext ignored = nullptr;
      if (entered_) driver_.cuCtxPopCurrent(&ignored);
    }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;
    explicit operator bool() const { return entered_; }

   private:
    friend class Context;
    struct ToFree {};
    explicit Current(Context& context);
    Current(const Context& context, ToFree)
        : driver_(context.driver_),
          entered_(driver_.cuCtxPushCurrent(context.handle_) == CUDA_SUCCESS) {
      if (entered_) relaxed_.emplace(driver_);
    }
    const Driver& driver_;
    const bool entered_ = true;
    std::optional<RelaxedCapture> relaxed_;
  };
  // Fails with kDevice if the device was lost, or if the driver cannot make the context current.
  [[nodiscard]] Current enter() { return Current(*this); }
  // For destructors, which cannot fail: the result is false if the context is not current. The
  // objects that they would free then belong to a destroyed context, and the same addresses and
  // handles may be those of another context by now.
  [[nodiscard]] Current enter_to_free() const { return {*this, Current::ToFree{}}; }

 private:
  std::string failure_text(CUresult result) const;  // "cuda:0 (NVIDIA A10): the error"
  void check_not_lost() const;
  void check_entered(CUresult result);

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
