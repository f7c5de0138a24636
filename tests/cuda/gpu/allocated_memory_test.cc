// allocate_memory() and copy_tensor(), in C++ and C, for the emulated GPU, or the card that
// ANNEAL_TEST_DEVICE names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <thread>

#include "anneal/engine/run/c_api.h"
#include "anneal/engine/run/stream.h"
#include "anneal/tests/cuda/gpu_engine.h"
#include "anneal/tests/engine/graphs.h"
#include "anneal/tests/error_of.h"

namespace anneal::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

int test_gpu() { return *gpu_number(*cuda_backend().open(test_device())); }

// f32 memory of the GPU, or page-locked.
struct Allocated {
  explicit Allocated(const Dims& dims, MemoryKind kind = MemoryKind::kCuda)
      : memory(
            allocate_memory(kind, static_cast<size_t>(count(dims)) * sizeof(float), test_device())),
        view{DataType::kF32,
             dims,
             row_major_strides(dims),
             memory.get(),
             {kind, kind == MemoryKind::kCuda ? test_gpu() : 0}} {}
  std::shared_ptr<std::byte> memory;
  TensorView view;
};

std::vector<float> counted(int64_t size) {
  std::vector<float> values(static_cast<size_t>(size));
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

TEST(AllocatedMemory, HoldsInputsAndOutputs) {
  const auto engine = gpu_engine(kConvNet);
  const Tensor x = random_f32({1, 3, 9, 7}, 1);
  ExecutionContext context(engine);
  const Allocated input(x.dims());
  copy_tensor(input.view, x.view());
  context.set_input(engine->inputs()[0].name, input.view);
  std::map<std::string, Allocated> outputs;
  for (const TensorInfo& port : engine->outputs()) {
    const Allocated& output =
        outputs.emplace(port.name, context.output_dims(port.name)).first->second;
    context.set_output(port.name, output.view);
  }
  context.run();
  std::map<std::string, std::vector<float>> got;
  for (const auto& [name, output] : outputs) {
    got[name].resize(static_cast<size_t>(count(output.view.dims)));
    copy_tensor(view(got[name], output.view.dims), output.view);
  }
  expect_near(got, reference(kConvNet, {x}));
  EXPECT_TRUE(context.run_warnings().empty());
}

// Between all places, with strides of host memory on either side.
TEST(AllocatedMemory, IsCopiedElementByElement) {
  const std::vector<float> values = counted(24);
  const TensorView columns = {DataType::kF32,
                              {6, 4},
                              {1, 6},
                              reinterpret_cast<std::byte*>(const_cast<float*>(values.data()))};
  const Allocated a({6, 4}), b({6, 4}), locked({6, 4}, MemoryKind::kPinnedHost);
  copy_tensor(a.view, columns);
  copy_tensor(b.view, a.view);
  copy_tensor(locked.view, b.view);
  std::vector<float> rows(24), back(24);
  copy_tensor(view(rows, {6, 4}), locked.view);
  for (size_t row = 0; row < 6; ++row)
    for (size_t column = 0; column < 4; ++column)
      ASSERT_EQ(rows[row * 4 + column], values[column * 6 + row]);
  TensorView to = columns;
  to.data = reinterpret_cast<std::byte*>(back.data());
  copy_tensor(to, b.view);
  EXPECT_THAT(back, ElementsAreArray(values));
}

// Of every size, and from several threads at once. 3 MB: more than one piece of a strided copy.
TEST(AllocatedMemory, IsCopiedByAnyThread) {
  std::vector<std::jthread> threads;
  for (const int64_t size : {int64_t{1}, int64_t{1000}, int64_t{768 * 1024}})
    threads.emplace_back([size] {
      const std::vector<float> values = counted(size);
      std::vector<float> got(values.size());
      for (int round = 0; round < 3; ++round) {
        const Allocated memory({size});
        copy_tensor(memory.view, view(values, {size}));
        std::ranges::fill(got, 0.0F);
        copy_tensor(view(got, {size}), memory.view);
        ASSERT_EQ(got, values);
      }
    });
}

TEST(AllocatedMemory, IsCopiedAfterTheWorkOnTheDefaultStream) {
  const auto device = cuda_backend().open(test_device());
  const auto ours = device->make_stream(), other = device->make_stream();
  const Allocated from({64}), to({64});
  for (int round = 0; round < 4; ++round) {
    std::vector<float> values = counted(64 + round), got(64);
    values.erase(values.begin(), values.begin() + round);
    copy_tensor(from.view, view(values, {64}));
    other->begin_after(nullptr);
    device->copy(to.view.data, from.view.data, 64 * sizeof(float), *other);
    other->end_before(nullptr);
    copy_tensor(view(got, {64}), to.view);
    EXPECT_EQ(got, values);
    other->wait();
  }
}

TEST(AllocatedMemory, MayBeEmpty) {
  const Allocated none({0, 3});
  EXPECT_NE(none.memory, nullptr);
  std::vector<float> values;
  copy_tensor(none.view, view(values, {0, 3}));
  copy_tensor(view(values, {0, 3}), none.view);
}

TEST(AllocatedMemory, NeedsAGpu) {
  const auto refused = [](MemoryKind kind, const std::string& gpu) {
    return error_of([&] { allocate_memory(kind, 16, gpu); });
  };
  EXPECT_THAT(refused(MemoryKind::kHost, test_device()), HasSubstr("use kCuda, or kPinnedHost"));
  EXPECT_THAT(refused(MemoryKind::kCuda, "cpu"), HasSubstr("\"cpu\" is no GPU: use cuda, cuda:1"));
  EXPECT_THAT(refused(MemoryKind::kCuda, "sm_90"), HasSubstr("\"sm_90\""));
  EXPECT_THROW(allocate_memory(MemoryKind::kCuda, 16, "cuda:77"), Error);
  EXPECT_THROW(allocate_memory(MemoryKind::kCuda, size_t{1} << 60, test_device()), Error);
}

TEST(AllocatedMemory, IsNotCopiedWhereItDoesNotFit) {
  const Allocated a({2, 3}), b({2, 3});
  std::vector<float> host(12);
  const auto refused = [](const TensorView& to, const ConstTensorView& from) {
    return error_of([&] { copy_tensor(to, from); });
  };
  EXPECT_THAT(refused(a.view, view(host, {3, 4})),
              HasSubstr("a tensor of f32 [3,4] cannot be copied to one of f32 [2,3]"));
  TensorView changed = a.view;
  changed.dtype = DataType::kI32;
  EXPECT_THAT(refused(changed, b.view), HasSubstr("a tensor of f32 [2,3] cannot be copied to"));
  changed.dtype = DataType{77};
  EXPECT_THAT(refused(changed, b.view), HasSubstr("dtype 77"));
  changed = a.view;
  changed.strides = {1, 2};
  EXPECT_THAT(refused(changed, view(std::span(host).first(6), {2, 3})),
              AllOf(HasSubstr("the tensor to copy to has shape [2,3] and strides [1,2]"),
                    HasSubstr("make it dense and row-major")));
  changed.strides = {1};
  EXPECT_THAT(refused(changed, b.view), HasSubstr("more or fewer strides than axes"));
  changed = a.view;
  changed.data = nullptr;
  EXPECT_THAT(refused(b.view, changed), HasSubstr("the tensor to copy from has no memory"));
  EXPECT_THAT(refused(a.view, a.view), HasSubstr("overlaps"));
  EXPECT_THAT(
      refused(view(std::span(host).first(6), {2, 3}), view(std::span(host).subspan(3, 6), {2, 3})),
      HasSubstr("overlaps"));
  changed = b.view;
  changed.place.device = test_gpu() + 7;
  EXPECT_THAT(refused(a.view, changed), HasSubstr("copy to the host first"));
}

anneal_tensor c_tensor(void* data, anneal_memory_kind memory, int32_t device) {
  anneal_tensor tensor = {};
  tensor.size = sizeof(tensor);
  tensor.dtype = ANNEAL_F32;
  tensor.rank = 1;
  tensor.dims[0] = 8;
  tensor.data = data;
  tensor.memory = memory;
  tensor.memory_device = device;
  return tensor;
}

TEST(AllocatedMemory, IsThatOfC) {
  anneal_error error = {};
  error.size = sizeof(error);
  const std::string gpu = test_device();
  void *a = nullptr, *b = nullptr, *locked = nullptr;
  anneal_memory* owners[3] = {};
  ASSERT_EQ(anneal_memory_make(ANNEAL_CUDA, 32, gpu.c_str(), &owners[0], &a, &error), ANNEAL_OK);
  ASSERT_EQ(anneal_memory_make(ANNEAL_CUDA, 32, gpu.c_str(), &owners[1], &b, nullptr), ANNEAL_OK);
  ASSERT_EQ(anneal_memory_make(ANNEAL_PINNED_HOST, 32, gpu.c_str(), &owners[2], &locked, &error),
            ANNEAL_OK);
  const std::vector<float> values = counted(8);
  std::memcpy(locked, values.data(), 32);
  std::vector<float> got(8);
  const anneal_tensor tensors[] = {
      c_tensor(locked, ANNEAL_PINNED_HOST, 0), c_tensor(a, ANNEAL_CUDA, test_gpu()),
      c_tensor(b, ANNEAL_CUDA, test_gpu()), c_tensor(got.data(), ANNEAL_HOST, 0)};
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(anneal_copy(&tensors[i + 1], &tensors[i], &error), ANNEAL_OK) << error.message;
  EXPECT_EQ(got, values);
  EXPECT_EQ(anneal_copy(&tensors[1], &tensors[1], &error), ANNEAL_INVALID_ARGUMENT);
  EXPECT_THAT(error.message, HasSubstr("overlaps"));
  EXPECT_EQ(anneal_copy(&tensors[1], nullptr, &error), ANNEAL_INVALID_ARGUMENT);
  for (anneal_memory* const owner : owners) anneal_memory_free(owner);
  anneal_memory_free(nullptr);

  const auto refused = [&](anneal_memory_kind kind, const char* name, void** data) {
    return anneal_memory_make(kind, 32, name, &owners[0], data, &error);
  };
  EXPECT_EQ(refused(ANNEAL_HOST, gpu.c_str(), &a), ANNEAL_INVALID_ARGUMENT);
  EXPECT_EQ(refused(ANNEAL_CUDA, "cpu", &a), ANNEAL_INVALID_ARGUMENT);
  EXPECT_EQ(refused(ANNEAL_CUDA, gpu.c_str(), nullptr), ANNEAL_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace anneal::testing
