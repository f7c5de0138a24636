// The functions of NVML that only `anneal monitor` calls, declared under NVIDIA's own names.
// tests/cuda/nvml_api_test.cc compares them with nvml.h. Those that `anneal devices` calls, too,
// are in kernels/cuda/api/cuda_api.h.
#pragma once
#include "anneal/kernels/cuda/api/cuda_api.h"

// NOLINTBEGIN(readability-identifier-naming)
namespace anneal::cuda {

constexpr auto NVML_ERROR_INSUFFICIENT_SIZE = static_cast<nvmlReturn_t>(7);
constexpr auto NVML_CLOCK_GRAPHICS = static_cast<nvmlClockType_t>(0);
constexpr unsigned NVML_PSTATE_UNKNOWN = 32;
constexpr unsigned long long NVML_VALUE_NOT_AVAILABLE = ~0ull;

struct nvmlPciInfo_t {
  char busIdLegacy[16];
  unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
  char busId[32];  // "00000000:65:00.0"
};
struct nvmlProcessInfo_t {
  unsigned pid;
  unsigned long long usedGpuMemory;  // bytes, or NVML_VALUE_NOT_AVAILABLE
  unsigned gpuInstanceId, computeInstanceId;
};

// X(function, parameters...), which return nvmlReturn_t
#define ANNEAL_FOR_EACH_MONITORED_NVML_FUNCTION(X)              \
  X(nvmlDeviceGetHandleByIndex_v2, unsigned, nvmlDevice_t*)     \
  X(nvmlDeviceGetPciInfo_v3, nvmlDevice_t, nvmlPciInfo_t*)      \
  X(nvmlDeviceGetUUID, nvmlDevice_t, char*, unsigned)           \
  X(nvmlDeviceGetMinorNumber, nvmlDevice_t, unsigned*)          \
  X(nvmlDeviceGetFanSpeed, nvmlDevice_t, unsigned*)             \
  X(nvmlDeviceGetPerformanceState, nvmlDevice_t, int*)          \
  X(nvmlDeviceGetPowerManagementLimit, nvmlDevice_t, unsigned*) \
  X(nvmlDeviceGetEnforcedPowerLimit, nvmlDevice_t, unsigned*)   \
  X(nvmlDeviceGetComputeRunningProcesses_v3, nvmlDevice_t, unsigned*, nvmlProcessInfo_t*)

// Null where NVML is too old to have a function.
#define X(function, ...) nvmlReturn_t (*function)(__VA_ARGS__) = nullptr;
struct MonitoredNvml {
  ANNEAL_FOR_EACH_MONITORED_NVML_FUNCTION(X)
};
#undef X

}  // namespace anneal::cuda
// NOLINTEND(readability-identifier-naming)
