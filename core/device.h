// What the engine knows about a machine. The CPU and CUDA versions live beside their kernels.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace anneal {

enum class DeviceKind : uint8_t { kCpu = 1, kCuda = 2 };

// Work in order. wait() returns when all of it is done.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void wait() = 0;
};

// Device memory, at least 64-byte aligned. data() may not be readable from the host.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual std::byte* data() = 0;
  virtual size_t size() const = 0;
};

// Thread-safe.
class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  // What a plan made for this device is bound to, and what it is matched against: "cpu",
  // "cpu:avx512_vnni", "sm_90".
  virtual std::string target() const = 0;
  virtual std::string description() const = 0;  // for people: "Intel Xeon, AVX-512, 2 cores"
  virtual std::unique_ptr<Buffer> allocate(size_t bytes) = 0;
  virtual std::unique_ptr<Stream> make_stream() = 0;
  virtual void copy(std::byte* to, const std::byte* from, size_t bytes, Stream& stream) = 0;
};

}  // namespace anneal
