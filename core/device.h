// Device and DeviceStream: the interface of the engine to a machine. The CPU and CUDA versions are
// beside their kernels.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "anneal/core/application/hooks.h"

namespace anneal {

enum class DeviceKind : uint8_t { kCpu = 1, kCuda = 2 };

// Work taken down to be put on its stream again, at the same addresses.
class Recording {
 public:
  virtual ~Recording() = default;
};

// Work in order. Queued work may run later: host memory that a copy reads or writes must stay valid
// until wait(). wait() returns when all work is done, and fails with kDevice if some of it failed.
// One thread at a time.
class DeviceStream {
 public:
  virtual ~DeviceStream() = default;
  virtual void wait() = 0;
  // Takes down what `work` puts on this stream instead of doing it. Null, with nothing called,
  // where a device has no such thing.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& work);
  virtual void play(const Recording& recording);  // REQUIRES: one of this stream
  // The time that `work` takes on this stream, alone; waits for it.
  virtual double microseconds(const std::function<void()>& work);
  // What an application calls the stream; null where a device has no such streams.
  virtual void* native() const { return nullptr; }
  // What is put on this stream from now on comes after the work that is on `other`, a native()
  // handle; what is put on `other` from now on comes after the work that is on this stream.
  // REQUIRES: a device with native streams
  virtual void begin_after(void* other);
  virtual void end_before(void* other);
};

// Device memory, or host memory for copies, at least 64-byte aligned. data() may not be readable
// from the host.
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
  // The name that plans are built for and matched against: "cpu", "cpu:avx512_vnni", "sm_90".
  virtual std::string target() const = 0;
  virtual std::string description() const = 0;  // for people: "Intel Xeon, AVX-512, 2 cores"
  // The machine for which times measured on this device hold for: the processor's model, the
  // instruction set, and the libraries that kernels call with their versions.
  virtual std::string machine() const { return description(); }
  // Fails with kOutOfMemory, telling the bytes asked and free.
  virtual std::unique_ptr<Buffer> allocate(size_t bytes) = 0;
  // Of the application, which gives the memory of a CPU; null: the system does.
  virtual std::shared_ptr<Allocator> allocator() const { return nullptr; }
  // Host memory that copies to and from this device run beside other work.
  virtual std::unique_ptr<Buffer> allocate_staging(size_t bytes) { return allocate(bytes); }
  virtual std::unique_ptr<DeviceStream> make_stream() = 0;
  // Between memory of this device and the host, or within either.
  virtual void copy(std::byte* to, const std::byte* from, size_t bytes, DeviceStream& stream) = 0;
  // Where the device checks what kernels access: those that are given an address in the allocation
  // may access these bytes of it alone. Elsewhere it does nothing.
  virtual void limit_access(std::byte* /*begin*/, size_t /*bytes*/) {}

  // Makes the functions that kernels made for this device so far launch, all at once: from `image`
  // if that holds them, else by compiling. Returns the image for an engine file to keep; empty
  // where there is none. Nothing may be launched before. Fails with kDevice if they cannot be had.
  virtual std::vector<std::byte> prepare_code(std::span<const std::byte> image);
};

}  // namespace anneal
