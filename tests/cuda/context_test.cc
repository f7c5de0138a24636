// A device's primary context belongs to the whole process: what others do with it, and what our
// calls do to others.
#include "anneal/kernels/cuda/runtime/context.h"

#include <gmock/gmock.h>

#include <thread>

#include "anneal/kernels/cuda/runtime/device.h"
#include "anneal/kernels/cuda/runtime/gpu_device.h"
#include "anneal/tests/cuda/environment.h"
#include "anneal/tests/cuda/fake_driver.h"
#include "anneal/tests/cuda/target_under_test.h"
#include "anneal/tests/error_of.h"

namespace anneal::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class ContextTest : public testing::Test {
 protected:
  ContextTest() : no_cache_("ANNEAL_CACHE_DIR", "") { fake_card() = {}; }
  std::unique_ptr<Device> open() {
    return open_driver_device({.driver = fake_driver(), .compiler = compiler_, .name = "cuda:0"});
  }
  FakeCompiler compiler_;

 private:
  const Setting no_cache_;
};

TEST_F(ContextTest, AFailedPushIsAnError) {
  const auto device = open();
  const auto stream = device->make_stream();
  const auto memory = device->allocate(100);
  fake_card().fails["cuCtxPushCurrent"] = CUDA_ERROR_OUT_OF_MEMORY;
  auto before = fake_card().calls;
  const std::string error =
      "device: making its context current to this thread on cuda:0 (Made-up): CUDA error 2";
  EXPECT_EQ(error_of([&] { device->allocate(1); }), error);
  EXPECT_EQ(error_of([&] { device->allocate_staging(1); }), error);
  EXPECT_EQ(error_of([&] { device->make_stream(); }), error);
  EXPECT_EQ(error_of([&] { stream->wait(); }), error);
  EXPECT_EQ(error_of([&] { stream->record([] {}); }), error);
  EXPECT_EQ(error_of([&] { device->copy(memory->data(), memory->data() + 50, 1, *stream); }),
            error);
  auto after = fake_card().calls;
  before.erase("cuCtxPushCurrent");
  after.erase("cuCtxPushCurrent");
  EXPECT_EQ(after, before) << "calls have met whatever context was current";
  fake_card().fails.clear();
  EXPECT_EQ(device->allocate(1)->size(), 1u) << "the device is as good as before";
}

TEST_F(ContextTest, AResetDeviceIsToldWithTheRemedy) {
  for (const CUresult result : {CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_CONTEXT_IS_DESTROYED}) {
    const auto device = open();
    fake_card().fails["cuCtxPushCurrent"] = result;
    EXPECT_THAT(error_of([&] { device->allocate(1); }),
                AllOf(StartsWith("device: the context of cuda:0 (Made-up) was destroyed ("),
                      HasSubstr("has reset the device"), HasSubstr("load the engine anew")));
    fake_card().fails.clear();
    EXPECT_EQ(open()->allocate(1)->size(), 1u);
  }
}

// The driver reuses the addresses and handles of a destroyed context for the next one.
TEST_F(ContextTest, NothingOfAContextThatIsGoneIsFreed) {
  {
    const auto device = open();
    const auto a = code_of(*device).add({"a", {}, "KERNEL($name, 256)(i64 n) {}"});
    device->prepare_code({});
    const auto stream = device->make_stream();
    const auto memory = device->allocate(100), staging = device->allocate_staging(100);
    const auto recording = stream->record([] {});
    fake_card().fails["cuCtxPushCurrent"] = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  EXPECT_EQ(fake_card().live["memory"], 2);
  EXPECT_EQ(fake_card().live["stream"], 1);
  EXPECT_EQ(fake_card().live["executable graph"], 1);
  EXPECT_EQ(fake_card().live["module"], 1);
  EXPECT_EQ(fake_card().live["context"], 0) << "the device itself is released all the same";
  EXPECT_EQ(fake_card().entered, 0);
  EXPECT_FALSE(fake_card().was_called_outside);
}

TEST_F(ContextTest, NoCallEndsTheCaptureOfAnother) {
  fake_card().mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
  {
    const auto device = open();
    const auto a = code_of(*device).add({"a", {}, "KERNEL($name, 256)(i64 n) {}"});
    device->prepare_code({});
    const auto stream = device->make_stream();
    const auto memory = device->allocate(100), staging = device->allocate_staging(100);
    stream->wait();
    stream->record([] {
      EXPECT_EQ(fake_card().mode, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
          << "what is not ours and cannot be recorded makes the recording fail";
    });
  }
  EXPECT_GT(fake_card().calls["cuModuleUnload"], 0);
  EXPECT_THAT(fake_card().ended_captures, IsEmpty());
  EXPECT_EQ(fake_card().mode, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) << "as it was";
}

// What torch.cuda.graph() does, in this thread or in another one.
TEST(ContextOfADevice, LeavesAGlobalCaptureAlone) {
  const auto use = [] {
    const auto device = open_device(device_under_test());
    const auto fill = code_of(*device).add(
        {"fill", {}, "KERNEL($name, 32)(Out<i32> y) {\n  y[threadIdx.x] = 7;\n}"});
    device->prepare_code({});
    const auto memory = device->allocate(32 * 4), staging = device->allocate_staging(32 * 4);
    const auto stream = device->make_stream();
    const auto recording = stream->record([&] {
      Arguments arguments;
      arguments.add(memory->data());
      launch(*stream, *fill, {{1, 1, 1}, {32, 1, 1}}, arguments);
      device->copy(staging->data(), memory->data(), 32 * 4, *stream);
    });
    stream->play(*recording);
    stream->wait();
    EXPECT_EQ(reinterpret_cast<const int32_t*>(staging->data())[31], 7);
  };
  DriverTarget other(driver_under_test(), compiler_under_test());
  const CUdeviceptr memory = other.upload(std::vector<int32_t>{0});
  for (const bool in_this_thread : {true, false}) {
    DriverTarget::check(other.d.cuStreamBeginCapture(other.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    DriverTarget::check(other.d.cuMemsetD8Async(memory, 1, 4, other.stream));
    in_this_thread ? use() : std::thread(use).join();
    CUgraph graph = nullptr;
    EXPECT_EQ(other.d.cuStreamEndCapture(other.stream, &graph), CUDA_SUCCESS);
    DriverTarget::check(other.d.cuGraphDestroy(graph));
  }
}

}  // namespace
}  // namespace anneal::cuda
