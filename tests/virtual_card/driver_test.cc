// The virtual card's driver keeps CUDA's rules, and names who breaks them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

#include "anneal/kernels/cuda/runtime/launch.h"
#include "anneal/tests/virtual_card/virtual_driver.h"

namespace anneal::virtual_card {
namespace {

using VirtualDriverDeath = VirtualDriver;

TEST_F(VirtualDriver, WorkIsDoneWhenItIsWaitedFor) {
  const CUdeviceptr memory = allocate(128);
  std::vector<uint32_t> result(32, 5);
  EXPECT_EQ(launch(function(), memory), CUDA_SUCCESS);
  EXPECT_EQ(copy(result.data(), memory, 128), CUDA_SUCCESS);
  EXPECT_EQ(result[3], 0xffffffffu) << "what a host reads too early is no result";
  EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(result[3], 3u);
}

TEST_F(VirtualDriver, MemoryOfTheHostMayBeReusedInTheOrderOfAStream) {
  const CUdeviceptr memory = allocate(4), other = allocate(4);
  void* pinned = nullptr;
  cuMemHostAlloc(&pinned, 4, 0);
  auto* const word = static_cast<uint32_t*>(pinned);
  *word = 7;
  cuMemsetD8Async(other, 1, 4, stream_);
  EXPECT_EQ(copy(memory, pinned, 4), CUDA_SUCCESS);
  EXPECT_EQ(copy(pinned, other, 4), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(*word, 0x01010101u);
  EXPECT_EQ(copy(pinned, memory, 4), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(*word, 7u);
  cuMemFreeHost(pinned);
}

// What the card says of the call, without the line's end.
template <class Call>
std::string said_of(CUresult result, const Call& call) {
  setenv("ANNEAL_VIRTUAL_CARD_VERBOSE", "1", 1);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(call(), result);
  std::string said = ::testing::internal::GetCapturedStderr();
  unsetenv("ANNEAL_VIRTUAL_CARD_VERBOSE");
  if (said.ends_with('\n')) said.pop_back();
  return said;
}

TEST_F(VirtualDriver, LaunchesAreChecked) {
  const CUdeviceptr memory = allocate(4096);
  const auto refused = [&](CUfunction launched, std::array<unsigned, 3> grid,
                           std::array<unsigned, 3> block, unsigned shared_bytes = 0,
                           CUresult result = CUDA_ERROR_INVALID_VALUE) {
    return said_of(result, [&] { return launch(launched, memory, grid, block, shared_bytes); });
  };
  const std::string begin = "virtual card: cuLaunchKernel: launching f: ";
  EXPECT_EQ(refused(function(), {1, 70000, 1}, {32, 1, 1}), begin + "a grid of 1 x 70000 x 1");
  EXPECT_EQ(refused(function(), {1, 1, 65536}, {32, 1, 1}), begin + "a grid of 1 x 1 x 65536");
  EXPECT_EQ(refused(function(), {0, 1, 1}, {32, 1, 1}), begin + "an empty grid");
  EXPECT_EQ(refused(function(), {1, 1, 1}, {32, 0, 1}), begin + "an empty grid");
  EXPECT_EQ(refused(function(), {1, 1, 1}, {1, 1, 65}), begin + "a block of 1 x 1 x 65");
  EXPECT_EQ(refused(function(), {1, 1, 1}, {1025, 1, 1}), begin + "a block of 1025 x 1 x 1");
  EXPECT_EQ(refused(function(128), {1, 1, 1}, {1024, 1, 1}, 0, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES),
            begin + "128 registers for each of 1024 threads, 65536 there are");
  const CUfunction shared = function(32, 1024);
  EXPECT_EQ(refused(shared, {1, 1, 1}, {32, 1, 1}, 48 * 1024),
            begin + "49152 bytes of dynamic shared memory, 48128 allowed");
  const auto opt_in = [&](int bytes) {
    return cuFuncSetAttribute(shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes);
  };
  EXPECT_EQ(said_of(CUDA_ERROR_INVALID_VALUE, [&] { return opt_in(227 * 1024); }),
            "virtual card: cuFuncSetAttribute: 232448 bytes, 231424 allowed");
  EXPECT_EQ(opt_in(48 * 1024), CUDA_SUCCESS);
  EXPECT_EQ(launch(shared, memory, {1, 1, 1}, {32, 1, 1}, 48 * 1024), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
}

TEST_F(VirtualDriver, AFaultStays) {
  const CUdeviceptr memory = allocate(64);
  EXPECT_EQ(launch(function(), memory), CUDA_SUCCESS);  // 128 bytes
  EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_ERROR_ILLEGAL_ADDRESS);
  CUdeviceptr more = 0;
  EXPECT_EQ(cuMemAlloc_v2(&more, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
}

// Error 716 of every call from then on, as of a card.
TEST_F(VirtualDriver, AMisalignedAddressStays) {
  const CUdeviceptr memory = allocate(64);
  const CUfunction stores =
      function_of(ptx::program(".loc 1 7 3\nst.global.v4.u32 [%rd1+8], {%r1, %r1, %r1, %r1};"));
  EXPECT_EQ(launch(stores, memory, {1, 1, 1}, {1, 1, 1}), CUDA_SUCCESS);
  EXPECT_EQ(static_cast<int>(cuStreamSynchronize(stream_)), 716);
  EXPECT_THAT(machine().devices[0].context->fault,
              ::testing::AllOf(::testing::HasSubstr("f, line 7 (PTX line "),
                               ::testing::HasSubstr("a store of 16 bytes at byte 8, which is not a "
                                                    "multiple of it")));
  CUdeviceptr more = 0;
  CUevent event = nullptr;
  EXPECT_EQ(cuMemAlloc_v2(&more, 4), CUDA_ERROR_MISALIGNED_ADDRESS);
  EXPECT_EQ(cuEventCreate(&event, 0), CUDA_ERROR_MISALIGNED_ADDRESS);
  EXPECT_EQ(launch(stores, memory), CUDA_ERROR_MISALIGNED_ADDRESS);
  EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_ERROR_MISALIGNED_ADDRESS);
  const char* name = nullptr;
  EXPECT_EQ(cuGetErrorName(CUDA_ERROR_MISALIGNED_ADDRESS, &name), CUDA_SUCCESS);
  EXPECT_STREQ(name, "CUDA_ERROR_MISALIGNED_ADDRESS");
}

TEST_F(VirtualDriver, AByteBeyondAnAllocation) {
  EXPECT_EQ(launch(function(), allocate(127)), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(VirtualDriver, GraphsPlayWhatWasCaptured) {
  const CUdeviceptr memory = allocate(128);
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  EXPECT_EQ(cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  EXPECT_EQ(launch(function(), memory), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  std::vector<uint32_t> result(32);
  EXPECT_EQ(cuGraphLaunch(executable, stream_), CUDA_SUCCESS);
  EXPECT_EQ(copy(result.data(), memory, 128), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(result[7], 7u);
  EXPECT_EQ(cuGraphExecDestroy(executable), CUDA_SUCCESS);
}

TEST_F(VirtualDriver, AThreadWithoutAContextHasNoCaptureMode) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  std::thread([&] {
    EXPECT_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_ERROR_INVALID_CONTEXT);
    cuCtxPushCurrent_v2(context_);
    EXPECT_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
    EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);  // as it was
    EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    cuCtxPopCurrent_v2(&context_);
  }).join();
}

// As cuda.h says of CUstreamCaptureMode.
TEST_F(VirtualDriver, CapturesRefuseUnsafeCalls) {
  const auto allocation_in = [&](CUstreamCaptureMode capture, CUstreamCaptureMode mode,
                                 bool is_other_thread) {
    EXPECT_EQ(cuStreamBeginCapture_v2(stream_, capture), CUDA_SUCCESS);
    CUresult result = CUDA_SUCCESS;
    const auto allocates = [&] {
      if (is_other_thread) cuCtxPushCurrent_v2(context_);
      cuThreadExchangeStreamCaptureMode(&mode);
      CUdeviceptr memory = 0;
      result = cuMemAlloc_v2(&memory, 16);
      if (result == CUDA_SUCCESS) cuMemFree_v2(memory);
      cuThreadExchangeStreamCaptureMode(&mode);
      if (is_other_thread) cuCtxPopCurrent_v2(&context_);
    };
    if (is_other_thread)
      std::thread(allocates).join();
    else
      allocates();
    CUgraph graph = nullptr;
    const CUresult ended = cuStreamEndCapture(stream_, &graph);
    EXPECT_EQ(ended == CUDA_SUCCESS, result == CUDA_SUCCESS) << "a refused call ends the capture";
    if (graph != nullptr) cuGraphDestroy(graph);
    return result == CUDA_SUCCESS;
  };
  constexpr auto kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL;
  constexpr auto kLocal = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
  constexpr auto kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
  EXPECT_FALSE(allocation_in(kGlobal, kGlobal, false));
  EXPECT_FALSE(allocation_in(kGlobal, kGlobal, true));
  EXPECT_FALSE(allocation_in(kGlobal, kLocal, false));
  EXPECT_TRUE(allocation_in(kGlobal, kLocal, true));
  EXPECT_TRUE(allocation_in(kGlobal, kRelaxed, false));
  EXPECT_FALSE(allocation_in(kLocal, kGlobal, false));
  EXPECT_TRUE(allocation_in(kLocal, kGlobal, true));
  EXPECT_TRUE(allocation_in(kRelaxed, kGlobal, false));
}

TEST_F(VirtualDriver, ThreadsNeedAContext) {
  CUresult result = CUDA_SUCCESS;
  std::thread([&] {
    CUdeviceptr memory = 0;
    result = cuMemAlloc_v2(&memory, 16);
  }).join();
  EXPECT_EQ(result, CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(VirtualDriverDeath, TheHostChangesWhatIsCopied) {
  const CUdeviceptr memory = allocate(64);
  std::vector<uint32_t> pageable(16, 1), read(16);
  copy(memory, pageable.data(), 64);
  pageable[3] = 2;
  copy(read.data(), memory, 64);
  cuStreamSynchronize(stream_);
  EXPECT_EQ(read[3], 1u) << "pageable memory is read before the call returns";
  EXPECT_DEATH(
      {
        machine().reads_pageable_late = true;
        copy(memory, pageable.data(), 64);
        pageable[3] = 3;
        cuStreamSynchronize(stream_);
      },
      "cuMemcpyAsync.*the host memory changed before the copy was done");
  EXPECT_DEATH(
      {
        void* pinned = nullptr;
        cuMemHostAlloc(&pinned, 64, 0);
        copy(memory, pinned, 64);
        static_cast<uint32_t*>(pinned)[3] = 2;
        cuStreamSynchronize(stream_);
      },
      "cuMemcpyAsync.*the host memory changed before the copy was done");
}

TEST_F(VirtualDriverDeath, PageLockedMemoryIsFreedDuringACopy) {
  const CUdeviceptr memory = allocate(64);
  EXPECT_DEATH(
      {
        void* pinned = nullptr;
        cuMemHostAlloc(&pinned, 64, 0);
        copy(memory, pinned, 64);
        cuMemFreeHost(pinned);
      },
      "cuMemFreeHost.*while cuMemcpyAsync.*is under way");
}

TEST_F(VirtualDriverDeath, AStreamIsDestroyedWithWork) {
  const CUdeviceptr memory = allocate(64);
  EXPECT_DEATH(
      {
        CUstream second = nullptr;
        cuStreamCreate(&second, 0);
        std::vector<uint32_t> result(16);
        cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(result.data()), memory, 64, second);
        cuStreamDestroy_v2(second);
      },
      "cuStreamDestroy of stream .* while cuMemcpyAsync");
}

TEST_F(VirtualDriverDeath, HandlesThatWereFreed) {
  EXPECT_DEATH(
      {
        CUevent event = nullptr;
        cuEventCreate(&event, 0);
        cuEventDestroy_v2(event);
        cuEventRecord(event, stream_);
      },
      "event that was freed, or never made");
  EXPECT_DEATH(cuMemFree_v2(allocate(16) + 4), "there is no such allocation");
}

TEST_F(VirtualDriverDeath, AModuleIsUnloadedInFlight) {
  const CUdeviceptr memory = allocate(128);
  Context& context = *machine().devices[0].context;
  auto module = std::make_shared<Module>();
  module->context = &context;
  const void* const key = module.get();
  context.modules.emplace(key, module);
  const CUfunction launched = function();
  context.functions.at(launched)->module = module.get();
  EXPECT_DEATH(
      {
        launch(launched, memory);
        cuModuleUnload(reinterpret_cast<CUmodule>(const_cast<void*>(key)));
      },
      "cuModuleUnload while cuLaunchKernel.f. is under way");
  EXPECT_EQ(cuModuleUnload(reinterpret_cast<CUmodule>(const_cast<void*>(key))), CUDA_SUCCESS);
}

TEST_F(VirtualDriverDeath, AContextThatEndsIsCurrent) {
  EXPECT_DEATH(cuDevicePrimaryCtxRelease_v2(0), "a context that is current to a thread ends");
}

// A graph has the addresses of its capture.
TEST_F(VirtualDriver, AGraphOfMemoryThatWasFreedFails) {
  CUdeviceptr memory = 0;
  cuMemAlloc_v2(&memory, 128);
  const CUgraphExec executable = captured([&] { launch(function(), memory); });
  cuMemFree_v2(memory);
  allocate(128);
  EXPECT_EQ(cuGraphLaunch(executable, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(VirtualDriverDeath, AStaleGraph) {
  const CUdeviceptr memory = allocate(64);
  void* pinned = nullptr;
  cuMemHostAlloc(&pinned, 64, 0);
  const CUgraphExec executable = captured([&] { copy(memory, pinned, 64); });
  EXPECT_DEATH(
      {
        cuMemFreeHost(pinned);
        cuMemHostAlloc(&pinned, 32, 0);
        cuGraphLaunch(executable, stream_);
      },
      "a stale graph: the page-locked memory of its cuMemcpyAsync.* was freed");
  EXPECT_EQ(cuGraphLaunch(executable, stream_), CUDA_SUCCESS);
  EXPECT_DEATH(
      {
        std::memset(pinned, 1, 64);
        cuStreamSynchronize(stream_);
      },
      "the host memory changed before the copy was done");
  EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  cuGraphExecDestroy(executable);
  cuMemFreeHost(pinned);
}

TEST_F(VirtualDriverDeath, AStaleGraphOfMemoryOfTheDevice) {
  CUdeviceptr memory = 0;
  cuMemAlloc_v2(&memory, 64);
  const CUgraphExec executable = captured([&] { cuMemsetD8Async(memory, 1, 64, stream_); });
  EXPECT_EQ(cuGraphLaunch(executable, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  cuMemFree_v2(memory);
  EXPECT_DEATH(cuGraphLaunch(executable, stream_),
               "a stale graph: the memory of its cuMemsetD8Async.* was freed");
  cuGraphExecDestroy(executable);
}

TEST(GlobalMemory, ReusesAddressesIfAsked) {
  ptx::GlobalMemory memory(ptx::kFirstAddress, true), fresh;
  const uint64_t first = memory.allocate(64), second = memory.allocate(64);
  const uint64_t number = memory.find(first)->number;
  EXPECT_TRUE(memory.release(first));
  EXPECT_EQ(memory.allocate(4096), first);
  EXPECT_NE(memory.find(first)->number, number);
  EXPECT_EQ(memory.find(first + 4095), memory.find(first));
  EXPECT_NE(memory.find(second), memory.find(first));
  const uint64_t other = fresh.allocate(64);
  EXPECT_TRUE(fresh.release(other));
  EXPECT_NE(fresh.allocate(64), other);
}

TEST_F(VirtualDriverDeath, ALaunchWithAParameterTooFew) {
  const CUdeviceptr memory = allocate(128);
  std::string text = ptx::program("ret;");
  text.replace(text.find("f_param_0)"), 10, "f_param_0, .param .u64 f_param_1)");
  // In memory that was in use before.
  alignas(cuda::Arguments) std::byte storage[sizeof(cuda::Arguments)];
  for (size_t i = 0; i < sizeof(storage); i += sizeof(void*)) {
    const void* const older = &memory;
    std::memcpy(storage + i, &older, sizeof(older));
  }
  asm volatile("" ::"r"(storage) : "memory");
  auto* const arguments = new (storage) cuda::Arguments;
  arguments->add(memory);
  const CUfunction two = function_of(text);
  EXPECT_DEATH(cuLaunchKernel(two, 1, 1, 1, 32, 1, 1, 0, stream_,
                              const_cast<void**>(arguments->pointers()), nullptr),
               "launching f: parameter 2 of 2 is missing");
}

TEST_F(VirtualDriverDeath, ALaunchWithAParameterAtAnOddAddress) {
  const CUdeviceptr memory = allocate(128);
  const CUfunction function = function_of(ptx::program("ret;"));
  alignas(8) std::byte storage[16] = {};
  std::memcpy(storage + 4, &memory, sizeof(memory));
  void* parameters[] = {storage + 4};
  EXPECT_DEATH(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream_, parameters, nullptr),
               "launching f: parameter 1 of 1 lies at .*, which is no multiple of 8");
}

// The capture of a stream that the default stream waits for.
TEST_F(VirtualDriver, TheDefaultStreamEndsACapture) {
  CUstream blocking = nullptr;
  cuStreamCreate(&blocking, CU_STREAM_DEFAULT);
  const CUdeviceptr memory = allocate(16);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_NE(cuMemsetD8Async(memory, 0, 16, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  cuStreamDestroy_v2(blocking);
}

TEST_F(VirtualDriverDeath, AForkUsesTheCard) {
  EXPECT_DEATH(
      {
        if (const pid_t child = fork(); child != 0) {
          int status = 0;
          waitpid(child, &status, 0);
          std::abort();
        }
        CUdeviceptr memory = 0;
        cuMemAlloc_v2(&memory, 4);
      },
      "cuMemAlloc in a process that was forked after cuInit");
}

TEST_F(VirtualDriverDeath, AContextEndsWithMemory) {
  EXPECT_DEATH(
      {
        allocate(16);
        cuCtxPopCurrent_v2(&context_);
        cuDevicePrimaryCtxRelease_v2(0);
      },
      "the context of device 0 ends with 1 allocations, 1 streams");
}

}  // namespace
}  // namespace anneal::virtual_card
