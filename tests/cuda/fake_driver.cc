#include "anneal/tests/cuda/fake_driver.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace anneal::cuda {
namespace {

struct Thing {
  std::string kind;
  std::vector<std::string> work = {};  // of a graph
  std::string text = {};               // of a module or a function
};

void* keep(const char* kind, std::shared_ptr<void> object) {
  void* const address = object.get();
  ++fake_card().live[kind];
  fake_card().objects[address] = std::move(object);
  return address;
}
CUresult forget(const std::string& kind, const void* address) {
  if (fake_card().objects.erase(address) == 0) return CUDA_ERROR_INVALID_HANDLE;
  --fake_card().live[kind];
  return CUDA_SUCCESS;
}
template <class Handle>
Handle make(const char* kind) {
  return reinterpret_cast<Handle>(keep(kind, std::make_shared<Thing>(Thing{kind})));
}
void* make_memory(size_t bytes) {
  return keep("memory", std::shared_ptr<std::byte[]>(new std::byte[bytes]));
}
template <class Handle>
Thing& thing(Handle handle) {
  return *reinterpret_cast<Thing*>(handle);
}
template <class Handle>
CUresult drop(Handle handle) {
  return forget(std::string(thing(handle).kind), reinterpret_cast<const void*>(handle));
}

// These end a capture in mode GLOBAL of any thread, unless their own thread is in mode RELAXED.
constexpr std::string_view kEndCaptures[] = {"cuDevicePrimaryCtxRetain",
                                             "cuDevicePrimaryCtxRelease",
                                             "cuMemAlloc",
                                             "cuMemFree",
                                             "cuMemHostAlloc",
                                             "cuMemFreeHost",
                                             "cuModuleLoadData",
                                             "cuModuleUnload",
                                             "cuModuleGetFunction",
                                             "cuFuncSetAttribute",
                                             "cuStreamSynchronize",
                                             "cuEventSynchronize"};

// Notes the call; what it is to answer.
CUresult answer(const char* function, bool needs_context = true) {
  FakeCard& card = fake_card();
  if (card.mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
      std::ranges::find(kEndCaptures, function) != std::end(kEndCaptures))
    card.ended_captures.insert(function);
  ++card.calls[function];
  if (needs_context && card.entered == 0) card.was_called_outside = true;
  const auto at = card.fails.find(function);
  return at == card.fails.end() ? CUDA_SUCCESS : at->second;
}

Thing*& recording() {
  static Thing* graph = nullptr;
  return graph;
}
void put(const std::string& work) {
  if (recording() != nullptr)
    recording()->work.push_back(work);
  else
    fake_card().done.push_back(work);
}

#define ANSWER(function, ...)                                                           \
  if (const CUresult result = answer(#function, ##__VA_ARGS__); result != CUDA_SUCCESS) \
  return result

Driver make_driver() {
  Driver d;
  d.cuInit = [](unsigned) { return answer("cuInit", false); };
  d.cuDriverGetVersion = [](int* version) {
    *version = 13000;
    return CUDA_SUCCESS;
  };
  d.cuGetErrorName = [](CUresult result, const char** name) {
    *name = result == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : result == CUDA_ERROR_NO_DEVICE     ? "CUDA_ERROR_NO_DEVICE"
                                                 : nullptr;
    return CUDA_SUCCESS;
  };
  d.cuGetErrorString = [](CUresult, const char** text) {
    *text = nullptr;
    return CUDA_SUCCESS;
  };
  d.cuDeviceGetCount = [](int* count) {
    *count = fake_card().devices;
    return answer("cuDeviceGetCount", false);
  };
  d.cuDeviceGet = [](CUdevice* device, int ordinal) {
    *device = ordinal;
    return answer("cuDeviceGet", false);
  };
  d.cuDeviceGetName = [](char* name, int size, CUdevice) {
    std::strncpy(name, "Made-up", static_cast<size_t>(size));
    return CUDA_SUCCESS;
  };
  d.cuDeviceGetPCIBusId = [](char* id, int size, CUdevice device) {
    ANSWER(cuDeviceGetPCIBusId, false);
    const int on_bus = fake_card().on_bus[static_cast<size_t>(device)];
    *fmt::format_to_n(id, size - 1, "0000:{:02X}:00.0", 0x0A + on_bus).out = '\0';
    return CUDA_SUCCESS;
  };
  d.cuDeviceGetAttribute = [](int* value, CUdevice_attribute attribute, CUdevice) {
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? fake_card().major
             : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
                 ? fake_card().minor
                 : fake_card().attributes.at(attribute);
    return answer("cuDeviceGetAttribute", false);
  };
  d.cuDeviceTotalMem = [](size_t* bytes, CUdevice) {
    *bytes = size_t{3} << 29;
    return CUDA_SUCCESS;
  };
  d.cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice) {
    ANSWER(cuDevicePrimaryCtxRetain, false);
    ++fake_card().live["context"];
    *context = reinterpret_cast<CUcontext>(&fake_card());
    return CUDA_SUCCESS;
  };
  d.cuDevicePrimaryCtxRelease = [](CUdevice) {
    ANSWER(cuDevicePrimaryCtxRelease, false);
    --fake_card().live["context"];
    return CUDA_SUCCESS;
  };
  d.cuCtxPushCurrent = [](CUcontext) {
    ANSWER(cuCtxPushCurrent, false);
    ++fake_card().entered;
    return CUDA_SUCCESS;
  };
  d.cuCtxPopCurrent = [](CUcontext*) {
    --fake_card().entered;
    return CUDA_SUCCESS;
  };
  d.cuMemGetInfo = [](size_t* free, size_t* total) {
    *free = 1000;
    *total = 5000;
    return answer("cuMemGetInfo");
  };
  d.cuMemAlloc = [](CUdeviceptr* data, size_t bytes) {
    ANSWER(cuMemAlloc);
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    *data = reinterpret_cast<CUdeviceptr>(make_memory(bytes));
    return CUDA_SUCCESS;
  };
  d.cuMemFree = [](CUdeviceptr data) {
    ANSWER(cuMemFree);
    return forget("memory", std::bit_cast<const void*>(data));
  };
  d.cuMemHostAlloc = [](void** data, size_t bytes, unsigned) {
    ANSWER(cuMemHostAlloc);
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    *data = make_memory(bytes);
    return CUDA_SUCCESS;
  };
  d.cuMemFreeHost = [](void* data) {
    ANSWER(cuMemFreeHost);
    return forget("memory", data);
  };
  d.cuMemcpyAsync = [](CUdeviceptr, CUdeviceptr, size_t bytes, CUstream) {
    ANSWER(cuMemcpyAsync);
    put(fmt::format("copy of {} bytes", bytes));
    return CUDA_SUCCESS;
  };
  d.cuStreamCreate = [](CUstream* stream, unsigned) {
    ANSWER(cuStreamCreate);
    *stream = make<CUstream>("stream");
    return CUDA_SUCCESS;
  };
  d.cuStreamDestroy = [](CUstream stream) {
    ANSWER(cuStreamDestroy);
    return drop(stream);
  };
  d.cuStreamSynchronize = [](CUstream) { return answer("cuStreamSynchronize"); };
  d.cuStreamBeginCapture = [](CUstream, CUstreamCaptureMode) {
    ANSWER(cuStreamBeginCapture);
    recording() = &thing(make<CUgraph>("graph"));
    return CUDA_SUCCESS;
  };
  d.cuStreamEndCapture = [](CUstream, CUgraph* graph) {
    *graph = reinterpret_cast<CUgraph>(recording());
    recording() = nullptr;
    if (const CUresult result = answer("cuStreamEndCapture"); result != CUDA_SUCCESS) {
      drop(*graph);
      *graph = nullptr;
      return result;
    }
    return CUDA_SUCCESS;
  };
  d.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode* mode) {
    std::swap(fake_card().mode, *mode);
    return CUDA_SUCCESS;
  };
  d.cuGraphInstantiate = [](CUgraphExec* made, CUgraph graph, unsigned long long) {
    ANSWER(cuGraphInstantiate);
    *made = make<CUgraphExec>("executable graph");
    thing(*made).work = thing(graph).work;
    return CUDA_SUCCESS;
  };
  d.cuGraphUpload = [](CUgraphExec, CUstream) { return answer("cuGraphUpload"); };
  d.cuGraphLaunch = [](CUgraphExec graph, CUstream) {
    ANSWER(cuGraphLaunch);
    for (const std::string& work : thing(graph).work) put(work);
    return CUDA_SUCCESS;
  };
  d.cuGraphDestroy = [](CUgraph graph) { return drop(graph); };
  d.cuGraphExecDestroy = [](CUgraphExec graph) {
    ANSWER(cuGraphExecDestroy);
    return drop(graph);
  };
  d.cuEventCreate = [](CUevent* event, unsigned flags) {
    ANSWER(cuEventCreate);
    fake_card().events.push_back(flags);
    *event = make<CUevent>("event");
    return CUDA_SUCCESS;
  };
  d.cuEventDestroy = [](CUevent event) {
    ANSWER(cuEventDestroy);
    return drop(event);
  };
  d.cuEventRecord = [](CUevent, CUstream) { return answer("cuEventRecord"); };
  d.cuEventSynchronize = [](CUevent) { return answer("cuEventSynchronize"); };
  d.cuEventElapsedTime = [](float* milliseconds, CUevent, CUevent) {
    *milliseconds = 0.25f;
    return answer("cuEventElapsedTime");
  };
  d.cuModuleLoadData = [](CUmodule* module, const void* image) {
    ANSWER(cuModuleLoadData);
    *module = make<CUmodule>("module");
    thing(*module).text = static_cast<const char*>(image) + sizeof(Elf64_Ehdr) + sizeof(Elf64_Shdr);
    return CUDA_SUCCESS;
  };
  d.cuModuleUnload = [](CUmodule module) {
    ANSWER(cuModuleUnload);
    return drop(module);
  };
  d.cuModuleGetFunction = [](CUfunction* function, CUmodule module, const char* name) {
    ANSWER(cuModuleGetFunction);
    const std::string& text = thing(module).text;
    const size_t at = text.find(name);
    if (at == std::string::npos) return CUDA_ERROR_NOT_FOUND;
    // Lives as long as the module, whose text holds the name.
    *function = reinterpret_cast<CUfunction>(const_cast<char*>(text.data() + at));
    return CUDA_SUCCESS;
  };
  d.cuFuncGetAttribute = [](int* value, CUfunction_attribute attribute, CUfunction) {
    *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 256 : 1376;
    return answer("cuFuncGetAttribute");
  };
  d.cuFuncSetAttribute = [](CUfunction, CUfunction_attribute, int value) {
    put(fmt::format("allow {} bytes", value));
    return answer("cuFuncSetAttribute");
  };
  d.cuLaunchKernel = [](CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, CUstream, void** parameters,
                        void**) {
    ANSWER(cuLaunchKernel);
    const std::string_view name(reinterpret_cast<const char*>(function));
    put(fmt::format("{}<<<{}x{}x{}, {}x{}x{}, {}>>>({})", name.substr(0, name.find('_')), gx, gy,
                    gz, bx, by, bz, shared, *static_cast<const int64_t*>(parameters[0])));
    return CUDA_SUCCESS;
  };
  return d;
}

}  // namespace

FakeCard& fake_card() {
  static FakeCard card;
  return card;
}

const Driver& fake_driver() {
  static const Driver driver = make_driver();
  return driver;
}

std::vector<std::byte> FakeCompiler::compile(const std::string& program, int) const {
  compiled.push_back(program);
  Elf64_Ehdr header = {};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_shoff = sizeof(header);
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 1;
  Elf64_Shdr section = {};
  section.sh_type = SHT_PROGBITS;
  section.sh_offset = sizeof(header) + sizeof(section);
  section.sh_size = program.size() + 1;
  std::vector<std::byte> image(section.sh_offset + section.sh_size);
  std::memcpy(image.data(), &header, sizeof(header));
  std::memcpy(image.data() + sizeof(header), &section, sizeof(section));
  std::memcpy(image.data() + section.sh_offset, program.data(), program.size());
  return image;
}

}  // namespace anneal::cuda
