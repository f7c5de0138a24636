// A GPU as a Device: a real one, the emulated one, or a description to build for.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/core/device.h"
#include "anneal/kernels/cuda/code/code.h"
#include "anneal/kernels/cuda/cost/device_spec.h"
#include "anneal/kernels/cuda/runtime/launch.h"

namespace anneal::cuda {

class GpuDevice;
class GpuStream;

// "sm_90": to build for, on any machine; memory and streams fail. "cuda", "cuda:1": a card.
// "emulated": the host, which runs the plans of every card; "emulated:counting" also counts what
// functions do (take_counts() of backend.h), and runs the same plans. Fails with kInvalidArgument
// if it is none of these, with kDevice in one sentence if this machine has no such device.
std::unique_ptr<Device> open_device(std::string_view target);

// REQUIRES, of all below: the device or stream is of this backend.
const DeviceSpec& spec_of(const Device& device);
Code& code_of(Device& device);
GpuDevice& gpu_of(Device& device);
GpuStream& gpu_stream_of(DeviceStream& stream);
void launch(DeviceStream& stream, const Function& function, const Geometry& geometry,
            Arguments& arguments);
// Memory of the device, at least `bytes`, that belongs to the stream and holds what it held until
// it must grow: for what Kernel::find() leaves to launch().
std::byte* found_memory(DeviceStream& stream, Device& device, size_t bytes);
// As Device::copy(), of the stream's device.
void copy(DeviceStream& stream, std::byte* to, const std::byte* from, size_t bytes);

}  // namespace anneal::cuda
