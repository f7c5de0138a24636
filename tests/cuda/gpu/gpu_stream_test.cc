// Runs on streams of a GPU: the emulated one, or the card that ANNEAL_TEST_DEVICE names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "anneal/engine/run/debug.h"
#include "anneal/engine/run/stream.h"
#include "anneal/tests/cuda/gpu_engine.h"
#include "anneal/tests/engine/graphs.h"
#include "anneal/tests/error_of.h"

namespace anneal::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::map<std::string, std::vector<float>> outputs_of(const ExecutionContext& context,
                                                     const Engine& engine) {
  std::map<std::string, std::vector<float>> outputs;
  for (const TensorInfo& port : engine.outputs())
    outputs[port.name] = elements(context.output(port.name));
  return outputs;
}

// Sets inputs of a seed, whose memory it holds.
struct GpuRun {
  explicit GpuRun(std::shared_ptr<const Engine> from) : engine(std::move(from)), context(engine) {}
  void set(uint32_t seed) {
    const auto count = static_cast<size_t>(anneal::count(engine->inputs()[0].dims));
    const Tensor drawn = random_f32(engine->inputs()[0].dims, seed);
    x.assign(drawn.as<float>().begin(), drawn.as<float>().begin() + static_cast<ptrdiff_t>(count));
    tensors = {drawn};
    context.set_input("x", view(x, engine->inputs()[0].dims));
  }
  void expect_done() {
    context.wait();
    expect_near(outputs_of(context, *engine), reference(kConvNet, tensors));
  }
  std::shared_ptr<const Engine> engine;
  ExecutionContext context;
  std::vector<float> x;
  std::vector<Tensor> tensors;
};

// The second run is recorded, the third is replayed.
TEST(GpuStream, TakesRunsOfItsDevice) {
  const auto device = cuda_backend().open(test_device());
  const auto of_application = device->make_stream();
  GpuRun run(gpu_engine(kConvNet));
  for (const Stream& stream :
       {Stream::make(test_device()), Stream::make(), Stream::from_cuda(of_application->native()),
        Stream::from_cuda(nullptr)})
    for (uint32_t seed = 1; seed <= 4; ++seed) {
      run.set(seed);
      const auto read = run.context.enqueue(stream);
      run.expect_done();
      EXPECT_EQ(read.wait_for(std::chrono::seconds(0)), std::future_status::ready);
    }
}

TEST(GpuStream, ReadsInputsBeforeEnqueueReturns) {
  GpuRun run(gpu_engine(kConvNet));
  const Stream stream = Stream::make(test_device());
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    run.set(seed);
    const auto read = run.context.enqueue(stream);
    EXPECT_EQ(read.wait_for(std::chrono::seconds(0)), std::future_status::ready);
    std::fill(run.x.begin(), run.x.end(), 1e9f);
    run.expect_done();
  }
}

TEST(GpuStream, SeveralContextsShareOneAndSeveral) {
  const auto engine = gpu_engine(kConvNet);
  std::vector<std::unique_ptr<GpuRun>> runs;
  for (int i = 0; i < 4; ++i) runs.push_back(std::make_unique<GpuRun>(engine));
  const Stream first = Stream::make(test_device()), second = Stream::make(test_device());
  for (uint32_t round = 0; round < 3; ++round) {
    for (uint32_t i = 0; i < 4; ++i) {
      runs[i]->set(4 * round + i);
      runs[i]->context.enqueue(i < 3 ? first : second);
    }
    for (const auto& run : runs) run->expect_done();
  }
  runs[0]->context.enqueue(first);  // and is destroyed
}

TEST(GpuStream, ErrorsAreThrownByWait) {
  GpuRun run(gpu_engine(kConvNet));
  run.set(1);
  const Stream stream = Stream::make(test_device());
  observe(run.context, [](const Observation&) { fail(ErrorCode::kIo, "the disk is full"); });
  run.context.enqueue(stream);
  EXPECT_EQ(error_of([&] { run.context.wait(); }), "io: the disk is full");
  observe(run.context, {});
  run.context.enqueue(stream);
  run.expect_done();
}

TEST(GpuStream, IsRefusedByEnginesOfOtherDevices) {
  const auto on_cpu = make_engine(build_for(kConvNet, {"cpu"}), {.device = "cpu"});
  ExecutionContext context(on_cpu);
  EXPECT_THAT(error_of([&] { context.enqueue(Stream::make(test_device())); }),
              AllOf(HasSubstr("unsupported: a stream of " + test_device()),
                    HasSubstr("an engine on x86-64")));
  if (test_device() != "emulated") return;
  int no_stream = 0;
  GpuRun run(gpu_engine(kConvNet));
  run.set(1);
  EXPECT_THAT(error_of([&] { run.context.enqueue(Stream::from_cuda(&no_stream)); }),
              HasSubstr("CUDA_ERROR_INVALID_HANDLE"));
  run.context.run();
}

// Work of one stream comes behind that of another, both ways.
TEST(GpuStream, OrdersWorkWithAnotherStream) {
  const auto device = cuda_backend().open(test_device());
  const auto ours = device->make_stream(), theirs = device->make_stream();
  const auto memory = device->allocate(64), staging = device->allocate_staging(128);
  std::byte *const from = staging->data(), *const to = from + 64;
  for (uint8_t round = 1; round < 4; ++round) {
    std::fill(from, from + 64, std::byte{round});
    device->copy(memory->data(), from, 64, *theirs);
    ours->begin_after(theirs->native());
    device->copy(to, memory->data(), 64, *ours);
    ours->wait();  // and with it for the first copy
    EXPECT_EQ(to[63], std::byte{round});
    std::fill(from, from + 64, std::byte{0});
    device->copy(memory->data(), from, 64, *ours);
    ours->end_before(theirs->native());
    device->copy(to, memory->data(), 64, *theirs);
    theirs->wait();
    EXPECT_EQ(to[63], std::byte{0});
  }
}

}  // namespace
}  // namespace anneal::testing
