// What the fake cuDNN refuses when it runs, and its work among that of streams and graphs.
#include <gmock/gmock.h>

#include <thread>

#include "anneal/tests/virtual_card/cudnn/on_card.h"

namespace anneal::fake_cudnn {
namespace {

using ::testing::HasSubstr;

// y = a * b of 16 x 16 numbers.
class FakeCudnnMemory : public OnCard {
 protected:
  static constexpr size_t kCount = 256, kBytes = kCount * 4;

  Made square(int64_t uid) { return tensor(library, {.uid = uid, .dims = {1, 16, 16}}); }
  Made product_graph() {
    const Made operation = product(square(1), square(2), square(3));
    return graph({&operation});
  }
  // A matrix of zeros, and a number on its diagonal.
  static Numbers diagonal(float number) {
    Numbers made(kCount);
    for (size_t i = 0; i < 16; ++i) made[i * 17] = number;
    return made;
  }
  void expect_refused(const Made& plan, const Memory& memory, cuda::CUdeviceptr workspace,
                      Status status, const char* why) {
    EXPECT_EQ(execute(plan, pack_of(memory, workspace)), status) << why;
    EXPECT_THAT(last_error(library), HasSubstr(why));
  }
  // The first plan without a workspace, or with one.
  Made plan_with(bool has_workspace) {
    for (size_t i = 0;; ++i) {
      Made made = plan_of(product_graph(), i);
      if ((made.get<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)[0] != 0) == has_workspace)
        return made;
    }
  }
};
using FakeCudnnMemoryDeath = FakeCudnnMemory;

TEST_F(FakeCudnnMemory, WrongPacksAreRefused) {
  const Made made = plan_with(false);
  const auto a = upload(diagonal(2)), b = upload(diagonal(3)), y = allocate(kBytes);
  const auto bad = CUDNN_STATUS_BAD_PARAM;
  expect_refused(made, {{1, a}, {3, y}}, 0, bad, "tensor 2 is missing");
  expect_refused(made, {{1, a}, {2, b}, {3, y}, {4, y}}, 0, bad, "no tensor 4");
  expect_refused(made, {{1, a}, {2, 0}, {3, y}}, 0, CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
                 "tensor 2 is null");
  expect_refused(made, {{1, a + 4}, {2, b}, {3, y}}, 0, CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
                 "is not aligned to 16 bytes");
  expect_refused(made, {{1, a}, {2, b}, {3, a}}, 0, bad, "tensor 1 and tensor 3 share memory");
  expect_refused(made, {{1, a}, {2, b}, {3, allocate(kBytes - 16)}}, 0,
                 CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER, "error 1");
  EXPECT_EQ(execute(made, pack_of({{1, a}, {2, a}, {3, y}})), CUDNN_STATUS_SUCCESS)
      << "two inputs may share memory: " << last_error(library);
  driver.cuStreamSynchronize(stream);
}

TEST_F(FakeCudnnMemory, WrongWorkspacesAreRefused) {
  Made made = plan_with(true);
  const auto bytes =
      static_cast<size_t>(made.get<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)[0]);
  const Memory memory = {{1, upload(diagonal(2))}, {2, upload(diagonal(3))}, {3, allocate(kBytes)}};
  expect_refused(made, memory, 0, CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
                 "CUDNN_ATTR_VARIANT_PACK_WORKSPACE: none");
  expect_refused(made, memory, allocate(bytes + 256) + 16,
                 CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "CUDNN_ATTR_VARIANT_PACK_WORKSPACE");
  expect_refused(made, memory, allocate(bytes - 16), CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER,
                 "error 1");
  expect_refused(made, memory, memory[0].second, CUDNN_STATUS_BAD_PARAM, "share memory");
}

