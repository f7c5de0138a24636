// Functions compiled for the host and run through the emulated driver's table.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "anneal/kernels/cuda/code/code.h"
#include "anneal/kernels/cuda/code/jit.h"
#include "anneal/kernels/cuda/runtime/emulated_gpu.h"
#include "anneal/tests/cuda/environment.h"

namespace anneal::cuda {

inline const Driver& emulated_driver() { return emulated_gpu().driver; }
inline std::string emulated_fault() { return emulated_gpu().fault(); }
inline std::vector<FunctionCounts> emulated_counts(CUstream stream) {
  return emulated_gpu().take_counts(stream);
}
inline size_t emulated_live_allocations() { return emulated_gpu().live_allocations(); }
inline const Compiler& host_compiler(bool counts = false) {
  return counts ? emulated_gpu().counting_compiler : emulated_gpu().compiler;
}

class EmulatedTarget {
 public:
  explicit EmulatedTarget(const std::string& order = "forward")
      : order_("ANNEAL_EMULATED_ORDER", order) {
    check(d.cuDevicePrimaryCtxRetain(&context_, 0));
    check(d.cuCtxPushCurrent(context_));
    check(d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  }
  ~EmulatedTarget() {
    CUcontext popped;
    d.cuCtxPopCurrent(&popped);
    d.cuDevicePrimaryCtxRelease(0);
  }
  EmulatedTarget(const EmulatedTarget&) = delete;
  EmulatedTarget& operator=(const EmulatedTarget&) = delete;

  // A function of this text ("KERNEL($name, 32)(...) {...}"), named family and digits.
  CUfunction function(const std::string& text, std::vector<std::string_view> headers = {},
                      bool counts = false) {
    Code code;
    const auto made = code.add({"f", std::move(headers), text});
    const auto image = compile_once(host_compiler(counts), program_of(code.functions()), 90);
    CUmodule module = nullptr;
    check(d.cuModuleLoadData(&module, image.data()));
    CUfunction function = nullptr;
    check(d.cuModuleGetFunction(&function, module, made->name.c_str()));
    return function;
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
    return memory;
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

  static void check(CUresult result) { ASSERT_EQ(result, CUDA_SUCCESS) << emulated_fault(); }

  const Driver& d = emulated_driver();
  CUstream stream = nullptr;

 private:
  const Setting order_;
  CUcontext context_ = nullptr;
};

}  // namespace anneal::cuda
