// A libcuda.so.1 of the functions that Anneal calls: tests load it in place of NVIDIA's
// (ANNEAL_CUDA_LIB_PATH). It checks the rules of CUDA's driver API, works as late as they allow,
// and runs the PTX of each kernel.
//
// ANNEAL_VIRTUAL_CARD_SM: the architecture (90). _COUNT: the number of cards (1). _SEED: of the
// order of streams, blocks and warps (0: as late as can be, and ascending). _WORKERS: threads that
// do the work of streams (2). _TRUNCATES=1: tensor cores cut their sums off. _ULPS:
// how far approximate functions are off. _THREADS_APART=1: no order among threads of the host but
// what the driver gives (order.h).
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "anneal/tests/virtual_card/calls.h"
#include "anneal/tests/virtual_card/driver.h"

namespace anneal::virtual_card {
namespace {

constexpr struct {
  CUresult result;
  const char *name, *text;
} kErrors[] = {
#define ERROR(name, text) \
  { name, #name, text }
    ERROR(CUDA_SUCCESS, "no error"),
    ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    ERROR(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"),
    ERROR(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"),
    ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
          "operation not permitted when stream is capturing"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
          "operation failed due to a previous error during capture"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
          "operation failed because the stream is not capturing"),
    ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
#undef ERROR
};

}  // namespace

extern "C" {

CUresult cuInit(unsigned flags) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  if (m.is_initialized && m.process != getpid()) return CUDA_ERROR_NOT_INITIALIZED;
  m.is_initialized = true;
  m.process = getpid();
  return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult result, const char** name) {
  *name = nullptr;
  for (const auto& error : kErrors)
    if (error.result == result) *name = error.name;
  return *name == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult result, const char** text) {
  *text = nullptr;
  for (const auto& error : kErrors)
    if (error.result == result) *text = error.text;
  return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  return call("cuDeviceGetCount",
              [&](Machine& m, Caller&) { *count = static_cast<int>(m.devices.size()); });
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return call("cuDeviceGet", [&](Machine& m, Caller&) { *device = ordinal_of(m, ordinal); });
}
CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  return call("cuDeviceGetName", [&](Machine& m, Caller&) {
    ordinal_of(m, device);
    if (size > 0)
      *fmt::format_to_n(name, size - 1, "Virtual card of sm_{}", architecture()).out = '\0';
  });
}
CUresult cuDeviceGetPCIBusId(char* id, int size, CUdevice device) {
  return call("cuDeviceGetPCIBusId", [&](Machine& m, Caller&) {
    ordinal_of(m, device);
    if (size > 0) *fmt::format_to_n(id, size - 1, "0000:{:02x}:00.0", device + 1).out = '\0';
  });
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return call("cuDeviceGetAttribute", [&](Machine& m, Caller&) {
    ordinal_of(m, device);
    *value = attribute_of(attribute);
  });
}
CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  return call("cuDeviceTotalMem", [&](Machine& m, Caller&) {
    ordinal_of(m, device);
    *bytes = size_t{8} << 30;
  });
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return call("cuDevicePrimaryCtxRetain", [&](Machine& m, Caller&) {
    Device& of = m.devices[static_cast<size_t>(ordinal_of(m, device))];
    if (of.context == nullptr) {
      // The addresses of each card are its own.
      const uint64_t first = ptx::kFirstAddress + (static_cast<uint64_t>(device) << 56);
      of.context = std::make_unique<Context>(device, std::max(first, of.next_address));
    }
    ++of.retained;
    *context = reinterpret_cast<CUcontext>(of.context.get());
  });
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return call("cuDevicePrimaryCtxRelease", [&](Machine& m, Caller&) {
    Device& of = m.devices[static_cast<size_t>(ordinal_of(m, device))];
    if (of.retained == 0) refuse(CUDA_ERROR_INVALID_CONTEXT, "released more often than retained");
    if (--of.retained != 0) return;
    Context& context = *of.context;
    for (const auto& [thread, caller] : m.callers)
      for (const Context* each : caller.contexts)
        if (each == &context) report_violation("a context that is current to a thread ends");
    m.queues.finish(context);
    const std::string left = context.what_is_left();
    if (!left.empty() && context.error == CUDA_SUCCESS)
      report_violation(fmt::format("the context of device {} ends with {}", device, left));
    of.next_address = context.memory.next_address();
    of.context.reset();
  });
}
CUresult cuCtxPushCurrent_v2(CUcontext context) {
  return call("cuCtxPushCurrent", [&](Machine& m, Caller& caller) {
    for (const Device& device : m.devices)
      if (context != nullptr && reinterpret_cast<CUcontext>(device.context.get()) == context) {
        caller.contexts.push_back(device.context.get());
        return;
      }
    refuse(CUDA_ERROR_INVALID_CONTEXT, "there is no such context");
  });
}
CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  return call("cuCtxPopCurrent", [&](Machine&, Caller& caller) {
    if (caller.contexts.empty()) refuse(CUDA_ERROR_INVALID_CONTEXT, "no context is current");
    *context = reinterpret_cast<CUcontext>(caller.contexts.back());
    caller.contexts.pop_back();
  });
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  return within("cuMemGetInfo", [&](Context& c) {
    *total = size_t{8} << 30;
    *free = *total - c.memory.bytes();
  });
}
CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  return within("cuMemAlloc", [&](Context& c) {
    refuse_while_capturing("cuMemAlloc");
    if (bytes == 0) refuse(CUDA_ERROR_INVALID_VALUE, "no bytes");
    if (bytes > (size_t{8} << 30) - c.memory.bytes())
      refuse(CUDA_ERROR_OUT_OF_MEMORY, fmt::format("{} bytes", bytes));
    *address = c.memory.allocate(bytes);
  });
}
CUresult cuMemFree_v2(CUdeviceptr address) {
  return within("cuMemFree", [&](Context& c) {
    refuse_while_capturing("cuMemFree");
    if (address == 0) return;
    // The driver waits for all work of the context before it frees.
    machine().queues.finish(c);
    if (!c.memory.release(address))
      report_violation(fmt::format("cuMemFree({:#x}): there is no such allocation of device {}",
                                   address, c.device));
    machine().queues.order().forget(address);
  });
}
CUresult cuMemHostAlloc(void** address, size_t bytes, unsigned) {
  return within("cuMemHostAlloc", [&](Context& c) {
    refuse_while_capturing("cuMemHostAlloc");
    if (bytes == 0) refuse(CUDA_ERROR_INVALID_VALUE, "no bytes");
    constexpr uint64_t kAlignment = 256;
    HostMemory made = c.take_host(bytes + kAlignment);
    made.bytes = bytes;
    made.number = ++c.host_made;
    const uint64_t begin =
        (reinterpret_cast<uint64_t>(made.memory.get()) + kAlignment - 1) / kAlignment * kAlignment;
    *address = reinterpret_cast<void*>(begin);
    std::memset(*address, 0xff, bytes);
    c.host[begin] = std::move(made);
  });
}
CUresult cuMemFreeHost(void* address) {
  return within("cuMemFreeHost", [&](Context& c) {
    refuse_while_capturing("cuMemFreeHost");
    const auto begin = reinterpret_cast<uint64_t>(address);
    const auto found = c.host.find(begin);
    if (found == c.host.end())
      report_violation("cuMemFreeHost: no page-locked memory of this context begins here");
    const uint64_t end = begin + found->second.bytes;
    const Work* const using_it = machine().queues.find(
        c, [&](const Work& work) { return work.host_begin < end && begin < work.host_end; });
    if (using_it != nullptr)
      report_violation(
          fmt::format("cuMemFreeHost({:#x}) while {} is under way", begin, using_it->call));
    machine().queues.order().check_host_free(fmt::format("cuMemFreeHost({:#x})", begin), begin,
                                             end);
    machine().queues.order().forget_host(begin, end);
    if (c.reuses_addresses) c.freed_host.push_back(std::move(found->second));
    c.host.erase(found);
  });
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return within("cuMemcpyAsync", [&](Context& c) { copy(stream_of(c, stream), to, from, bytes); });
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  return within("cuMemsetD8Async",
                [&](Context& c) { fill(stream_of(c, stream), to, value, bytes); });
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return within("cuModuleLoadData", [&](Context& c) {
    refuse_while_capturing("cuModuleLoadData");
    *module = keep<CUmodule>(c.modules, load_module(c, image));
  });
}
CUresult cuModuleUnload(CUmodule module) {
  return within("cuModuleUnload", [&](Context& c) {
    refuse_while_capturing("cuModuleUnload");
    const std::shared_ptr<Module> m = object(c.modules, module, "module");
    const Work* const using_it =
        machine().queues.find(c, [&](const Work& work) { return work.module == m.get(); });
    if (using_it != nullptr)
      report_violation(fmt::format("cuModuleUnload while {} is under way", using_it->call));
    for (const auto& [name, function] : m->functions) c.functions.erase(function.get());
    c.modules.erase(module);
  });
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return within("cuModuleGetFunction", [&](Context& c) {
    const std::shared_ptr<Module> m = object(c.modules, module, "module");
    const auto found = m->functions.find(name);
    if (found == m->functions.end())
      refuse(CUDA_ERROR_NOT_FOUND, fmt::format("there is no function {}", name));
    *function = keep<CUfunction>(c.functions, found->second);
  });
}
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  return within("cuFuncGetAttribute", [&](Context& c) {
    const Function& f = *object(c.functions, function, "function");
    switch (attribute) {
      case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = f.code.max_threads == 0 ? 1024 : static_cast<int>(f.code.max_threads);
        return;
      case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = f.resources.shared_bytes;
        return;
      case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = f.resources.stack_bytes;
        return;
      case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = f.resources.registers;
        return;
      case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = std::max(f.dynamic_shared_limit, 48 * 1024 - f.resources.shared_bytes);
        return;
    }
    refuse(CUDA_ERROR_INVALID_VALUE, "an attribute that the virtual card does not know");
  });
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  return within("cuFuncSetAttribute", [&](Context& c) {
    Function& f = *object(c.functions, function, "function");
    const int most = attribute_of(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) -
                     f.resources.shared_bytes;
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 || value > most)
      refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("{} bytes, {} allowed", value, most));
    f.dynamic_shared_limit = value;
  });
}
CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void** parameters, void** extra) {
  return within("cuLaunchKernel", [&](Context& c) {
    if (extra != nullptr) refuse(CUDA_ERROR_NOT_SUPPORTED, "extra");
    launch(stream_of(c, stream), object(c.functions, function, "function"),
           {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, parameters);
  });
}

// For the libnvidia-ml.so.1 beside this library.
size_t virtual_card_used_bytes(int device) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  const Context* const context = m.devices[static_cast<size_t>(device)].context.get();
  return context == nullptr ? 0 : context->memory.bytes();
}

}  // extern "C"

}  // namespace anneal::virtual_card