TEST_F(FakeCudnnMemory, AnotherDeviceIsRefused) {
  const Made made = plan_with(false);
  const Made pack =
      pack_of({{1, upload(diagonal(2))}, {2, upload(diagonal(3))}, {3, allocate(kBytes)}});
  cuda::CUcontext other = nullptr;
  driver.cuDevicePrimaryCtxRetain(&other, 1);
  driver.cuCtxPushCurrent(other);
  EXPECT_EQ(execute(made, pack), CUDNN_STATUS_BAD_PARAM);
  EXPECT_THAT(last_error(library), HasSubstr("the handle is of device 0"));
  driver.cuCtxPopCurrent(&other);
  driver.cuDevicePrimaryCtxRelease(1);
  // A plan for another architecture, which was made from properties.
  const Made a100 = properties(library, property_text(800)), g = product_graph();
  const Made elsewhere = plan(configs_of(heuristics(g, &a100)).back(), &a100);
  EXPECT_EQ(execute(elsewhere, pack), CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH);
}

TEST_F(FakeCudnnMemory, PlansAndPacksMustBeFinal) {
  const Made made = plan_with(false);
  const Made open(library, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  EXPECT_EQ(execute(made, open), CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  EXPECT_EQ(execute(open, made), CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
  EXPECT_EQ(library.cudnnBackendExecute(nullptr, made.handle(), open.handle()),
            CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
}

TEST_F(FakeCudnnMemory, WorkThatIsCapturedRunsAtEachLaunch) {
  const Made made = plan_with(false);
  const auto a = upload(diagonal(2)), b = upload(diagonal(3)), y = allocate(kBytes),
             z = allocate(kBytes);
  driver.cuStreamSynchronize(stream);
  EXPECT_EQ(driver.cuStreamBeginCapture(stream, cuda::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            cuda::CUDA_SUCCESS);
  EXPECT_EQ(execute(made, pack_of({{1, a}, {2, b}, {3, y}})), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(execute(made, pack_of({{1, y}, {2, y}, {3, z}})), CUDNN_STATUS_SUCCESS);
  cuda::CUgraph captured = nullptr;
  cuda::CUgraphExec executable = nullptr;
  EXPECT_EQ(driver.cuStreamEndCapture(stream, &captured), cuda::CUDA_SUCCESS);
  driver.cuGraphInstantiate(&executable, captured, 0);
  driver.cuGraphDestroy(captured);
  EXPECT_EQ(driver.cuGraphLaunch(executable, stream), cuda::CUDA_SUCCESS);
  EXPECT_EQ(download<float>(z, kCount), diagonal(36));
  copy(a, reinterpret_cast<cuda::CUdeviceptr>(diagonal(1).data()), kBytes);
  EXPECT_EQ(driver.cuGraphLaunch(executable, stream), cuda::CUDA_SUCCESS);
  EXPECT_EQ(download<float>(z, kCount), diagonal(9));
  driver.cuGraphExecDestroy(executable);
}

TEST_F(FakeCudnnMemory, TwoStreamsWithAnEvent) {
  const Made made = plan_with(false);
  const auto a = upload(diagonal(2)), b = upload(diagonal(3)), y = allocate(kBytes),
             z = allocate(kBytes);
  cuda::CUstream second = nullptr;
  cuda::CUevent event = nullptr;
  driver.cuStreamCreate(&second, cuda::CU_STREAM_NON_BLOCKING);
  driver.cuEventCreate(&event, cuda::CU_EVENT_DISABLE_TIMING);
  EXPECT_EQ(execute(made, pack_of({{1, a}, {2, b}, {3, y}})), CUDNN_STATUS_SUCCESS);
  driver.cuEventRecord(event, stream);
  driver.cuStreamWaitEvent(second, event, 0);
  EXPECT_EQ(library.cudnnSetStream(handle, second), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(execute(made, pack_of({{1, y}, {2, b}, {3, z}})), CUDNN_STATUS_SUCCESS);
  driver.cuStreamSynchronize(second);
  EXPECT_EQ(download<float>(z, kCount), diagonal(18));
  driver.cuEventDestroy(event);
  driver.cuStreamDestroy(second);
}

TEST_F(FakeCudnnMemoryDeath, TwoStreamsWithoutAnEventAreReported) {
  EXPECT_DEATH(
      {
        const Made made = plan_with(true);
        const auto a = upload(diagonal(2));
        const auto b = upload(diagonal(3));
        cuda::CUstream second = nullptr;
        driver.cuStreamCreate(&second, cuda::CU_STREAM_NON_BLOCKING);
        driver.cuStreamSynchronize(stream);
        const auto workspace = allocate(1 << 20);  // of both
        execute(made, pack_of({{1, a}, {2, b}, {3, allocate(kBytes)}}, workspace));
        library.cudnnSetStream(handle, second);
        execute(made, pack_of({{1, a}, {2, b}, {3, allocate(kBytes)}}, workspace));
        driver.cuStreamSynchronize(stream);
        driver.cuStreamSynchronize(second);
      },
      "nothing orders");
}

TEST_F(FakeCudnnMemory, AHandleIsUsedByTheThreadThatHasSetItsStream) {
  const Made made = plan_with(false);
  const Made pack =
      pack_of({{1, upload(diagonal(2))}, {2, upload(diagonal(3))}, {3, allocate(kBytes)}});
  std::thread([&] { library.cudnnSetStream(handle, stream); }).join();
  EXPECT_EQ(execute(made, pack), CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH);
  EXPECT_EQ(library.cudnnSetStream(handle, stream), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(execute(made, pack), CUDNN_STATUS_SUCCESS) << last_error(library);
  driver.cuStreamSynchronize(stream);
}

TEST_F(FakeCudnnMemory, AHandleIsNotMadeDuringACapture) {
  cuda::CUgraph captured = nullptr;
  Handle second = nullptr;
  driver.cuStreamBeginCapture(stream, cuda::CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_EQ(library.cudnnCreate(&second), CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER);
  EXPECT_EQ(driver.cuStreamEndCapture(stream, &captured),
            cuda::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(FakeCudnnMemoryDeath, APlanIsNotDestroyedBeforeItsWorkIsDone) {
  EXPECT_DEATH(
      {
        const Made made = plan_with(false);
        const auto a = upload(diagonal(2));
        execute(made, pack_of({{1, a}, {2, a}, {3, allocate(kBytes)}}));
      },
      "a plan is destroyed while work of it is under way");
}

TEST_F(FakeCudnnMemoryDeath, AnInputWithoutValuesIsAFault) {
  EXPECT_EXIT(
      {
        const Made made = plan_with(false);
        execute(made,
                pack_of({{1, allocate(kBytes)}, {2, upload(diagonal(2))}, {3, allocate(kBytes)}}));
        std::_Exit(driver.cuStreamSynchronize(stream) == cuda::CUDA_ERROR_LAUNCH_FAILED ? 7 : 8);
      },
      ::testing::ExitedWithCode(7), "cudnnBackendExecute reads byte 0 .* which has no value");
}

// Queries, keys and values lie in one matrix: each is a part with a larger stride.
TEST_F(FakeCudnnMemory, PartsOfAMatrixAreUsedAlone) {
  const Sizes dims = {1, 4, 8};
  const auto part = [&](int64_t uid) {
    return tensor(library, {.uid = uid, .dims = dims, .strides = {96, 24, 1}});
  };
  const Made y = tensor(library, {.uid = 3, .dims = {1, 4, 4}});
  const Made turned = tensor(library, {.uid = 2, .dims = {1, 8, 4}, .strides = {96, 1, 24}});
  const Made operation = product(part(1), turned, y);
  Made made = plan_of(graph({&operation}), 2);
  const auto whole = allocate(384), to = allocate(64);
  // Values in the first two thirds of each row alone.
  const Numbers values(16, 1);
  for (unsigned i = 0; i < 4; ++i)
    copy(whole + i * 96, reinterpret_cast<cuda::CUdeviceptr>(values.data()), 64);
  run(made, {{1, whole}, {2, whole + 32}, {3, to}});
  EXPECT_EQ(download<float>(to, 16), Numbers(16, 8));
  // The last third is free for the result of another product.
  const Made third = tensor(library, {.uid = 3, .dims = {1, 4, 4}, .strides = {96, 24, 1}});
  const Made inner = product(part(1), turned, third);
  Made other = plan_of(graph({&inner}), 2);
  run(other, {{1, whole}, {2, whole + 32}, {3, whole + 64}});
  EXPECT_EQ(driver.cuStreamSynchronize(stream), cuda::CUDA_SUCCESS);
}

}  // namespace
}  // namespace anneal::fake_cudnn
