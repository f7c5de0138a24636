#include "anneal/kernels/cuda/emulated/driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "anneal/kernels/cuda/emulated/machine.h"

namespace anneal::cuda {
namespace {

constexpr int kMostFixedShared = 48 * 1024, kMostShared = 227 * 1024;
constexpr struct {
  CUdevice_attribute attribute;
  int value;
} kAttributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 0x7fffffff},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, kMostFixedShared},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 2619000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 5120},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 50 << 20},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 228 * 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, kMostShared},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
};
constexpr struct {
  CUresult result;
  const char *name, *text;
} kErrors[] = {
#define X(name, text) {name, #name, text},
    X(CUDA_SUCCESS, "no error") X(CUDA_ERROR_INVALID_VALUE, "invalid argument")
        X(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")
            X(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal")
                X(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid") X(
                    CUDA_ERROR_INVALID_CONTEXT, "invalid device context")
                    X(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle") X(
                        CUDA_ERROR_NOT_FOUND, "named symbol not found")
                        X(CUDA_ERROR_NOT_READY, "device not ready") X(
                            CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")
                            X(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address")
                                X(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure")
                                    X(CUDA_ERROR_NOT_SUPPORTED, "operation not supported") X(
                                        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                                        "operation not permitted when stream is capturing")
                                        X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                                          "operation failed due to a previous error during capture")
                                            X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
                                              "the stream does not capture")
                                                X(CUDA_ERROR_UNKNOWN, "unknown error")
#undef X
};

EmulatedMachine& machine() {
  static EmulatedMachine machine;
  return machine;
}

// A call: `body` may refuse.
template <class Body>
CUresult call(const Body& body) {
  EmulatedMachine& m = machine();
  const std::lock_guard lock(m.mutex);
  const auto answer = [&](CUresult result, std::string text) {
    m.callers[std::this_thread::get_id()].fault = std::move(text);
    return result;
  };
  try {
    body(m);
    return CUDA_SUCCESS;
  } catch (EmulatedRefusal& refusal) {
    return answer(refusal.result, std::move(refusal.text));
  } catch (const Error& error) {
    return answer(CUDA_ERROR_UNKNOWN, error.what());
  } catch (const std::bad_alloc&) {
    return answer(CUDA_ERROR_OUT_OF_MEMORY, "the host has no memory left");
  }
}

// One within the current context.
template <class Body>
CUresult within(const Body& body) {
  return call([&](EmulatedMachine& m) {
    const auto& [contexts, mode, fault] = m.callers[std::this_thread::get_id()];
    EmulatedContext* const context = m.context.get();
    if (context == nullptr || contexts.empty() ||
        contexts.back() != reinterpret_cast<CUcontext>(context))
      refuse(CUDA_ERROR_INVALID_CONTEXT, "no context is current to this thread");
    if (context->error != CUDA_SUCCESS) refuse(context->error, context->fault);
    context->callers_mode = mode;
    body(*context);
  });
}

template <class T, class Handle>
const std::shared_ptr<T>& object(const EmulatedContext::Objects<T>& objects, Handle handle) {
  const auto found = objects.find(handle);
  if (found == objects.end()) refuse(CUDA_ERROR_INVALID_HANDLE, "there is no such object");
  return found->second;
}
template <class Handle, class T>
Handle keep(EmulatedContext::Objects<T>& objects, std::shared_ptr<T> made) {
  const void* const key = made.get();
  objects.emplace(key, std::move(made));
  return reinterpret_cast<Handle>(const_cast<void*>(key));
}
template <class T, class Handle>
void drop(EmulatedContext::Objects<T>& objects, Handle handle) {
  if (objects.erase(handle) == 0) refuse(CUDA_ERROR_INVALID_HANDLE, "there is no such object");
}

void need(bool given) {
  if (!given) refuse(CUDA_ERROR_INVALID_VALUE, "an argument is null");
}
void need_device(CUdevice device) {
  if (device != 0) refuse(CUDA_ERROR_INVALID_DEVICE, "there is one emulated device");
}

void add_device(Driver& d) {
  d.cuInit = [](unsigned) { return CUDA_SUCCESS; };
  d.cuDriverGetVersion = [](int* version) {
    *version = 13000;
    return CUDA_SUCCESS;
  };
  d.cuGetErrorName = [](CUresult result, const char** name) {
    *name = nullptr;
    for (const auto& error : kErrors)
      if (error.result == result) *name = error.name;
    return *name == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  };
  d.cuGetErrorString = [](CUresult result, const char** text) {
    *text = nullptr;
    for (const auto& error : kErrors)
      if (error.result == result) *text = error.text;
    return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  };
  d.cuDeviceGetCount = [](int* count) {
    *count = 1;
    return CUDA_SUCCESS;
  };
  d.cuDeviceGet = [](CUdevice* device, int ordinal) {
    return call([&](EmulatedMachine&) {
      need_device(ordinal);
      *device = 0;
    });
  };
  d.cuDeviceGetName = [](char* name, int size, CUdevice device) {
    return call([&](EmulatedMachine&) {
      need_device(device);
      if (size > 0) *fmt::format_to_n(name, size - 1, "emulated H100").out = '\0';
    });
  };
  d.cuDeviceGetPCIBusId = [](char* id, int size, CUdevice device) {
    return call([&](EmulatedMachine&) {
      need_device(device);
      if (size > 0) *fmt::format_to_n(id, size - 1, "0000:00:00.0").out = '\0';
    });
  };
  d.cuDeviceGetAttribute = [](int* value, CUdevice_attribute attribute, CUdevice device) {
    return call([&](EmulatedMachine&) {
      need_device(device);
      for (const auto& known : kAttributes)
        if (known.attribute == attribute) {
          *value = known.value;
          return;
        }
      refuse(CUDA_ERROR_INVALID_VALUE, "an attribute that is not known");
    });
  };
  d.cuDeviceTotalMem = [](size_t* bytes, CUdevice device) {
    return call([&](EmulatedMachine& m) {
      need_device(device);
      *bytes = m.context != nullptr ? m.context->memory.limit() : EmulatedContext().memory.limit();
    });
  };
  d.cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice device) {
    return call([&](EmulatedMachine& m) {
      need_device(device);
      if (m.context == nullptr) m.context = std::make_unique<EmulatedContext>();
      ++m.retained;
      *context = reinterpret_cast<CUcontext>(m.context.get());
    });
  };
  d.cuDevicePrimaryCtxRelease = [](CUdevice device) {
    return call([&](EmulatedMachine& m) {
      need_device(device);
      if (m.retained == 0) refuse(CUDA_ERROR_INVALID_CONTEXT, "released more often than retained");
      if (--m.retained == 0) m.context.reset();
    });
  };
  d.cuCtxPushCurrent = [](CUcontext context) {
    return call([&](EmulatedMachine& m) {
      if (context == nullptr || context != reinterpret_cast<CUcontext>(m.context.get()))
        refuse(CUDA_ERROR_INVALID_CONTEXT, "there is no such context");
      m.callers[std::this_thread::get_id()].contexts.push_back(context);
    });
  };
  d.cuCtxPopCurrent = [](CUcontext* context) {
    return call([&](EmulatedMachine& m) {
      auto& contexts = m.callers[std::this_thread::get_id()].contexts;
      if (contexts.empty()) refuse(CUDA_ERROR_INVALID_CONTEXT, "no context is current");
      *context = contexts.back();
      contexts.pop_back();
    });
  };
}

void add_memory(Driver& d) {
  d.cuMemGetInfo = [](size_t* free, size_t* total) {
    return within([&](EmulatedContext& c) {
      *total = c.memory.limit();
      *free = *total - c.memory.used();
    });
  };
  d.cuMemAlloc = [](CUdeviceptr* address, size_t bytes) {
    return within([&](EmulatedContext& c) {
      c.refuse_while_capturing();
      need(address != nullptr && bytes != 0);
      *address = c.memory.allocate(bytes);
      if (*address == 0)
        refuse(CUDA_ERROR_OUT_OF_MEMORY,
               fmt::format("{} bytes asked, {} of {} free", bytes,
                           c.memory.limit() - c.memory.used(), c.memory.limit()));
    });
  };
  d.cuMemFree = [](CUdeviceptr address) {
    return within([&](EmulatedContext& c) {
      c.refuse_while_capturing();
      if (address != 0 && !c.memory.free(address))
        refuse(CUDA_ERROR_INVALID_VALUE,
               fmt::format("frees what is no allocation: {}", c.memory.describe(address)));
    });
  };
  d.cuMemHostAlloc = [](void** address, size_t bytes, unsigned) {
    return within([&](EmulatedContext& c) {
      c.refuse_while_capturing();
      need(address != nullptr && bytes != 0);
      constexpr size_t kAlignment = 256;
      auto memory = std::make_unique<std::byte[]>(bytes + kAlignment);
      const auto begin =
          (reinterpret_cast<uint64_t>(memory.get()) + kAlignment - 1) / kAlignment * kAlignment;
      *address = reinterpret_cast<void*>(begin);
      std::memset(*address, 0xff, bytes);
      c.host_memory[begin] = std::move(memory);
      c.host_bytes[begin] = bytes;
    });
  };
  d.cuMemFreeHost = [](void* address) {
    return within([&](EmulatedContext& c) {
      c.refuse_while_capturing();
      if (c.host_bytes.erase(reinterpret_cast<uint64_t>(address)) == 0)
        refuse(CUDA_ERROR_INVALID_VALUE, "frees what is no page-locked allocation");
      c.host_memory.erase(reinterpret_cast<uint64_t>(address));
    });
  };
  d.cuMemcpyAsync = [](CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return within([&](EmulatedContext& c) { c.copy(*object(c.streams, stream), to, from, bytes); });
  };
  d.cuMemsetD8Async = [](CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
    return within(
        [&](EmulatedContext& c) { c.fill(*object(c.streams, stream), to, value, bytes); });
  };
}

void refuse_capturing(EmulatedStream& stream) {
  if (!stream.captures()) return;
  stream.invalidate();
  refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "not on a stream that captures");
}

// For calls that also take the legacy default stream.
const std::shared_ptr<EmulatedStream>& any_stream(const EmulatedContext& c, CUstream stream) {
  return stream == nullptr ? c.default_stream : object(c.streams, stream);
}

void add_streams(Driver& d) {
  d.cuStreamCreate = [](CUstream* stream, unsigned) {
    return within([&](EmulatedContext& c) {
      *stream = keep<CUstream>(c.streams, std::make_shared<EmulatedStream>());
    });
  };
  // Work that the host did not wait for is not done.
  d.cuStreamDestroy = [](CUstream stream) {
    return within([&](EmulatedContext& c) { drop(c.streams, stream); });
  };
  d.cuStreamSynchronize = [](CUstream stream) {
    return within([&](EmulatedContext& c) {
      const std::shared_ptr<EmulatedStream> s = object(c.streams, stream);
      refuse_capturing(*s);
      c.finish(s->run());
    });
  };
  d.cuStreamWaitEvent = [](CUstream stream, CUevent event, unsigned) {
    return within([&](EmulatedContext& c) {
      EmulatedStream& s = *any_stream(c, stream);
      refuse_capturing(s);
      const auto& e = *object(c.events, event);
      s.wait_for(e.event, e.stream);
    });
  };
  d.cuEventCreate = [](CUevent* event, unsigned) {
    return within([&](EmulatedContext& c) {
      *event = keep<CUevent>(c.events, std::make_shared<EmulatedContext::Event>());
    });
  };
  d.cuEventDestroy = [](CUevent event) {
    return within([&](EmulatedContext& c) { drop(c.events, event); });
  };
  d.cuEventRecord = [](CUevent event, CUstream stream) {
    return within([&](EmulatedContext& c) {
      const auto& s = any_stream(c, stream);
      refuse_capturing(*s);
      EmulatedContext::Event& e = *object(c.events, event);
      s->record(e.event);
      e.stream = s;
    });
  };
  d.cuEventSynchronize = [](CUevent event) {
    return within([&](EmulatedContext& c) {
      const EmulatedContext::Event e = *object(c.events, event);
      if (e.stream != nullptr) c.finish(e.stream->run_until(*e.event, e.event->recorded));
    });
  };
  d.cuEventElapsedTime = [](float* milliseconds, CUevent start, CUevent end) {
    return within([&](EmulatedContext& c) {
      const EmulatedEvent& first = *object(c.events, start)->event;
      const EmulatedEvent& last = *object(c.events, end)->event;
      if (first.recorded == 0 || last.recorded == 0)
        refuse(CUDA_ERROR_INVALID_HANDLE, "an event was not recorded");
      if (first.done < first.recorded || last.done < last.recorded)
        refuse(CUDA_ERROR_NOT_READY, "an event was not waited for");
      *milliseconds = static_cast<float>(last.milliseconds - first.milliseconds);
    });
  };
}

void add_graphs(Driver& d) {
  d.cuStreamBeginCapture = [](CUstream stream, CUstreamCaptureMode mode) {
    return within([&](EmulatedContext& c) {
      EmulatedStream& s = *object(c.streams, stream);
      refuse_capturing(s);
      if (c.capture_fails == EmulatedContext::CaptureFails::kBegin)
        refuse(CUDA_ERROR_NOT_SUPPORTED, "the environment says that beginning fails");
      s.begin_capture(mode);
    });
  };
  d.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode* mode) {
    return call([&](EmulatedMachine& m) {
      need(mode != nullptr);
      std::swap(m.callers[std::this_thread::get_id()].mode, *mode);
    });
  };
  d.cuStreamEndCapture = [](CUstream stream, CUgraph* graph) {
    return within([&](EmulatedContext& c) {
      *graph = nullptr;
      EmulatedStream& s = *object(c.streams, stream);
      if (!s.captures()) refuse(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the stream does not capture");
      if (c.capture_fails == EmulatedContext::CaptureFails::kEnd) s.invalidate();
      auto captured = s.end_capture();
      if (captured == nullptr)
        refuse(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
               "a call that may not be captured came between");
      *graph = keep<CUgraph>(c.graphs, std::move(captured));
    });
  };
  d.cuGraphInstantiate = [](CUgraphExec* executable, CUgraph graph, unsigned long long) {
    return within([&](EmulatedContext& c) {
      *executable = keep<CUgraphExec>(c.executables,
                                      std::make_shared<EmulatedGraph>(*object(c.graphs, graph)));
    });
  };
  d.cuGraphUpload = [](CUgraphExec executable, CUstream stream) {
    return within([&](EmulatedContext& c) {
      object(c.executables, executable);
      object(c.streams, stream);
    });
  };
  d.cuGraphLaunch = [](CUgraphExec executable, CUstream stream) {
    return within([&](EmulatedContext& c) {
      EmulatedStream& s = *object(c.streams, stream);
      for (const EmulatedWork& work : *object(c.executables, executable)) s.add(work);
    });
  };
  d.cuGraphDestroy = [](CUgraph graph) {
    return within([&](EmulatedContext& c) { drop(c.graphs, graph); });
  };
  d.cuGraphExecDestroy = [](CUgraphExec executable) {
    return within([&](EmulatedContext& c) { drop(c.executables, executable); });
  };
}

EmulatedFunction* as_function(const EmulatedContext& c, CUfunction handle) {
  auto* const function = reinterpret_cast<EmulatedFunction*>(handle);
  if (!c.functions.contains(function))
    refuse(CUDA_ERROR_INVALID_HANDLE, "this is no function of a loaded module");
  return function;
}

void add_functions(Driver& d) {
  d.cuModuleLoadData = [](CUmodule* module, const void* image) {
    return within([&](EmulatedContext& c) {
      c.refuse_while_capturing();
      need(image != nullptr);
      *module = keep<CUmodule>(c.modules, std::make_shared<EmulatedModule>(image));
    });
  };
  d.cuModuleUnload = [](CUmodule module) {
    return within([&](EmulatedContext& c) {
      c.refuse_while_capturing();
      const EmulatedModule& m = *object(c.modules, module);
      std::erase_if(c.functions, [&](const auto& function) { return m.owns(function.first); });
      drop(c.modules, module);
    });
  };
  d.cuModuleGetFunction = [](CUfunction* function, CUmodule module, const char* name) {
    return within([&](EmulatedContext& c) {
      EmulatedFunction* const found = object(c.modules, module)->find(name);
      if (found == nullptr)
        refuse(CUDA_ERROR_NOT_FOUND, fmt::format("the module has no function {}", name));
      c.functions.emplace(found, kMostFixedShared);
      *function = reinterpret_cast<CUfunction>(found);
    });
  };
  d.cuFuncGetAttribute = [](int* value, CUfunction_attribute attribute, CUfunction handle) {
    return within([&](EmulatedContext& c) {
      EmulatedFunction* const function = as_function(c, handle);
      switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
          *value = function->entry->most_threads;
          return;
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
          *value = c.functions[function];
          return;
        default:
          *value = 0;  // the host's compiler reports no registers and no fixed memory
      }
    });
  };
  d.cuFuncSetAttribute = [](CUfunction handle, CUfunction_attribute attribute, int value) {
    return within([&](EmulatedContext& c) {
      EmulatedFunction* const function = as_function(c, handle);
      if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
          value > kMostShared)
        refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("{} may not be set so", function->name));
      c.functions[function] = value;
    });
  };
  d.cuLaunchKernel = [](CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared_bytes, CUstream stream,
                        void** parameters, void** extra) {
    return within([&](EmulatedContext& c) {
      if (extra != nullptr) refuse(CUDA_ERROR_INVALID_VALUE, "parameters are given one by one");
      c.launch(*object(c.streams, stream), as_function(c, function), {gx, gy, gz}, {bx, by, bz},
               shared_bytes, parameters);
    });
  };
  // By threads alone.
}

}  // namespace

