// Defaults for a device that executes at once and compiles no code: the CPU.
#include "anneal/core/device.h"

#include <chrono>

#include "anneal/core/fail.h"

namespace anneal {

std::unique_ptr<Recording> DeviceStream::record(const std::function<void()>&) { return nullptr; }

void DeviceStream::begin_after(void*) { check(false, "the device has native streams"); }
void DeviceStream::end_before(void*) { check(false, "the device has native streams"); }

void DeviceStream::play(const Recording&) { check(false, "this stream made the recording"); }

double DeviceStream::microseconds(const std::function<void()>& work) {
  wait();
  const auto start = std::chrono::steady_clock::now();
  work();
  wait();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

std::vector<std::byte> Device::prepare_code(std::span<const std::byte>) { return {}; }

}  // namespace anneal
