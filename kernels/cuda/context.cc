#include "anneal/kernels/cuda/context.h"

#include <fmt/format.h>

#include <utility>

namespace anneal::cuda {

Context::Context(const Driver& driver, CUdevice device, std::string name, std::string (*explain)())
    : driver_(driver), device_(device), name_(std::move(name)), explain_(explain) {
  cuda::check(driver_, driver_.cuDevicePrimaryCtxRetain(&handle_, device_),
              fmt::format("opening {}", name_));
}

Context::~Context() { driver_.cuDevicePrimaryCtxRelease(device_); }

int Context::attribute(CUdevice_attribute attribute) const {
  int value = 0;
  cuda::check(driver_, driver_.cuDeviceGetAttribute(&value, attribute, device_),
              fmt::format("asking {} what it has", name_));
  return value;
}

void Context::check(CUresult result, std::string_view what) {
  if (result == CUDA_SUCCESS) return;
  std::string why = fmt::format("{} on {}: {}", what, name_, error_text(driver_, result));
  const std::string more = explain_ != nullptr ? explain_() : "";
  if (!more.empty()) why += ": " + more;
  if (is_sticky(result)) {
    const std::lock_guard lock(mutex_);
    if (!is_lost_) why_lost_ = why;
    is_lost_ = true;
  }
  fail(anneal::Code::kDevice, why);
}

Context::Current Context::enter() const {
  if (is_lost_) {
    const std::lock_guard lock(mutex_);
    fail(anneal::Code::kDevice,
         fmt::format("{} was lost; what uses it must end before it can be opened anew. It was lost "
                     "while {}",
                     name_, why_lost_));
  }
  return Current(*this);
}

}  // namespace anneal::cuda
