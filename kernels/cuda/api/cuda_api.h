// The parts of CUDA's driver API, NVRTC and NVML that are called, declared here under CUDA's own
// names; cublas_lt_api.h and cudnn_api.h have the libraries'. A build needs no toolkit and links
// nothing of CUDA.
// tests/cuda/cuda_api_test.cc compares the declarations with the headers of an installed toolkit.
#pragma once
#include <cstddef>

// NOLINTBEGIN(readability-identifier-naming)
namespace anneal::cuda {

using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUcontextObject*;
using CUmodule = struct CUmoduleObject*;
using CUfunction = struct CUfunctionObject*;
using CUstream = struct CUstreamObject*;
using CUevent = struct CUeventObject*;
using CUgraph = struct CUgraphObject*;
using CUgraphExec = struct CUgraphExecObject*;

enum CUresult : unsigned {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_ECC_UNCORRECTABLE = 214,
  CUDA_ERROR_NVLINK_UNCORRECTABLE = 220,
  CUDA_ERROR_CONTAINED = 226,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_ILLEGAL_STATE = 401,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
  CUDA_ERROR_LAUNCH_TIMEOUT = 702,
  CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
  CUDA_ERROR_ASSERT = 710,
  CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
  CUDA_ERROR_ILLEGAL_INSTRUCTION = 715,
  CUDA_ERROR_MISALIGNED_ADDRESS = 716,
  CUDA_ERROR_INVALID_ADDRESS_SPACE = 717,
  CUDA_ERROR_INVALID_PC = 718,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_NOT_PERMITTED = 800,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
  CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
  CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
  CUDA_ERROR_UNKNOWN = 999,
};
enum CUdevice_attribute : unsigned {
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
  CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X = 2,
  CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y = 3,
  CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z = 4,
  CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X = 5,
  CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y = 6,
  CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z = 7,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 8,
  CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
  CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13,
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36,
  CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37,
  CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
  CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
  CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR = 82,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
  CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR = 106,
};
enum CUfunction_attribute : unsigned {
  CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
  CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
  CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
  CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
};
enum CUstreamCaptureMode : unsigned {
  CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
  CU_STREAM_CAPTURE_MODE_RELAXED = 2,
};
enum : unsigned { CU_STREAM_DEFAULT = 0, CU_STREAM_NON_BLOCKING = 1 };
enum : unsigned { CU_EVENT_DEFAULT = 0, CU_EVENT_BLOCKING_SYNC = 1, CU_EVENT_DISABLE_TIMING = 2 };

// X(function, symbol in libcuda.so.1, parameters...); all return CUresult.
#define ANNEAL_FOR_EACH_DRIVER_FUNCTION(X)                                                        \
  X(cuInit, cuInit, unsigned)                                                                     \
  X(cuDriverGetVersion, cuDriverGetVersion, int*)                                                 \
  X(cuGetErrorName, cuGetErrorName, CUresult, const char**)                                       \
  X(cuGetErrorString, cuGetErrorString, CUresult, const char**)                                   \
  X(cuDeviceGetCount, cuDeviceGetCount, int*)                                                     \
  X(cuDeviceGet, cuDeviceGet, CUdevice*, int)                                                     \
  X(cuDeviceGetName, cuDeviceGetName, char*, int, CUdevice)                                       \
  X(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, char*, int, CUdevice)                               \
  X(cuDeviceGetAttribute, cuDeviceGetAttribute, int*, CUdevice_attribute, CUdevice)               \
  X(cuDeviceTotalMem, cuDeviceTotalMem_v2, size_t*, CUdevice)                                     \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, CUcontext*, CUdevice)                     \
  X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, CUdevice)                            \
  X(cuCtxPushCurrent, cuCtxPushCurrent_v2, CUcontext)                                             \
  X(cuCtxPopCurrent, cuCtxPopCurrent_v2, CUcontext*)                                              \
  X(cuMemGetInfo, cuMemGetInfo_v2, size_t*, size_t*)                                              \
  X(cuMemAlloc, cuMemAlloc_v2, CUdeviceptr*, size_t)                                              \
  X(cuMemFree, cuMemFree_v2, CUdeviceptr)                                                         \
  X(cuMemHostAlloc, cuMemHostAlloc, void**, size_t, unsigned)                                     \
  X(cuMemFreeHost, cuMemFreeHost, void*)                                                          \
  X(cuMemcpyAsync, cuMemcpyAsync, CUdeviceptr, CUdeviceptr, size_t, CUstream)                     \
  X(cuMemsetD8Async, cuMemsetD8Async, CUdeviceptr, unsigned char, size_t, CUstream)               \
  X(cuStreamCreate, cuStreamCreate, CUstream*, unsigned)                                          \
  X(cuStreamDestroy, cuStreamDestroy_v2, CUstream)                                                \
  X(cuStreamSynchronize, cuStreamSynchronize, CUstream)                                           \
  X(cuStreamWaitEvent, cuStreamWaitEvent, CUstream, CUevent, unsigned)                            \
  X(cuStreamBeginCapture, cuStreamBeginCapture_v2, CUstream, CUstreamCaptureMode)                 \
  X(cuStreamEndCapture, cuStreamEndCapture, CUstream, CUgraph*)                                   \
  X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, CUstreamCaptureMode*)   \
  X(cuEventCreate, cuEventCreate, CUevent*, unsigned)                                             \
  X(cuEventDestroy, cuEventDestroy_v2, CUevent)                                                   \
  X(cuEventRecord, cuEventRecord, CUevent, CUstream)                                              \
  X(cuEventSynchronize, cuEventSynchronize, CUevent)                                              \
  X(cuEventElapsedTime, cuEventElapsedTime, float*, CUevent, CUevent)                             \
  X(cuGraphInstantiate, cuGraphInstantiateWithFlags, CUgraphExec*, CUgraph, unsigned long long)   \
  X(cuGraphUpload, cuGraphUpload, CUgraphExec, CUstream)                                          \
  X(cuGraphLaunch, cuGraphLaunch, CUgraphExec, CUstream)                                          \
  X(cuGraphDestroy, cuGraphDestroy, CUgraph)                                                      \
  X(cuGraphExecDestroy, cuGraphExecDestroy, CUgraphExec)                                          \
  X(cuModuleLoadData, cuModuleLoadData, CUmodule*, const void*)                                   \
  X(cuModuleUnload, cuModuleUnload, CUmodule)                                                     \
  X(cuModuleGetFunction, cuModuleGetFunction, CUfunction*, CUmodule, const char*)                 \
  X(cuFuncGetAttribute, cuFuncGetAttribute, int*, CUfunction_attribute, CUfunction)               \
  X(cuFuncSetAttribute, cuFuncSetAttribute, CUfunction, CUfunction_attribute, int)                \
  X(cuLaunchKernel, cuLaunchKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, \
    unsigned, unsigned, CUstream, void**, void**)

