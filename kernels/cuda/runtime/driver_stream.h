// A stream of a driver's device: launches, copies, recordings and times in order.
#pragma once
#include <cstdint>
#include <memory>

#include "anneal/kernels/cuda/runtime/context.h"
#include "anneal/kernels/cuda/runtime/gpu_device.h"

namespace anneal::cuda {

// The target of Function::handle on these devices.
struct LoadedFunction {
  CUfunction handle = nullptr;
  uint32_t most_threads = 0;       // in a block
  uint32_t most_shared_bytes = 0;  // dynamic
};

// take_counts: null if nothing is counted.
std::unique_ptr<GpuStream> make_driver_stream(std::shared_ptr<Context> context,
                                              TakeCounts* take_counts);

// REQUIRES: a stream of a device with this context.
CUstream handle_of(DeviceStream& stream, const Context& context);

}  // namespace anneal::cuda
