// Order on the emulated device: what is put on a stream is done when it is waited for, not earlier.
#include <gmock/gmock.h>

#include <thread>

#include "anneal/kernels/cuda/runtime/device.h"
#include "anneal/tests/cuda/emulated.h"
#include "anneal/tests/error_of.h"

namespace anneal::cuda {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

class EmulatedStreamTest : public testing::Test {
 protected:
  CUfunction add_one() {
    return e.function("KERNEL($name, 1)(Out<i32> y, i32 n) { y[0] = y[0] * 10 + n; }");
  }
  CUdeviceptr address(void* data) { return reinterpret_cast<CUdeviceptr>(data); }
  CUstream another() {
    CUstream made = nullptr;
    EmulatedTarget::check(e.d.cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    return made;
  }
  CUevent event() {
    CUevent made = nullptr;
    EmulatedTarget::check(e.d.cuEventCreate(&made, CU_EVENT_DEFAULT));
    return made;
  }

  EmulatedTarget e;
};

TEST_F(EmulatedStreamTest, NothingIsDoneBeforeItIsWaitedFor) {
  const auto y = e.upload(std::vector<int32_t>{5});
  int32_t seen = -1;
  EmulatedTarget::check(e.d.cuMemcpyAsync(address(&seen), y, 4, e.stream));
  EXPECT_EQ(seen, -1);
  EmulatedTarget::check(e.wait());
  EXPECT_EQ(seen, 5);
  // Host memory is read when the copy is done: what changes it too early shows.
  int32_t given = 6;
  EmulatedTarget::check(e.d.cuMemcpyAsync(y, address(&given), 4, e.stream));
  given = 7;
  EXPECT_THAT(e.download<int32_t>(y, 1), ElementsAre(7));
}

TEST_F(EmulatedStreamTest, ParametersAreTakenAtOnce) {
  const auto function = add_one();
  const auto y = e.upload(std::vector<int32_t>{0});
  for (int32_t i = 1; i < 4; ++i) EmulatedTarget::check(e.launch(function, 1, 1, y, i));
  EXPECT_THAT(e.download<int32_t>(y, 1), ElementsAre(123));
}

TEST_F(EmulatedStreamTest, EventsOrderStreams) {
  const auto function = add_one();
  const auto y = e.upload(std::vector<int32_t>{0});
  const CUstream other = another();
  const CUevent first = event();
  int32_t seen = -1;
  EmulatedTarget::check(e.launch(function, 1, 1, y, 1));
  EmulatedTarget::check(e.d.cuEventRecord(first, e.stream));
  EmulatedTarget::check(e.launch(function, 1, 1, y, 2));
  EmulatedTarget::check(e.d.cuStreamWaitEvent(other, first, 0));
  EmulatedTarget::check(e.d.cuMemcpyAsync(address(&seen), y, 4, other));
  // What comes behind the event on the other stream is not waited for.
  EmulatedTarget::check(e.d.cuStreamSynchronize(other));
  EXPECT_EQ(seen, 1);
  EmulatedTarget::check(e.wait());
  EXPECT_THAT(e.download<int32_t>(y, 1), ElementsAre(12));
}

TEST_F(EmulatedStreamTest, WithoutAnEventTheOtherStreamIsNotWaitedFor) {
  const auto function = add_one();
  const auto y = e.upload(std::vector<int32_t>{4});
  const CUstream other = another();
  int32_t seen = -1;
  EmulatedTarget::check(e.launch(function, 1, 1, y, 2));
  EmulatedTarget::check(e.d.cuMemcpyAsync(address(&seen), y, 4, other));
  EmulatedTarget::check(e.d.cuStreamSynchronize(other));
  EXPECT_EQ(seen, 4);
}

TEST_F(EmulatedStreamTest, TimeBetweenEvents) {
  const CUevent start = event(), end = event();
  float milliseconds = -1;
  EXPECT_EQ(e.d.cuEventElapsedTime(&milliseconds, start, end), CUDA_ERROR_INVALID_HANDLE);
  EmulatedTarget::check(e.d.cuEventRecord(start, e.stream));
  EmulatedTarget::check(e.d.cuEventRecord(end, e.stream));
  EXPECT_EQ(e.d.cuEventElapsedTime(&milliseconds, start, end), CUDA_ERROR_NOT_READY);
  EmulatedTarget::check(e.d.cuEventSynchronize(end));
  EmulatedTarget::check(e.d.cuEventElapsedTime(&milliseconds, start, end));
  EXPECT_GE(milliseconds, 0);
}

TEST_F(EmulatedStreamTest, GraphsAreWhatWasCaptured) {
  const auto function = add_one();
  const auto y = e.upload(std::vector<int32_t>{0});
  int32_t seen = -1;
  EmulatedTarget::check(e.d.cuStreamBeginCapture(e.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EmulatedTarget::check(e.launch(function, 1, 1, y, 1));
  EmulatedTarget::check(e.d.cuMemcpyAsync(address(&seen), y, 4, e.stream));
  EmulatedTarget::check(e.launch(function, 1, 1, y, 2));
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  EmulatedTarget::check(e.d.cuStreamEndCapture(e.stream, &graph));
  EmulatedTarget::check(e.d.cuGraphInstantiate(&executable, graph, 0));
  EmulatedTarget::check(e.d.cuGraphDestroy(graph));
  EmulatedTarget::check(e.wait());
  EXPECT_EQ(seen, -1);
  EXPECT_THAT(e.download<int32_t>(y, 1), ElementsAre(0));

  EmulatedTarget::check(e.d.cuGraphLaunch(executable, e.stream));
  EmulatedTarget::check(e.d.cuGraphLaunch(executable, e.stream));
  EmulatedTarget::check(e.d.cuGraphExecDestroy(executable));
  EmulatedTarget::check(e.wait());
  EXPECT_EQ(seen, 121);
  EXPECT_THAT(e.download<int32_t>(y, 1), ElementsAre(1212));
}

TEST_F(EmulatedStreamTest, WhatMayNotBeCapturedEndsTheCapture) {
  const auto waits = [&] { return e.wait(); };
  const auto allocates = [&] {
    CUdeviceptr memory = 0;
    return e.d.cuMemAlloc(&memory, 4);
  };
  for (const std::function<CUresult()>& call :
       {std::function<CUresult()>(waits), std::function<CUresult()>(allocates)}) {
    EmulatedTarget::check(e.d.cuStreamBeginCapture(e.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    EXPECT_EQ(call(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CUgraph graph = nullptr;
    EXPECT_EQ(e.d.cuStreamEndCapture(e.stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(e.d.cuStreamEndCapture(e.stream, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  }
  EmulatedTarget::check(e.wait());
}

// The table of cuThreadExchangeStreamCaptureMode() in CUDA's reference manual.
TEST_F(EmulatedStreamTest, WhoseCallsEndACaptureDependsOnBothModes) {
  constexpr auto kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL,
                 kLocal = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                 kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
  const struct {
    CUstreamCaptureMode capture, caller;
    bool same_thread, ends;
  } cases[] = {
      {kGlobal, kGlobal, true, true},     {kGlobal, kGlobal, false, true},
      {kGlobal, kLocal, true, true},      {kGlobal, kLocal, false, false},
      {kGlobal, kRelaxed, true, false},   {kGlobal, kRelaxed, false, false},
      {kLocal, kGlobal, true, true},      {kLocal, kGlobal, false, false},
      {kLocal, kLocal, true, true},       {kLocal, kRelaxed, true, false},
      {kRelaxed, kGlobal, true, false},   {kRelaxed, kGlobal, false, false},
      {kRelaxed, kRelaxed, false, false},
  };
  CUcontext context = nullptr;
  EmulatedTarget::check(e.d.cuDevicePrimaryCtxRetain(&context, 0));
  for (const auto& each : cases) {
    SCOPED_TRACE(&each - cases);
    const auto allocate = [&] {
      EmulatedTarget::check(e.d.cuCtxPushCurrent(context));
      CUstreamCaptureMode mode = each.caller;
      EmulatedTarget::check(e.d.cuThreadExchangeStreamCaptureMode(&mode));
      EXPECT_EQ(mode, kGlobal) << "of every thread at first";
      CUdeviceptr memory = 0;
      EXPECT_EQ(e.d.cuMemAlloc(&memory, 4),
                each.ends ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS);
      EmulatedTarget::check(e.d.cuThreadExchangeStreamCaptureMode(&mode));
      EXPECT_EQ(mode, each.caller);
      EmulatedTarget::check(e.d.cuCtxPopCurrent(&context));
    };
    EmulatedTarget::check(e.d.cuStreamBeginCapture(e.stream, each.capture));
    each.same_thread ? allocate() : std::thread(allocate).join();
    CUgraph graph = nullptr;
    EXPECT_EQ(e.d.cuStreamEndCapture(e.stream, &graph),
              each.ends ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
  }
  e.d.cuDevicePrimaryCtxRelease(0);
}

TEST_F(EmulatedStreamTest, LaunchesThatACardRefuses) {
  const auto function = e.function("KERNEL($name, 64)(Out<i32> y) { y[0] = 1; }");
  CUdeviceptr y = e.allocate(4);
  void* parameters[] = {&y};
  const auto launch = [&](unsigned gx, unsigned gy, unsigned bx, unsigned shared) {
    return e.d.cuLaunchKernel(function, gx, gy, 1, bx, 1, 1, shared, e.stream, parameters, nullptr);
  };
  EXPECT_EQ(launch(1, 1, 65, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(emulated_fault(), HasSubstr("with 65 x 1 x 1 threads in a block, 64 at most"));
  EXPECT_EQ(launch(0, 1, 64, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 65536, 64, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 1, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 1, 64, 48 * 1024 + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(emulated_fault(), HasSubstr("49153 bytes of dynamic shared memory, 49152 at most"));
  EmulatedTarget::check(e.d.cuFuncSetAttribute(
      function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 227 * 1024));
  EXPECT_EQ(e.d.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                   227 * 1024 + 1),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(2, 3, 64, 227 * 1024), CUDA_SUCCESS);
  EmulatedTarget::check(e.wait());  // no call ended the context
}

TEST_F(EmulatedStreamTest, HandlesAreChecked) {
  const auto function = add_one();
  CUmodule module = nullptr;
  EXPECT_EQ(e.d.cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(e.d.cuStreamSynchronize(nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(e.d.cuModuleLoadData(&module, "no image of the emulated device"), CUDA_ERROR_UNKNOWN);
  EmulatedTarget::check(e.d.cuStreamDestroy(e.stream));
  EXPECT_EQ(e.launch(function, 1, 1, e.allocate(4), 1), CUDA_ERROR_INVALID_HANDLE);
  // The context is current to the thread that made it so.
  CUresult result = CUDA_SUCCESS;
  std::thread([&] {
    CUdeviceptr memory = 0;
    result = e.d.cuMemAlloc(&memory, 4);
  }).join();
  EXPECT_EQ(result, CUDA_ERROR_INVALID_CONTEXT);
}

TEST(EmulatedDeviceTest, FaultsAreTold) {
  const auto device = open_device("emulated");
  const auto function = code_of(*device).add(
      {"too_far", {}, "KERNEL($name, 32)(Out<f32> y) {\n  y[threadIdx.x] = 1;\n}"});
  EXPECT_TRUE(device->prepare_code({}).empty());  // code of this machine is in no engine file
  const auto memory = device->allocate(31 * 4);
  const auto stream = device->make_stream();
  Arguments arguments;
  arguments.add(memory->data());
  launch(*stream, *function, {.grid = {1, 1, 1}, .block = {32, 1, 1}}, arguments);
  EXPECT_THAT(error_of([&] { stream->wait(); }),
              AllOf(HasSubstr("device: "), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"),
                    HasSubstr(function->name), HasSubstr("thread (31, 0, 0)"),
                    HasSubstr("[line 2: y[threadIdx.x] = 1;]")));
  // Until all users of the lost device are destroyed.
  EXPECT_THAT(error_of([&] { device->allocate(4); }), HasSubstr("was lost"));
}

TEST(EmulatedDeviceTest, RunsAndRecords) {
  const auto device = open_device("emulated");
  EXPECT_EQ(device->target(), "emulated");
  const auto function = code_of(*device).add({"twice",
                                              {},
                                              "KERNEL($name, 32)(In<f32> x, Out<f32> y) {\n"
                                              "  y[threadIdx.x] = 2 * x[threadIdx.x];\n}"});
  device->prepare_code({});
  const auto x = device->allocate(32 * 4), y = device->allocate(32 * 4);
  const auto staging = device->allocate_staging(32 * 4);
  const auto stream = device->make_stream();
  auto* const values = reinterpret_cast<float*>(staging->data());
  const auto recording = stream->record([&] {
    Arguments arguments;
    arguments.add(x->data());
    arguments.add(y->data());
    device->copy(x->data(), staging->data(), 32 * 4, *stream);
    launch(*stream, *function, {.grid = {1, 1, 1}, .block = {32, 1, 1}}, arguments);
    device->copy(staging->data(), y->data(), 32 * 4, *stream);
  });
  ASSERT_NE(recording, nullptr);
  std::fill_n(values, 32, 3.0f);
  stream->play(*recording);
  stream->play(*recording);
  stream->wait();
  EXPECT_THAT(std::vector<float>(values, values + 32), Each(12.0f));
  EXPECT_GE(stream->microseconds([&] { stream->play(*recording); }), 0);
}

TEST(EmulatedDeviceTest, OutOfMemoryTellsWhatIsFree) {
  const Setting limit("ANNEAL_EMULATED_MEMORY", "1K");
  const auto device = open_device("emulated");
  const auto held = device->allocate(1000);
  EXPECT_THAT(error_of([&] { device->allocate(100); }),
              AllOf(HasSubstr("cannot allocate 100 bytes on emulated"),
                    HasSubstr("24 of its 1024 bytes are free")));
}

}  // namespace
}  // namespace anneal::cuda
