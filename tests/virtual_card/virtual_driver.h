// A current context and a stream of the virtual card, for tests of its driver.
#pragma once
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <deque>
#include <string>
#include <vector>

#include "anneal/tests/virtual_card/card.h"
#include "anneal/tests/virtual_card/driver.h"
#include "anneal/tests/virtual_card/run_text.h"

namespace anneal::virtual_card {

class VirtualDriver : public ::testing::Test {
 protected:
  VirtualDriver() {
    // The card works with threads of its own, which a fork would not have.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    setenv("ANNEAL_VIRTUAL_CARD_COUNT", "2", 1);
    cuInit(0);
    EXPECT_EQ(cuDevicePrimaryCtxRetain(&context_, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxPushCurrent_v2(context_), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  ~VirtualDriver() override {
    cuStreamSynchronize(stream_);
    cuStreamDestroy_v2(stream_);
    for (const CUdeviceptr each : memory_) cuMemFree_v2(each);
    cuCtxPopCurrent_v2(&context_);
    cuDevicePrimaryCtxRelease_v2(0);
  }

  CUdeviceptr allocate(size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAlloc_v2(&address, bytes), CUDA_SUCCESS);
    memory_.push_back(address);
    return address;
  }
  // What the work puts on the stream, as a graph to launch.
  template <class Work>
  CUgraphExec captured(Work work) {
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    EXPECT_EQ(cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
    work();
    EXPECT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
    return executable;
  }
  // A function that stores each thread's number: one parameter, an address.
  CUfunction function(int registers = 32, int shared_bytes = 0) {
    const CUfunction made = function_of(ptx::program(
        "mul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\nst.global.u32 [%rd3], %r1;"));
    Function& f = *machine().devices[0].context->functions.at(made);
    f.resources.registers = registers;
    f.resources.shared_bytes = shared_bytes;
    return made;
  }
  // The first function of the text, in device 0.
  static CUfunction function_of(const std::string& text) {
    static std::deque<ptx::TextModule> kept;
    const ptx::TextModule& module = kept.emplace_back(ptx::parse(text));
    auto made = std::make_shared<Function>();
    made->code = ptx::decode(module, module.functions[0]);
    made->resources.registers = 32;
    const void* const key = made.get();
    machine().devices[0].context->functions.emplace(key, made);
    return reinterpret_cast<CUfunction>(const_cast<void*>(key));
  }
  CUresult launch(CUfunction function, CUdeviceptr memory, std::array<unsigned, 3> grid = {1, 1, 1},
                  std::array<unsigned, 3> block = {32, 1, 1}, unsigned shared_bytes = 0) {
    void* parameters[] = {&memory};
    return cuLaunchKernel(function, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                          shared_bytes, stream_, parameters, nullptr);
  }
  CUresult copy(void* to, CUdeviceptr from, size_t bytes) {
    return cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(to), from, bytes, stream_);
  }
  CUresult copy(CUdeviceptr to, const void* from, size_t bytes) {
    return cuMemcpyAsync(to, reinterpret_cast<CUdeviceptr>(from), bytes, stream_);
  }

  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  std::vector<CUdeviceptr> memory_;
};

}  // namespace anneal::virtual_card
