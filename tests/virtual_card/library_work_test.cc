// Work of libraries on the virtual card: in order with kernels, in graphs, with the same checks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "anneal/tests/virtual_card/library_work.h"
#include "anneal/tests/virtual_card/virtual_driver.h"

namespace anneal::virtual_card {
namespace {

using Run = std::function<void(std::byte* const*)>;

// As put_library_work(), for a program that links the card.
CUresult put(CUstream stream, const std::vector<LibraryMemory>& memory, Run run) {
  LibraryWork work{.name = "work", .memory = memory.data(), .memory_count = memory.size()};
  work.state = new Run(std::move(run));
  work.run = [](void* state, std::byte* const* at) { (*static_cast<Run*>(state))(at); };
  work.destroy = [](void* state) { delete static_cast<Run*>(state); };
  return virtual_card_library_work(stream, &work);
}

class LibraryWorks : public VirtualDriver {
 protected:
  // Doubles 32 numbers: those of `from` in `to`.
  CUresult put_doubling(CUstream stream, CUdeviceptr to, CUdeviceptr from) {
    return put(stream,
               {{.address = from, .bytes = 128, .is_read = true},
                {.address = to, .bytes = 128, .is_written = true}},
               [](std::byte* const* memory) {
                 for (size_t i = 0; i < 32; ++i) {
                   uint32_t value = 0;
                   std::memcpy(&value, memory[0] + i * 4, 4);
                   value *= 2;
                   std::memcpy(memory[1] + i * 4, &value, 4);
                 }
               });
  }
  std::vector<uint32_t> read(CUdeviceptr from) {
    std::vector<uint32_t> result(32);
    EXPECT_EQ(copy(result.data(), from, 128), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    return result;
  }
};
using LibraryWorksDeath = LibraryWorks;

TEST_F(LibraryWorks, ComesAfterTheKernelBeforeIt) {
  const CUdeviceptr numbers = allocate(128), doubled = allocate(128);
  EXPECT_EQ(launch(function(), numbers), CUDA_SUCCESS);
  EXPECT_EQ(put_doubling(stream_, doubled, numbers), CUDA_SUCCESS);
  EXPECT_EQ(read(doubled)[31], 62u);
  EXPECT_EQ(virtual_card_current_architecture(), 90);
  EXPECT_EQ(virtual_card_current_device(), 0);
}

TEST_F(LibraryWorks, RunsAtEachLaunchOfItsGraph) {
  const CUdeviceptr numbers = allocate(128);
  const auto kept = std::make_shared<int>(0);
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  EXPECT_EQ(launch(function(), numbers), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  EXPECT_EQ(put_doubling(stream_, numbers, numbers), CUDA_SUCCESS);
  EXPECT_EQ(put(stream_, {{.address = numbers, .bytes = 4, .is_read = true}},
                [kept](std::byte* const*) { ++*kept; }),
            CUDA_SUCCESS);
  EXPECT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(*kept, 0);
  EXPECT_EQ(cuGraphLaunch(executable, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphLaunch(executable, stream_), CUDA_SUCCESS);
  EXPECT_EQ(read(numbers)[31], 124u);
  EXPECT_EQ(*kept, 2);
  EXPECT_EQ(cuGraphExecDestroy(executable), CUDA_SUCCESS);
  EXPECT_EQ(kept.use_count(), 1);  // the state was destroyed
}

TEST_F(LibraryWorks, MemoryBeyondItsAllocationIsRefused) {
  const CUdeviceptr memory = allocate(128);
  const auto kept = std::make_shared<int>(0);
  const auto nothing = [kept](std::byte* const*) {};
  EXPECT_EQ(put(stream_, {{.address = memory, .bytes = 132, .is_written = true}}, nothing),
            CUDA_ERROR_INVALID_VALUE);
  const LibraryMemory rows{
      .address = memory, .bytes = 16, .rows = 3, .pitch = 60, .is_written = true};
  EXPECT_EQ(put(stream_, {rows}, nothing), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(put(stream_, {{.address = memory, .bytes = 0}}, nothing), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(kept.use_count(), 2);
}

TEST_F(LibraryWorks, OnlyRowsThatAreWrittenHaveValues) {
  const CUdeviceptr memory = allocate(128);
  const LibraryMemory rows{
      .address = memory, .bytes = 16, .rows = 4, .pitch = 32, .is_written = true};
  EXPECT_EQ(put(stream_, {rows}, [](std::byte* const*) {}), CUDA_SUCCESS);
  LibraryMemory reads = rows;
  reads.is_written = false, reads.is_read = true;
  EXPECT_EQ(put(stream_, {reads}, [](std::byte* const*) {}), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
}

TEST_F(LibraryWorksDeath, AValueThatIsMissingIsAFault) {
  EXPECT_EXIT(
      {
        const CUdeviceptr from = allocate(128);
        const CUdeviceptr to = allocate(128);
        put_doubling(stream_, to, from);
        std::_Exit(static_cast<int>(cuStreamSynchronize(stream_)) & 0xff);
      },
      ::testing::ExitedWithCode(CUDA_ERROR_LAUNCH_FAILED & 0xff),
      "work reads byte 0 of row 0 of its memory 0, which has no value");
}

TEST_F(LibraryWorksDeath, AMissingEventIsReported) {
  EXPECT_DEATH(
      {
        CUstream second = nullptr;
        cuStreamCreate(&second, CU_STREAM_NON_BLOCKING);
        const CUdeviceptr numbers = allocate(128);
        const CUdeviceptr doubled = allocate(128);
        launch(function(), numbers);
        put_doubling(second, doubled, numbers);
        cuStreamSynchronize(stream_);
        cuStreamSynchronize(second);
      },
      "nothing orders");
}

}  // namespace
}  // namespace anneal::virtual_card
