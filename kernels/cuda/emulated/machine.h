// The emulated machine, which implements the functions of the emulated driver's table.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "anneal/kernels/cuda/api/cuda_api.h"
#include "anneal/kernels/cuda/emulated/block.h"
#include "anneal/kernels/cuda/emulated/memory.h"
#include "anneal/kernels/cuda/emulated/module.h"
#include "anneal/kernels/cuda/emulated/stream.h"

namespace anneal::cuda {

// Ends a call of the driver with this result.
struct EmulatedRefusal {
  CUresult result;
  std::string text;
};
[[noreturn]] void refuse(CUresult result, std::string text);

// The primary context of the device.
class EmulatedContext {
 public:
  EmulatedContext();  // refuses what the environment says wrong

  EmulatedMemory memory;
  BlockRunner runner;
  CUresult error = CUDA_SUCCESS;  // sticky
  std::string fault;
  uint64_t bus_bytes = 0;  // that copies moved between host and device

  // Handles are the addresses of these.
  template <class T>
  using Objects = std::unordered_map<const void*, std::shared_ptr<T>>;
  Objects<EmulatedStream> streams;
  // The legacy default stream, handle null. It has no work of its own: this device takes only
  // orders of other streams after and before it.
  const std::shared_ptr<EmulatedStream> default_stream = std::make_shared<EmulatedStream>();
  struct Event {
    std::shared_ptr<EmulatedEvent> event = std::make_shared<EmulatedEvent>();
    std::shared_ptr<EmulatedStream> stream;  // that it was last recorded on
  };
  Objects<Event> events;
  Objects<EmulatedGraph> graphs, executables;
  Objects<EmulatedModule> modules;
  std::map<uint64_t, std::unique_ptr<std::byte[]>> host_memory;  // by its first address
  std::map<uint64_t, uint64_t> host_bytes;
  std::unordered_map<EmulatedFunction*, int> functions;  // most bytes of dynamic shared memory

  // Those of calls; they refuse.
  void copy(EmulatedStream& stream, CUdeviceptr to, CUdeviceptr from, size_t bytes);
  void fill(EmulatedStream& stream, CUdeviceptr to, unsigned char value, size_t bytes);
  void launch(EmulatedStream& stream, EmulatedFunction* function, emulator::Index3 grid,
              emulator::Index3 block, unsigned shared_bytes, void* const* parameters);
  // Takes a fault down and refuses with it.
  void finish(std::optional<EmulatedFault> fault);
  // For calls that are not allowed during a capture; ends the captures that the calling thread's
  // mode does not spare.
  void refuse_while_capturing();
  CUstreamCaptureMode callers_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;  // during a call

  // As a driver answers that does not capture, or only some of the work.
  enum class CaptureFails { kNever, kBegin, kLaunch, kEnd };
  const CaptureFails capture_fails;
  const bool skips_kernels;  // launches are checked, then nothing runs

 private:
  // In device memory, or in page-locked memory; of other host memory nothing is known.
  bool is_known(uint64_t address) const;
  bool is_whole(uint64_t address, size_t bytes) const;
  std::string describe(uint64_t address) const;
  void check_range(const char* verb, uint64_t address, size_t bytes) const;
};

// The one of the process. Locked for each call, what it runs included.
struct EmulatedMachine {
  std::mutex mutex;
  std::unique_ptr<EmulatedContext> context;
  int retained = 0;
  struct Caller {
    std::vector<CUcontext> contexts;  // the last is current
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    std::string fault;
  };
  std::map<std::thread::id, Caller> callers;
};

}  // namespace anneal::cuda