const Driver& emulated_driver() {
  static const Driver table = [] {
    Driver d;
    add_device(d);
    add_memory(d);
    add_streams(d);
    add_graphs(d);
    add_functions(d);
    return d;
  }();
  return table;
}

std::string emulated_fault() {
  EmulatedMachine& m = machine();
  const std::lock_guard lock(m.mutex);
  const auto caller = m.callers.find(std::this_thread::get_id());
  return caller == m.callers.end() ? "" : caller->second.fault;
}

std::vector<FunctionCounts> emulated_counts(CUstream stream) {
  EmulatedMachine& m = machine();
  const std::lock_guard lock(m.mutex);
  if (m.context == nullptr) return {};
  const auto known = m.context->streams.find(stream);
  return known == m.context->streams.end() ? std::vector<FunctionCounts>()
                                           : known->second->take_counts();
}

CUresult emulated_limit_access(CUdeviceptr begin, size_t bytes) {
  return within([&](EmulatedContext& c) {
    if (!c.memory.limit_access(begin, bytes))
      refuse(CUDA_ERROR_INVALID_VALUE,
             fmt::format("limits accesses to {} bytes {}", bytes, c.memory.describe(begin)));
  });
}

size_t emulated_live_allocations() {
  EmulatedMachine& m = machine();
  const std::lock_guard lock(m.mutex);
  return m.context == nullptr ? 0 : m.context->memory.live();
}

uint64_t emulated_bus_bytes() {
  EmulatedMachine& m = machine();
  const std::lock_guard lock(m.mutex);
  return m.context == nullptr ? 0 : m.context->bus_bytes;
}

}  // namespace anneal::cuda
