// What a device has that does everything at once and needs no code made: the CPU.
#include "anneal/core/device.h"

#include <chrono>

#include "anneal/core/fail.h"

namespace anneal {

std::unique_ptr<Recording> Stream::record(const std::function<void()>&) { return nullptr; }

void Stream::play(const Recording&) { check(false, "this stream made the recording"); }

double Stream::microseconds(const std::function<void()>& work) {
  wait();
  const auto start = std::chrono::steady_clock::now();
  work();
  wait();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

std::vector<std::byte> Device::prepare_code(std::span<const std::byte>) { return {}; }

}  // namespace anneal