using nvrtcProgram = struct nvrtcProgramObject*;
enum nvrtcResult : unsigned { NVRTC_SUCCESS = 0, NVRTC_ERROR_COMPILATION = 6 };

// X(function, result, parameters...)
#define ANNEAL_FOR_EACH_NVRTC_FUNCTION(X)                                          \
  X(nvrtcGetErrorString, const char*, nvrtcResult)                                 \
  X(nvrtcVersion, nvrtcResult, int*, int*)                                         \
  X(nvrtcGetNumSupportedArchs, nvrtcResult, int*)                                  \
  X(nvrtcGetSupportedArchs, nvrtcResult, int*)                                     \
  X(nvrtcCreateProgram, nvrtcResult, nvrtcProgram*, const char*, const char*, int, \
    const char* const*, const char* const*)                                        \
  X(nvrtcDestroyProgram, nvrtcResult, nvrtcProgram*)                               \
  X(nvrtcCompileProgram, nvrtcResult, nvrtcProgram, int, const char* const*)       \
  X(nvrtcGetCUBINSize, nvrtcResult, nvrtcProgram, size_t*)                         \
  X(nvrtcGetCUBIN, nvrtcResult, nvrtcProgram, char*)                               \
  X(nvrtcGetPTXSize, nvrtcResult, nvrtcProgram, size_t*)                           \
  X(nvrtcGetPTX, nvrtcResult, nvrtcProgram, char*)                                 \
  X(nvrtcGetProgramLogSize, nvrtcResult, nvrtcProgram, size_t*)                    \
  X(nvrtcGetProgramLog, nvrtcResult, nvrtcProgram, char*)

using nvmlDevice_t = struct nvmlDeviceObject*;
enum nvmlReturn_t : unsigned { NVML_SUCCESS = 0 };
enum nvmlClockType_t : unsigned { NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2 };
enum nvmlTemperatureSensors_t : unsigned { NVML_TEMPERATURE_GPU = 0 };
struct nvmlUtilization_t {
  unsigned gpu, memory;  // percent of the last sample period
};
struct nvmlMemory_v2_t {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
inline constexpr unsigned kNvmlMemoryVersion = sizeof(nvmlMemory_v2_t) | 2u << 24;

// X(function, result, parameters...)
#define ANNEAL_FOR_EACH_NVML_FUNCTION(X)                                                       \
  X(nvmlErrorString, const char*, nvmlReturn_t)                                                \
  X(nvmlInit_v2, nvmlReturn_t)                                                                 \
  X(nvmlShutdown, nvmlReturn_t)                                                                \
  X(nvmlSystemGetDriverVersion, nvmlReturn_t, char*, unsigned)                                 \
  X(nvmlDeviceGetCount_v2, nvmlReturn_t, unsigned*)                                            \
  X(nvmlDeviceGetHandleByPciBusId_v2, nvmlReturn_t, const char*, nvmlDevice_t*)                \
  X(nvmlDeviceGetName, nvmlReturn_t, nvmlDevice_t, char*, unsigned)                            \
  X(nvmlDeviceGetMemoryInfo_v2, nvmlReturn_t, nvmlDevice_t, nvmlMemory_v2_t*)                  \
  X(nvmlDeviceGetUtilizationRates, nvmlReturn_t, nvmlDevice_t, nvmlUtilization_t*)             \
  X(nvmlDeviceGetClockInfo, nvmlReturn_t, nvmlDevice_t, nvmlClockType_t, unsigned*)            \
  X(nvmlDeviceGetTemperature, nvmlReturn_t, nvmlDevice_t, nvmlTemperatureSensors_t, unsigned*) \
  X(nvmlDeviceGetPowerUsage, nvmlReturn_t, nvmlDevice_t, unsigned*)

}  // namespace anneal::cuda
// NOLINTEND(readability-identifier-naming)
