// The virtual card's streams: what nothing orders is reported with both calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>
#include <vector>

#include "anneal/tests/virtual_card/virtual_driver.h"

namespace anneal::virtual_card {
namespace {

// In the order in which they were done.
constexpr const char* kTwoCalls =
    "nothing orders (cuMemcpyAsync.* on stream 2 of device 0 and cuLaunchKernel.f. on stream 1 of "
    "device 0|cuLaunchKernel.f. on stream 1 of device 0 and cuMemcpyAsync.* on stream 2 of device "
    "0), which use byte (0|64) of an allocation of 128 bytes";

class StreamOrder : public VirtualDriver {
 protected:
  StreamOrder() {
    EXPECT_EQ(cuStreamCreate(&second_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    EXPECT_EQ(cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  }
  ~StreamOrder() override {
    cuStreamSynchronize(second_);
    cuStreamDestroy_v2(second_);
    cuEventDestroy_v2(event_);
  }
  // The second stream's later work comes after the first one's.
  void order() {
    EXPECT_EQ(cuEventRecord(event_, stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamWaitEvent(second_, event_, 0), CUDA_SUCCESS);
  }
  void wait_for_both() {
    EXPECT_EQ(cuStreamSynchronize(second_), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  }
  CUresult copy_on_second(void* to, CUdeviceptr from, size_t bytes) {
    return cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(to), from, bytes, second_);
  }

  CUstream second_ = nullptr;
  CUevent event_ = nullptr;
};
using StreamOrderDeath = StreamOrder;

TEST_F(StreamOrder, AnEventOrdersStreams) {
  const CUdeviceptr memory = allocate(128);
  std::vector<uint32_t> result(32);
  EXPECT_EQ(launch(function(), memory), CUDA_SUCCESS);
  order();
  EXPECT_EQ(copy_on_second(result.data(), memory, 128), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(second_), CUDA_SUCCESS);
  EXPECT_EQ(result[31], 31u);
}

TEST_F(StreamOrder, AWaitOfTheHostOrdersStreams) {
  const CUdeviceptr memory = allocate(128);
  std::vector<uint32_t> result(32);
  EXPECT_EQ(launch(function(), memory), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(copy_on_second(result.data(), memory, 128), CUDA_SUCCESS);
  wait_for_both();
  EXPECT_EQ(result[31], 31u);
}

// "Each launch is ordered behind both any previous work in hStream and any previous launches of
// hGraphExec" (cuda.h).
TEST_F(StreamOrder, LaunchesOfOneGraphAreOrdered) {
  const CUdeviceptr memory = allocate(128);
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  launch(function(), memory);
  cuStreamEndCapture(stream_, &graph);
  cuGraphInstantiateWithFlags(&executable, graph, 0);
  cuGraphDestroy(graph);
  for (const CUstream each : {stream_, second_, stream_, second_})
    EXPECT_EQ(cuGraphLaunch(executable, each), CUDA_SUCCESS);
  wait_for_both();
  cuGraphExecDestroy(executable);
}

TEST_F(StreamOrder, TheDefaultStreamComesBetweenBlockingStreams) {
  CUstream blocking = nullptr;
  cuStreamCreate(&blocking, CU_STREAM_DEFAULT);
  const CUdeviceptr memory = allocate(128);
  std::vector<uint32_t> result(32);
  cuMemsetD8Async(memory, 1, 128, blocking);
  cuMemsetD8Async(memory, 2, 128, nullptr);
  cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(result.data()), memory, 128, blocking);
  EXPECT_EQ(cuStreamSynchronize(blocking), CUDA_SUCCESS);
  EXPECT_EQ(result[31], 0x02020202u);
  EXPECT_EQ(cuStreamDestroy_v2(blocking), CUDA_SUCCESS);
}

TEST_F(StreamOrderDeath, ACopyWithoutItsEvent) {
  const CUdeviceptr memory = allocate(128);
  const CUfunction writes = function();
  EXPECT_DEATH(
      {
        std::vector<uint32_t> result(32);
        launch(writes, memory);
        copy_on_second(result.data(), memory + 64, 64);
        wait_for_both();
      },
      kTwoCalls);
}

TEST_F(StreamOrderDeath, AWriteBehindACopyWithoutItsEvent) {
  const CUdeviceptr memory = allocate(128);
  EXPECT_DEATH(
      {
        std::vector<uint32_t> result(32);
        cuMemsetD8Async(memory, 1, 128, stream_);
        order();
        copy_on_second(result.data(), memory, 128);
        launch(function(), memory);
        wait_for_both();
      },
      kTwoCalls);
}

TEST_F(StreamOrder, BytesBesideEachOtherNeedNoOrder) {
  const CUdeviceptr memory = allocate(256);
  cuMemsetD8Async(memory, 1, 65, stream_);
  cuMemsetD8Async(memory + 65, 1, 100, second_);
  wait_for_both();
}

TEST_F(StreamOrderDeath, TwoCopiesOfOneHostBuffer) {
  const CUdeviceptr memory = allocate(64), other = allocate(64);
  EXPECT_DEATH(
      {
        void* pinned = nullptr;
        cuMemHostAlloc(&pinned, 64, 0);
        cuMemsetD8Async(memory, 1, 64, stream_);
        copy(pinned, memory, 64);
        cuMemcpyAsync(other, reinterpret_cast<CUdeviceptr>(pinned), 64, second_);
      },
      "nothing orders cuMemcpyAsync.* on stream 1 .* and cuMemcpyAsync.* on stream 2 .*which use "
      "memory of the host");
}

// A value that is missing may be the result of work that was not waited for.
TEST_F(StreamOrder, AFaultNamesWhatIsNotOrdered) {
  if (machine().seed != 0) GTEST_SKIP() << "with a seed the work may have been done early";
  const CUdeviceptr memory = allocate(128);
  cuMemsetD8Async(memory, 1, 128, second_);
  EXPECT_EQ(launch(function_of(ptx::program("ld.global.u32 %r2, [%rd1];")), memory), CUDA_SUCCESS);
  cuEventRecord(event_, stream_);
  EXPECT_EQ(cuEventSynchronize(event_), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_THAT(machine().devices[0].context->fault,
              ::testing::HasSubstr("nothing orders it with cuMemsetD8Async"));
}

TEST_F(StreamOrder, TwoStreamsWorkAtTheSameTime) {
  const CUfunction loops = function_of(
      ptx::program("mov.u32 %r2, 0;\n$again:\nadd.s32 %r2, %r2, 1;\nsetp.lt.u32 %p1, %r2, 300000;\n"
                   "@%p1 bra $again;\nst.global.u32 [%rd1], %r2;"));
  CUdeviceptr memory = allocate(4), other = allocate(4);
  void* parameters[] = {&other};
  // On a busy machine the first may be done before the second begins.
  for (int tries = 0; tries < 50 && machine().queues.most_running() < 2; ++tries) {
    EXPECT_EQ(launch(loops, memory, {1, 1, 1}, {1, 1, 1}), CUDA_SUCCESS);
    cuLaunchKernel(loops, 1, 1, 1, 1, 1, 1, 0, second_, parameters, nullptr);
    order();
    EXPECT_EQ(cuStreamSynchronize(second_), CUDA_SUCCESS);
  }
  EXPECT_EQ(machine().queues.most_running(), 2);
}

// No order among the threads of the host but what the driver gives.
class ThreadsApart : public StreamOrder {
 protected:
  ThreadsApart() { machine().queues.order().set_threads_apart(true); }
  ~ThreadsApart() override { machine().queues.order().set_threads_apart(false); }
  // In a thread that has called the driver before `first`, which this thread does.
  template <class First, class Then>
  void beside(const First& first, const Then& then) {
    std::promise<void> has_called, go;
    std::thread other([&] {
      cuCtxPushCurrent_v2(context_);
      has_called.set_value();
      go.get_future().wait();
      then();
      CUcontext popped = nullptr;
      cuCtxPopCurrent_v2(&popped);
    });
    has_called.get_future().wait();
    first();
    go.set_value();
    other.join();
  }
  void write_and_wait(CUdeviceptr memory) {
    EXPECT_EQ(cuMemsetD8Async(memory, 1, 64, stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  }
  void read(CUdeviceptr memory) {
    std::vector<uint32_t> result(16);
    EXPECT_EQ(copy_on_second(result.data(), memory, 64), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(second_), CUDA_SUCCESS);
  }
};
using ThreadsApartDeath = ThreadsApart;

TEST_F(ThreadsApartDeath, AnotherThreadHasWaited) {
  const CUdeviceptr memory = allocate(64);
  EXPECT_DEATH(beside([&] { write_and_wait(memory); }, [&] { read(memory); }),
               "nothing orders cuMemsetD8Async.* on stream 1 of device 0 and cuMemcpyAsync.* on "
               "stream 2 of device 0");
}

TEST_F(ThreadsApartDeath, AnotherThreadFreesMemoryOfACopy) {
  const CUdeviceptr memory = allocate(64);
  EXPECT_DEATH(
      {
        void* pinned = nullptr;
        cuMemHostAlloc(&pinned, 64, 0);
        beside(
            [&] {
              copy(memory, pinned, 64);
              cuStreamSynchronize(stream_);
            },
            [&] { cuMemFreeHost(pinned); });
      },
      "cuMemFreeHost.* by a thread that has not waited for cuMemcpyAsync.* on stream 1");
}

TEST_F(ThreadsApart, TheThreadWaitsItself) {
  const CUdeviceptr memory = allocate(64);
  // By an event of the stream, as the thread itself or as its stream.
  beside([&] { write_and_wait(memory); },
         [&] {
           EXPECT_EQ(cuEventRecord(event_, stream_), CUDA_SUCCESS);
           EXPECT_EQ(cuEventSynchronize(event_), CUDA_SUCCESS);
           read(memory);
         });
  beside([&] { write_and_wait(memory); },
         [&] {
           order();
           read(memory);
         });
}

TEST_F(ThreadsApart, ThreadsThatBeginLaterOrHaveEnded) {
  const CUdeviceptr memory = allocate(64);
  const auto in_a_thread = [&](const auto& calls) {
    std::thread([&] {
      cuCtxPushCurrent_v2(context_);
      calls();
      CUcontext popped = nullptr;
      cuCtxPopCurrent_v2(&popped);
    }).join();
  };
  write_and_wait(memory);
  in_a_thread([&] { read(memory); });
  in_a_thread([&] { write_and_wait(memory); });
  read(memory);
}

// By default: the threads may have a mutex between them.
TEST_F(StreamOrder, AWaitOfAnotherThreadCounts) {
  const CUdeviceptr memory = allocate(64);
  std::thread([&] {
    cuCtxPushCurrent_v2(context_);
    cuMemsetD8Async(memory, 1, 64, stream_);
    cuStreamSynchronize(stream_);
    CUcontext popped = nullptr;
    cuCtxPopCurrent_v2(&popped);
  }).join();
  std::vector<uint32_t> result(16);
  EXPECT_EQ(copy_on_second(result.data(), memory, 64), CUDA_SUCCESS);
  wait_for_both();
  EXPECT_EQ(result[15], 0x01010101u);
}

class TwoCards : public VirtualDriver {
 protected:
  TwoCards() {
    EXPECT_EQ(cuDevicePrimaryCtxRetain(&other_, 1), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxPushCurrent_v2(other_), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAlloc_v2(&there_, 64), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamCreate(&its_stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    cuCtxPopCurrent_v2(&other_);
  }
  ~TwoCards() override {
    cuCtxPushCurrent_v2(other_);
    cuStreamSynchronize(its_stream_);
    cuStreamDestroy_v2(its_stream_);
    cuMemFree_v2(there_);
    cuCtxPopCurrent_v2(&other_);
    cuDevicePrimaryCtxRelease_v2(1);
  }

  CUcontext other_ = nullptr;
  CUdeviceptr there_ = 0;
  CUstream its_stream_ = nullptr;
};
using TwoCardsDeath = TwoCards;

TEST_F(TwoCards, WorkTogether) {
  const CUdeviceptr here = allocate(64);
  EXPECT_NE(here, there_);
  std::vector<uint8_t> first(64), second(64);
  std::thread([&] {
    cuCtxPushCurrent_v2(other_);
    EXPECT_EQ(cuMemsetD8Async(there_, 2, 64, its_stream_), CUDA_SUCCESS);
    cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(second.data()), there_, 64, its_stream_);
    EXPECT_EQ(cuStreamSynchronize(its_stream_), CUDA_SUCCESS);
    CUcontext popped = nullptr;
    cuCtxPopCurrent_v2(&popped);
    EXPECT_EQ(popped, other_);
  }).join();
  EXPECT_EQ(cuMemsetD8Async(here, 1, 64, stream_), CUDA_SUCCESS);
  EXPECT_EQ(copy(first.data(), here, 64), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(first[63], 1);
  EXPECT_EQ(second[63], 2);
}

TEST_F(TwoCards, AFunctionCannotUseMemoryOfTheOtherCard) {
  EXPECT_EQ(launch(function(), there_), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(TwoCardsDeath, AWrongDeviceIsCurrentOnASecondThread) {
  const CUdeviceptr here = allocate(128);
  EXPECT_DEATH(std::thread([&] {
                 cuCtxPushCurrent_v2(other_);
                 cuMemsetD8Async(here, 0, 64, stream_);
               }).join(),
               "a stream of another context");
  EXPECT_DEATH(std::thread([&] {
                 cuCtxPushCurrent_v2(other_);
                 cuMemsetD8Async(here, 0, 64, its_stream_);
               }).join(),
               "cuMemsetD8Async.* is memory of device 0, and device 1 is current");
  EXPECT_DEATH(std::thread([&] {
                 cuCtxPushCurrent_v2(other_);
                 void* parameters[] = {&there_};
                 cuLaunchKernel(function(), 1, 1, 1, 1, 1, 1, 0, its_stream_, parameters, nullptr);
               }).join(),
               "a function of another context");
}

TEST_F(TwoCardsDeath, AContextIsNotRestored) {
  EXPECT_DEATH(std::thread([&] { cuCtxPushCurrent_v2(other_); }).join(),
               "a thread ends, and the context of device 1 is still current");
  EXPECT_DEATH(std::thread([&] {
                 CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
                 cuCtxPushCurrent_v2(other_);
                 cuThreadExchangeStreamCaptureMode(&mode);
                 cuCtxPopCurrent_v2(&other_);
               }).join(),
               "a thread ends, and its capture mode is not what it was");
}

}  // namespace
}  // namespace anneal::virtual_card
