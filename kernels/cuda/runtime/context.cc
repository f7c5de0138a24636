#include "anneal/kernels/cuda/runtime/context.h"

#include <fmt/format.h>

#include <utility>

namespace anneal::cuda {
namespace {

// CUDA's description of CUDA_ERROR_ILLEGAL_ADDRESS and its kin: "This leaves the process in an
// inconsistent state and any further CUDA work will return the same error. To continue using CUDA,
// the process must be terminated and relaunched."
constexpr std::string_view kRemedy =
    "restart this process, for after such a fault CUDA refuses it the device";

}  // namespace

Context::Context(const Driver& driver, CUdevice device, std::string name, std::string (*explain)())
    : driver_(driver), device_(device), name_(std::move(name)), explain_(explain) {
  const RelaxedCapture relaxed(driver_);
  const CUresult result = driver_.cuDevicePrimaryCtxRetain(&handle_, device_);
  if (result != CUDA_SUCCESS) fail(ErrorCode::kDevice, "opening " + failure_text(result));
}

Context::~Context() {
  const RelaxedCapture relaxed(driver_);
  driver_.cuDevicePrimaryCtxRelease(device_);
}

int Context::attribute(CUdevice_attribute attribute) const {
  int value = 0;
  cuda::check(driver_, driver_.cuDeviceGetAttribute(&value, attribute, device_),
              fmt::format("asking {} what it has", name_));
  return value;
}

std::string Context::failure_text(CUresult result) const {
  const std::string more = explain_ != nullptr ? explain_() : "";
  return fmt::format("{}: {}{}{}", name_, error_text(driver_, result), more.empty() ? "" : ": ",
                     more);
}

void Context::check(CUresult result, std::string_view what) {
  if (result == CUDA_SUCCESS) return;
  std::string why = fmt::format("{} on {}", what, failure_text(result));
  if (is_sticky(result)) {
    const std::lock_guard lock(mutex_);
    if (!is_lost_) why_lost_ = why;
    is_lost_ = true;
    why += fmt::format("; {}", kRemedy);
  }
  fail(ErrorCode::kDevice, why);
}

Context::Current::Current(Context& context) : driver_(context.driver_) {
  context.check_not_lost();
  context.check_entered(driver_.cuCtxPushCurrent(context.handle_));
  relaxed_.emplace(driver_);
}

void Context::check_not_lost() const {
  if (!is_lost_) return;
  const std::lock_guard lock(mutex_);
  fail(ErrorCode::kDevice,
       fmt::format("{} was lost; {}. It was lost while {}", name_, kRemedy, why_lost_));
}

void Context::check_entered(CUresult result) {
  if (result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED)
    fail(
        ErrorCode::kDevice,
        fmt::format("the context of {} was destroyed ({}): something in this process has reset the "
                    "device, as cudaDeviceReset() does; load the engine anew",
                    name_, error_text(driver_, result)));
  check(result, "making its context current to this thread");
}

}  // namespace anneal::cuda
