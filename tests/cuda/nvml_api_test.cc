// Our declarations of NVML's interface against NVIDIA's header.
#include "anneal/cli/monitor/nvml_api.h"

#include <gtest/gtest.h>

#include <cstddef>

#include "anneal/tests/cuda/signature.h"
// After ours: it defines macros of the functions' names.
#include <nvml.h>

namespace anneal::cuda {
namespace {

#define SAME_PLACE(type, field)                              \
  EXPECT_EQ(offsetof(type, field), offsetof(::type, field)); \
  EXPECT_EQ(sizeof(type::field), sizeof(::type::field))

TEST(NvmlApi, Functions) {
#define X(function, result, ...)                                                                \
  EXPECT_EQ((signature_of<result (*)(__VA_ARGS__)>()), (signature_of<decltype(&::function)>())) \
      << #function;
  ANNEAL_FOR_EACH_NVML_FUNCTION(X)
#undef X
#define X(function, ...)                                     \
  EXPECT_EQ((signature_of<nvmlReturn_t (*)(__VA_ARGS__)>()), \
            (signature_of<decltype(&::function)>()))         \
      << #function;
  ANNEAL_FOR_EACH_MONITORED_NVML_FUNCTION(X)
#undef X
}

TEST(NvmlApi, Values) {
  EXPECT_EQ(static_cast<int>(NVML_SUCCESS), static_cast<int>(::NVML_SUCCESS));
  EXPECT_EQ(static_cast<int>(NVML_ERROR_INSUFFICIENT_SIZE),
            static_cast<int>(::NVML_ERROR_INSUFFICIENT_SIZE));
  EXPECT_EQ(static_cast<int>(NVML_CLOCK_GRAPHICS), static_cast<int>(::NVML_CLOCK_GRAPHICS));
  EXPECT_EQ(static_cast<int>(NVML_CLOCK_SM), static_cast<int>(::NVML_CLOCK_SM));
  EXPECT_EQ(static_cast<int>(NVML_CLOCK_MEM), static_cast<int>(::NVML_CLOCK_MEM));
  EXPECT_EQ(static_cast<int>(NVML_TEMPERATURE_GPU), static_cast<int>(::NVML_TEMPERATURE_GPU));
  EXPECT_EQ(static_cast<int>(NVML_PSTATE_UNKNOWN), static_cast<int>(::NVML_PSTATE_UNKNOWN));
}

TEST(NvmlApi, Structs) {
  SAME_PLACE(nvmlPciInfo_t, busIdLegacy);
  SAME_PLACE(nvmlPciInfo_t, domain);
  SAME_PLACE(nvmlPciInfo_t, pciSubSystemId);
  SAME_PLACE(nvmlPciInfo_t, busId);
  EXPECT_EQ(sizeof(nvmlPciInfo_t), sizeof(::nvmlPciInfo_t));
  SAME_PLACE(nvmlProcessInfo_t, pid);
  SAME_PLACE(nvmlProcessInfo_t, usedGpuMemory);
  SAME_PLACE(nvmlProcessInfo_t, gpuInstanceId);
  SAME_PLACE(nvmlProcessInfo_t, computeInstanceId);
  EXPECT_EQ(sizeof(nvmlProcessInfo_t), sizeof(::nvmlProcessInfo_t));
  SAME_PLACE(nvmlMemory_v2_t, total);
  SAME_PLACE(nvmlMemory_v2_t, free);
  SAME_PLACE(nvmlMemory_v2_t, used);
  EXPECT_EQ(sizeof(nvmlMemory_v2_t), sizeof(::nvmlMemory_v2_t));
  EXPECT_EQ(kNvmlMemoryVersion, ::nvmlMemory_v2);
  SAME_PLACE(nvmlUtilization_t, gpu);
  SAME_PLACE(nvmlUtilization_t, memory);
  EXPECT_EQ(sizeof(nvmlUtilization_t), sizeof(::nvmlUtilization_t));
}

}  // namespace
}  // namespace anneal::cuda
