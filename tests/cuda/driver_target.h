// A current context and a stream of a driver, for tests that call it directly.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "anneal/kernels/cuda/code/code.h"
#include "anneal/kernels/cuda/code/jit.h"

namespace anneal::cuda {

class DriverTarget {
 public:
  DriverTarget(const Driver& driver, const Compiler& compiler) : d(driver), compiler_(&compiler) {
    check(d.cuDevicePrimaryCtxRetain(&context_, 0));
    check(d.cuCtxPushCurrent(context_));
    check(d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    check(d.cuDeviceGetAttribute(&major_, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    check(d.cuDeviceGetAttribute(&minor_, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0));
  }
  // Of what the caller has freed itself, or of a context that a fault has ended, nothing is freed.
  ~DriverTarget() {
    if (d.cuStreamSynchronize(stream) == CUDA_SUCCESS) {
      for (const CUdeviceptr each : memory_) d.cuMemFree(each);
      for (const CUmodule each : modules_) d.cuModuleUnload(each);
      d.cuStreamDestroy(stream);
    }
    CUcontext popped = nullptr;
    d.cuCtxPopCurrent(&popped);
    d.cuDevicePrimaryCtxRelease(0);
  }
  DriverTarget(const DriverTarget&) = delete;
  DriverTarget& operator=(const DriverTarget&) = delete;

  // A function of this text ("KERNEL($name, 32)(...) {...}"), named family and digits.
  CUfunction function(const std::string& text, std::vector<std::string_view> headers = {}) {
    return function_by(*compiler_, text, std::move(headers));
  }

  template <class T>
  CUdeviceptr upload(const std::vector<T>& values) {
    const CUdeviceptr memory = allocate(values.size() * sizeof(T));
    check(d.cuMemcpyAsync(memory, reinterpret_cast<CUdeviceptr>(values.data()),
                          values.size() * sizeof(T), stream));
    check(d.cuStreamSynchronize(stream));
    return memory;
  }
  CUdeviceptr allocate(size_t bytes) {
    CUdeviceptr memory = 0;
    check(d.cuMemAlloc(&memory, bytes));
    memory_.push_back(memory);
    return memory;
  }
  void free(CUdeviceptr memory) {
    std::erase(memory_, memory);
    check(d.cuMemFree(memory));
  }
  template <class T>
  std::vector<T> download(CUdeviceptr memory, size_t count) {
    std::vector<T> values(count);
    check(d.cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(values.data()), memory, count * sizeof(T),
                          stream));
    check(d.cuStreamSynchronize(stream));
    return values;
  }

  template <class... P>
  CUresult launch(CUfunction function, unsigned blocks, unsigned threads, P... parameters) {
    return launch_with(function, blocks, threads, 0, parameters...);
  }
  template <class... P>
  CUresult launch_with(CUfunction function, unsigned blocks, unsigned threads, unsigned shared,
                       P... parameters) {
    void* pointers[] = {&parameters..., nullptr};
    return d.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, shared, stream, pointers,
                            nullptr);
  }
  CUresult wait() { return d.cuStreamSynchronize(stream); }

  static void check(CUresult result) { ASSERT_EQ(result, CUDA_SUCCESS); }

  const Driver& d;
  CUstream stream = nullptr;

 protected:
  CUfunction function_by(const Compiler& compiler, const std::string& text,
                         std::vector<std::string_view> headers) {
    Code code;
    const auto made = code.add({"f", std::move(headers), text});
    const auto image = compile_once(compiler, program_of(code.functions()), 10 * major_ + minor_);
    CUmodule module = nullptr;
    check(d.cuModuleLoadData(&module, image.data()));
    modules_.push_back(module);
    CUfunction function = nullptr;
    check(d.cuModuleGetFunction(&function, module, made->name.c_str()));
    return function;
  }

 private:
  const Compiler* const compiler_;
  CUcontext context_ = nullptr;
  int major_ = 0, minor_ = 0;
  std::vector<CUdeviceptr> memory_;
  std::vector<CUmodule> modules_;
};

}  // namespace anneal::cuda
