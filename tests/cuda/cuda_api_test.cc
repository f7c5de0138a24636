// Our declarations of CUDA's interfaces against the toolkit's headers.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <type_traits>

#include "anneal/kernels/cuda/api/driver.h"
// After ours: it defines macros of the functions' names.
#include <cublasLt.h>
#include <cuda.h>
#include <cudnn.h>
#include <nvrtc.h>

namespace anneal::cuda {
namespace {

// How a type travels: "i4" an integer or enumerator of 4 bytes, "p" and what it points at.
template <class T>
std::string passing_of() {
  if constexpr (std::is_pointer_v<T>) {
    using To = std::remove_pointer_t<T>;
    const std::string constant = std::is_const_v<To> ? "c" : "";
    using Plain = std::remove_const_t<To>;
    if constexpr (std::is_void_v<Plain> || std::is_class_v<Plain>)
      return "p" + constant + "?";
    else
      return "p" + constant + passing_of<Plain>();
  } else if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) {
    return "i" + std::to_string(sizeof(T));
  } else {
    static_assert(std::is_floating_point_v<T>);
    return "f" + std::to_string(sizeof(T));
  }
}
template <class R, class... A>
std::string signature_of(R (*)(A...)) {
  std::string text = passing_of<R>() + "(";
  ((text += passing_of<A>() + " "), ...);
  return text + ")";
}
template <class F>
std::string signature_of() {
  return signature_of(static_cast<F>(nullptr));
}

#define TEXT(x) #x
#define EXPANDED(x) TEXT(x)

TEST(CudaApi, DriverFunctions) {
#define X(function, symbol, ...)                                                                  \
  EXPECT_EQ((signature_of<CUresult (*)(__VA_ARGS__)>()), (signature_of<decltype(&::function)>())) \
      << #function;                                                                               \
  if (std::string(#function) != "cuEventElapsedTime") {                                           \
    EXPECT_STREQ(#symbol, EXPANDED(function)) << "symbol of " #function;                          \
  }
  ANNEAL_FOR_EACH_DRIVER_FUNCTION(X)
#undef X
  // The older of two symbols, which every driver has.
  EXPECT_STREQ(EXPANDED(cuEventElapsedTime), "cuEventElapsedTime_v2");
}

TEST(CudaApi, FunctionsOfTheOtherLibraries) {
#define X(function, result, ...)                                                                \
  EXPECT_EQ((signature_of<result (*)(__VA_ARGS__)>()), (signature_of<decltype(&::function)>())) \
      << #function;
  ANNEAL_FOR_EACH_NVRTC_FUNCTION(X)
  ANNEAL_FOR_EACH_CUBLAS_LT_FUNCTION(X)
  ANNEAL_FOR_EACH_CUDNN_FUNCTION(X)
#undef X
}

TEST(CudaApi, ASignatureTellsWhatDiffers) {
  EXPECT_NE((signature_of<int (*)(int*)>()), (signature_of<int (*)(int)>()));
  EXPECT_NE((signature_of<int (*)(int)>()), (signature_of<int (*)(size_t)>()));
  EXPECT_NE((signature_of<int (*)(int)>()), (signature_of<int (*)(int, int)>()));
  EXPECT_NE((signature_of<int (*)(int*)>()), (signature_of<int (*)(size_t*)>()));
  EXPECT_NE((signature_of<int (*)(float)>()), (signature_of<int (*)(int)>()));
}

TEST(CudaApi, TypesAndValues) {
  EXPECT_EQ(sizeof(CUdeviceptr), sizeof(::CUdeviceptr));
  EXPECT_EQ(sizeof(CUdevice), sizeof(::CUdevice));
#define SAME(name) EXPECT_EQ(static_cast<int64_t>(name), static_cast<int64_t>(::name)) << #name
  SAME(CUDA_SUCCESS);
  SAME(CUDA_ERROR_INVALID_VALUE);
  SAME(CUDA_ERROR_OUT_OF_MEMORY);
  SAME(CUDA_ERROR_NOT_INITIALIZED);
  SAME(CUDA_ERROR_DEINITIALIZED);
  SAME(CUDA_ERROR_DEVICE_UNAVAILABLE);
  SAME(CUDA_ERROR_NO_DEVICE);
  SAME(CUDA_ERROR_INVALID_DEVICE);
  SAME(CUDA_ERROR_INVALID_IMAGE);
  SAME(CUDA_ERROR_INVALID_CONTEXT);
  SAME(CUDA_ERROR_NO_BINARY_FOR_GPU);
  SAME(CUDA_ERROR_ECC_UNCORRECTABLE);
  SAME(CUDA_ERROR_NVLINK_UNCORRECTABLE);
  SAME(CUDA_ERROR_CONTAINED);
  SAME(CUDA_ERROR_INVALID_HANDLE);
  SAME(CUDA_ERROR_ILLEGAL_STATE);
  SAME(CUDA_ERROR_NOT_FOUND);
  SAME(CUDA_ERROR_NOT_READY);
  SAME(CUDA_ERROR_ILLEGAL_ADDRESS);
  SAME(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  SAME(CUDA_ERROR_LAUNCH_TIMEOUT);
  SAME(CUDA_ERROR_CONTEXT_IS_DESTROYED);
  SAME(CUDA_ERROR_ASSERT);
  SAME(CUDA_ERROR_HARDWARE_STACK_ERROR);
  SAME(CUDA_ERROR_ILLEGAL_INSTRUCTION);
  SAME(CUDA_ERROR_MISALIGNED_ADDRESS);
  SAME(CUDA_ERROR_INVALID_ADDRESS_SPACE);
  SAME(CUDA_ERROR_INVALID_PC);
  SAME(CUDA_ERROR_LAUNCH_FAILED);
  SAME(CUDA_ERROR_NOT_PERMITTED);
  SAME(CUDA_ERROR_NOT_SUPPORTED);
  SAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  SAME(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  SAME(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  SAME(CUDA_ERROR_UNKNOWN);
  SAME(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  SAME(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
  SAME(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
  SAME(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
  SAME(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
  SAME(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
  SAME(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
  SAME(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  SAME(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  SAME(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  SAME(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  SAME(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
  SAME(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
  SAME(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  SAME(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  SAME(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
  SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  SAME(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  SAME(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  SAME(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  SAME(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
  SAME(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  SAME(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  SAME(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
  SAME(CU_FUNC_ATTRIBUTE_NUM_REGS);
  SAME(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  SAME(CU_STREAM_CAPTURE_MODE_GLOBAL);
  SAME(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  SAME(CU_STREAM_CAPTURE_MODE_RELAXED);
  SAME(CU_STREAM_DEFAULT);
  SAME(CU_STREAM_NON_BLOCKING);
  SAME(CU_EVENT_DEFAULT);
  SAME(CU_EVENT_BLOCKING_SYNC);
  SAME(CU_EVENT_DISABLE_TIMING);
  SAME(NVRTC_SUCCESS);
  SAME(NVRTC_ERROR_COMPILATION);
  SAME(CUBLAS_STATUS_SUCCESS);
  SAME(CUDNN_STATUS_SUCCESS);
#undef SAME
}

}  // namespace
}  // namespace anneal::cuda
