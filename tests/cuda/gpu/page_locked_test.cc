// Inputs and outputs in page-locked memory of the host, for the emulated GPU, or the card that
// ANNEAL_TEST_DEVICE names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <future>

#include "anneal/engine/run/stream.h"
#include "anneal/tests/cuda/gpu/cpu_layer_net.h"
#include "anneal/tests/cuda/gpu_engine.h"
#include "anneal/tests/engine/graphs.h"

namespace anneal::testing {
namespace {

using ::testing::SizeIs;

using Values = std::map<std::string, std::vector<float>>;

// Host memory that the GPU copies from and to.
class PageLocked {
 public:
  explicit PageLocked(const Dims& dims)
      : memory_(allocate_memory(MemoryKind::kPinnedHost,
                                static_cast<size_t>(count(dims)) * sizeof(float), test_device())),
        view_{DataType::kF32,
              dims,
              row_major_strides(dims),
              memory_.get(),
              {MemoryKind::kPinnedHost, 0}} {}
  explicit PageLocked(const Tensor& values) : PageLocked(values.dims()) { write(values); }
  void write(const Tensor& values) const {
    std::memcpy(view_.data, values.bytes().data(), values.bytes().size());
  }
  const TensorView& view() const { return view_; }

 private:
  std::shared_ptr<std::byte> memory_;
  TensorView view_;
};

// No recording holds its address: the driver may give it to other memory later.
TEST(PageLockedMemory, MayBeFreedBetweenRuns) {
  const auto engine = gpu_engine(kConvNet);
  ExecutionContext context(engine);
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    const Tensor x = random_f32({1, 3, 9, 7}, seed);
    const PageLocked memory(x);
    context.set_input("x", memory.view());
    const PageLocked features(context.output_dims("features"));
    context.set_output("features", features.view());
    for (int run = 0; run < 3; ++run) {
      context.run();
      EXPECT_EQ(context.output("features").data, features.view().data);
      expect_near({{"y", elements(context.output("y"))}, {"features", elements(features.view())}},
                  reference(kConvNet, {x}));
    }
    context.set_output("features", {});
  }
  EXPECT_THAT(context.run_warnings(), SizeIs(0));
}

// The GPU copies it itself.
TEST(PageLockedMemory, NeedsNoStaging) {
  const auto engine = gpu_engine(kConvNet);
  const Tensor x = random_f32({1, 3, 9, 7}, 1);
  ExecutionContext staged(engine), direct(engine);
  run(staged, *engine, {x});
  const PageLocked memory(x);
  direct.set_input("x", memory.view());
  std::vector<PageLocked> outputs;
  for (const TensorInfo& port : engine->outputs()) {
    outputs.emplace_back(direct.output_dims(port.name));
    direct.set_output(port.name, outputs.back().view());
  }
  direct.run();
  EXPECT_LT(direct.memory_bytes(), staged.memory_bytes());
}

// Others than the plan's are staged.
TEST(PageLockedMemory, MayHaveAnyStrides) {
  const auto engine = gpu_engine(kConvNet);
  ExecutionContext context(engine);
  const Tensor x = random_f32({1, 3, 9, 7}, 1);
  const PageLocked memory({1, 3, 9, 14});
  TensorView every_second = memory.view();
  every_second.dims = x.dims();
  every_second.strides = {378, 126, 14, 2};
  for (size_t i = 0; i < x.as<float>().size(); ++i)
    every_second.as<float>()[2 * i] = x.as<float>()[i];
  context.set_input("x", every_second);
  context.run();
  expect_near(
      {{"y", elements(context.output("y"))}, {"features", elements(context.output("features"))}},
      reference(kConvNet, {x}));
}

// As memory of a GPU: the inputs may be written once the run says that they were read.
TEST(PageLockedMemory, InputsMayBeWrittenOnceTheyAreRead) {
  const auto engine = gpu_engine(kConvNet);
  ExecutionContext context(engine);
  const Stream stream = Stream::make(test_device());
  const PageLocked memory(Dims{1, 3, 9, 7});
  context.set_input("x", memory.view());
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    const Tensor x = random_f32({1, 3, 9, 7}, seed);
    memory.write(x);
    std::future<void> is_read = context.enqueue(stream);
    is_read.wait();
    memory.write(random_f32({1, 3, 9, 7}, 99));
    context.wait();
    expect_near(
        {{"y", elements(context.output("y"))}, {"features", elements(context.output("features"))}},
        reference(kConvNet, {x}));
  }
}

// A step of the CPU may read it until the end.
TEST(PageLockedMemory, ServesStepsOnTheCpu) {
  const auto engine = gpu_engine(kCpuLayerNet);
  ExecutionContext context(engine);
  const Tensor x = random_f32({1, 2, 3, 4, 3, 4}, 1);
  const PageLocked memory(x);
  context.set_input("x", memory.view());
  for (int run = 0; run < 3; ++run) {
    context.run();
    expect_near({{"p", elements(context.output("p"))}, {"n", elements(context.output("n"))}},
                reference(kCpuLayerNet, {x}));
  }
}

}  // namespace
}  // namespace anneal::testing
