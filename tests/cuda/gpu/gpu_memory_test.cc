// Inputs and outputs in memory of a GPU: the emulated one, or the card that ANNEAL_TEST_DEVICE
// names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anneal/core/application/hooks.h"
#include "anneal/engine/run/c_api.h"
#include "anneal/engine/run/debug.h"
#include "anneal/engine/run/stream.h"
#include "anneal/tests/cuda/gpu/cpu_layer_net.h"
#include "anneal/tests/cuda/gpu_engine.h"
#include "anneal/tests/engine/graphs.h"
#include "anneal/tests/error_of.h"

namespace anneal::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

using Values = std::map<std::string, std::vector<float>>;

// An application's own use of the GPU.
class GpuMemory {
 public:
  GpuMemory() : device_(cuda_backend().open(test_device())), stream_(device_->make_stream()) {}
  int number() const { return *gpu_number(*device_); }
  DeviceStream& stream() { return *stream_; }

  // A view of new memory, dense if no strides are given. `offset` counts bytes from an aligned
  // address.
  TensorView make(const Dims& dims, const Dims& strides = {}, size_t offset = 0) {
    const Dims steps = strides.empty() ? row_major_strides(dims) : strides;
    int64_t extent = 1;
    for (int axis = 0; axis < dims.rank(); ++axis) extent += (dims[axis] - 1) * steps[axis];
    buffers_.push_back(device_->allocate(static_cast<size_t>(extent) * sizeof(float) + offset));
    return {DataType::kF32, dims, steps, buffers_.back()->data() + offset,
            MemoryPlace{MemoryKind::kCuda, number()}};
  }
  // REQUIRES: the view is dense.
  void write(const TensorView& to, std::span<const float> values) {
    device_->copy(to.data, reinterpret_cast<const std::byte*>(values.data()), values.size_bytes(),
                  *stream_);
    stream_->wait();
  }
  // Both dense; does not wait.
  void copy_on_default_stream(const TensorView& to, const TensorView& from) {
    stream_->end_before(nullptr);
    default_ = device_->make_stream();
    default_->begin_after(nullptr);
    device_->copy(to.data, from.data, static_cast<size_t>(count(to.dims)) * sizeof(float),
                  *default_);
    default_->end_before(nullptr);
  }
  std::vector<float> read(const TensorView& from) {
    int64_t extent = 1;
    for (int axis = 0; axis < from.dims.rank(); ++axis)
      extent += (from.dims[axis] - 1) * from.strides[axis];
    std::vector<float> all(static_cast<size_t>(extent));
    device_->copy(reinterpret_cast<std::byte*>(all.data()), from.data, all.size() * sizeof(float),
                  *stream_);
    stream_->wait();
    return elements(
        {from.dtype, from.dims, from.strides, reinterpret_cast<const std::byte*>(all.data())});
  }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceStream> stream_, default_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

// Binds each input to new memory of the GPU with these values.
void set_inputs(GpuMemory& gpu, ExecutionContext& context, const Engine& engine,
                const std::vector<Tensor>& inputs, size_t offset = 0) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].dtype() != DataType::kF32) {
      context.set_input(engine.inputs()[i].name, inputs[i].view());
      continue;
    }
    const TensorView memory = gpu.make(inputs[i].dims(), {}, offset);
    gpu.write(memory, inputs[i].as<float>());
    context.set_input(engine.inputs()[i].name, memory);
  }
}

std::map<std::string, TensorView> set_outputs(GpuMemory& gpu, ExecutionContext& context,
                                              const Engine& engine, size_t offset = 0) {
  std::map<std::string, TensorView> outputs;
  for (const TensorInfo& port : engine.outputs()) {
    outputs[port.name] = gpu.make(context.output_dims(port.name), {}, offset);
    context.set_output(port.name, outputs[port.name]);
  }
  return outputs;
}

Values read(GpuMemory& gpu, const std::map<std::string, TensorView>& outputs) {
  Values values;
  for (const auto& [name, view] : outputs) values[name] = gpu.read(view);
  return values;
}

// The second run is recorded, the third is replayed.
void expect_runs(GpuMemory& gpu, std::string_view net, const std::vector<Tensor>& inputs,
                 size_t offset = 0, size_t warnings = 0) {
  const auto engine = gpu_engine(net);
  ExecutionContext context(engine);
  const auto outputs = (set_inputs(gpu, context, *engine, inputs, offset),
                        set_outputs(gpu, context, *engine, offset));
  for (int run = 0; run < 3; ++run) {
    context.run();
    expect_near(read(gpu, outputs), reference(net, inputs));
  }
  EXPECT_THAT(context.run_warnings(), SizeIs(warnings));
  const TensorView output = context.output(engine->outputs()[0].name);
  EXPECT_EQ(output.place.kind, MemoryKind::kCuda);
  EXPECT_THAT(error_of([&] { output.span<float>(); }), HasSubstr("memory of a GPU"));
}

TEST(GpuMemory, IsUsedInPlace) {
  GpuMemory gpu;
  expect_runs(gpu, kConvNet, {random_f32({1, 3, 9, 7}, 1)});
  expect_runs(gpu, kDynamicNet, {random_f32({5, 6}, 2), random_f32({5, 6}, 3)});
}

// Kernels were compiled for aligned memory.
TEST(GpuMemory, MayBeLessAligned) {
  GpuMemory gpu;
  expect_runs(gpu, kConvNet, {random_f32({1, 3, 9, 7}, 1)}, 4);
}

// It saves the staging memory of the host, and the copies.
TEST(GpuMemory, NeedsNoStaging) {
  GpuMemory gpu;
  const auto engine = gpu_engine(kConvNet);
  const Tensor x = random_f32({1, 3, 9, 7}, 1);
  ExecutionContext with_host(engine), with_gpu(engine);
  run(with_host, *engine, {x});
  set_inputs(gpu, with_gpu, *engine, {x});
  set_outputs(gpu, with_gpu, *engine);
  with_gpu.run();
  EXPECT_LT(with_gpu.memory_bytes(), with_host.memory_bytes());
}

TEST(GpuMemory, IsCopiedForStepsOnTheCpu) {
  GpuMemory gpu;
  expect_runs(gpu, kCpuLayerNet, {random_f32({1, 2, 3, 4, 3, 4}, 1)}, 0, 2);  // x and p
}

TEST(GpuMemory, IsUsedInPlaceStepByStep) {
  GpuMemory gpu;
  const auto engine = gpu_engine(kConvNet);
  const DebugOptions debug{.synchronous_steps = true};
  ExecutionContext context(engine, {.debug = &debug});
  const Tensor x = random_f32({1, 3, 9, 7}, 1);
  set_inputs(gpu, context, *engine, {x});
  const auto outputs = set_outputs(gpu, context, *engine);
  context.run();
  expect_near(read(gpu, outputs), reference(kConvNet, {x}));
  EXPECT_THAT(context.run_warnings(), SizeIs(0));
}

TEST(GpuMemory, OutputsOfLateSizesStayOnTheHost) {
  GpuMemory gpu;
  const auto engine = gpu_engine(kLateNet);
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = {random_f32({3}, 1), tensor_i64({4, 3})};
  set_inputs(gpu, context, *engine, inputs);
  EXPECT_THAT(error_of([&] {
                context.set_output("y", gpu.make({4, 3}));
              }),
              HasSubstr("a size that depends on values"));
  const TensorView sums = gpu.make({3});
  context.set_output("sums", sums);
  context.run();
  const Values wanted = reference(kLateNet, inputs);
  expect_near({{"y", elements(context.output("y"))}, {"sums", gpu.read(sums)}}, wanted);
}

TEST(GpuMemory, MustBeDense) {
  GpuMemory gpu;
  const auto engine = gpu_engine(kDynamicNet);
  ExecutionContext context(engine);
  const TensorView wide = gpu.make({4, 8});
  for (const Dims& strides : {Dims{8, 1}, Dims{1, 4}, Dims{-8, 1}})
    EXPECT_THAT(error_of([&] {
                  context.set_input(
                      "x", TensorView{DataType::kF32, {4, 6}, strides, wide.data, wide.place});
                }),
                AllOf(HasSubstr("unsupported: input \"x\" has shape [4,6] and strides " +
                                to_string(strides)),
                      HasSubstr("make it dense and row-major")));
  // Axes of size 1 may have any.
  context.set_input("x", TensorView{DataType::kF32, {1, 6}, {1000, 1}, wide.data, wide.place});
}

// The output of a run is the input of the next one, which takes turns between two buffers.
TEST(GpuMemory, StateStaysOnTheGpu) {
  constexpr std::string_view kStep = R"txt(
graph step(x: f32[4,64])
  const w: f32[64,64] = random(1)
  const half: f32[] = {0.1}
  m = MatMul(x, w)
  y = Pointwise(m, x, half) program="(f32,f32,f32)->(f32) add(mul($0,$2),$1)"
  return y
)txt";
  GpuMemory gpu;
  const auto engine = gpu_engine(kStep);
  ExecutionContext context(engine);
  const TensorView a = gpu.make({4, 64}), b = gpu.make({4, 64});
  Tensor state = random_f32({4, 64}, 5);
  gpu.write(a, state.as<float>());
  for (int run = 0; run < 9; ++run) {
    context.set_input("x", run % 2 == 0 ? a : b);
    context.set_output("y", run % 2 == 0 ? b : a);
    context.run();
    const auto next = reference(kStep, {state}).at("y");
    expect_near({{"y", gpu.read(run % 2 == 0 ? b : a)}}, {{"y", next}});
    state = Tensor::of<float>(DataType::kF32, {4, 64}, next);
  }
  context.set_input("x", a);
  context.set_output("y", a);
  EXPECT_THAT(error_of([&] { context.run(); }), HasSubstr("overlaps that of input \"x\""));
}

TEST(GpuMemory, OneValueMayBeSeveralPorts) {
  constexpr std::string_view kSame = R"txt(
graph same(x: f32[3,5])
  r = Pointwise(x) program="(f32)->(f32) add($0,1f32)"
  s = Pointwise(r) program="(f32)->(f32) mul($0,2f32)"
  return x as a, r as b, r as c, s as d
)txt";
  GpuMemory gpu;
  // The CPU copies x to a, and b to c.
  expect_runs(gpu, kSame, {random_f32({3, 5}, 1)}, 0, 4);
}

// Nothing waits between the runs: the GPU orders them.
TEST(GpuMemory, RunsOfAStreamFollowEachOther) {
  GpuMemory gpu;
  constexpr std::string_view kTwice = R"txt(
graph twice(x: f32[32,96])
  y = Pointwise(x) program="(f32)->(f32) mul($0,2f32)"
  return y
)txt";
  const auto engine = gpu_engine(kTwice);
  const Stream stream = Stream::from_cuda(gpu.stream().native());
  std::vector<std::unique_ptr<ExecutionContext>> contexts;
  std::vector<TensorView> values = {gpu.make({32, 96})};
  for (int i = 0; i < 4; ++i) {
    contexts.push_back(std::make_unique<ExecutionContext>(engine));
    values.push_back(gpu.make({32, 96}));
    contexts[static_cast<size_t>(i)]->set_input("x", values[static_cast<size_t>(i)]);
    contexts[static_cast<size_t>(i)]->set_output("y", values.back());
  }
  for (uint32_t round = 0; round < 3; ++round) {
    const Tensor x = random_f32({32, 96}, round);
    gpu.write(values[0], x.as<float>());
    for (const auto& context : contexts) context->enqueue(stream);
    const std::vector<float> got = gpu.read(values.back());  // behind them on the stream
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], 16 * x.as<float>()[i]);
    for (const auto& context : contexts) context->wait();
  }
}

// Until wait(), which says that they were read.
TEST(GpuMemory, InputsAreReadLate) {
  GpuMemory gpu;
  const auto engine = gpu_engine(kConvNet);
  ExecutionContext context(engine);
  set_inputs(gpu, context, *engine, {random_f32({1, 3, 9, 7}, 1)});
  bool is_read = false;
  context.enqueue(Stream::make(test_device()), [&] { is_read = true; });
  context.wait();
  EXPECT_TRUE(is_read);
}

TEST(GpuMemory, IsObservedOnTheHost) {
  GpuMemory gpu;
  const auto engine = gpu_engine(kConvNet);
  ExecutionContext context(engine);
  const Tensor x = random_f32({1, 3, 9, 7}, 1);
  set_inputs(gpu, context, *engine, {x});
  const auto outputs = set_outputs(gpu, context, *engine);
  Values seen;
  observe(context, [&](const Observation& observed) {
    seen[std::string(observed.name)] = elements(observed.value);
  });
  context.run();
  const Values wanted = reference(kConvNet, {x});
  expect_near(read(gpu, outputs), wanted);
  expect_near({{"y", seen.at("y")}, {"features", seen.at("features")}}, wanted);
  observe(context, {});
  context.run();
  expect_near(read(gpu, outputs), wanted);
  EXPECT_THAT(context.run_warnings(), SizeIs(0));  // it was through the host for the observer
}

// Several shapes, which take turns, and shapes that were prepared.
TEST(GpuMemory, ShapesMayChange) {
  GpuMemory gpu;
  const auto engine = gpu_engine(kDynamicNet);
  ExecutionContext context(engine);
  for (const int64_t rows : {3, 5, 3, 5, 3, 5, 3, 7, 5}) {
    const Tensor x = random_f32({rows, 6}, 1), z = random_f32({rows, 6}, 2);
    const InputShape shapes[] = {{"x", {rows, 6}}, {"z", {rows, 6}}};
    if (rows == 7) context.prepare(shapes);
    context.set_output("y", {});
    context.set_output("rows", {});
    set_inputs(gpu, context, *engine, {x, z});
    const auto outputs = set_outputs(gpu, context, *engine);
    for (int run = 0; run < 2; ++run) {
      context.run();
      expect_near(read(gpu, outputs), reference(kDynamicNet, {x, z}));
    }
  }
}

// Our streams follow the default stream, on which torch works.
TEST(GpuMemory, IsReadAfterTheWorkOnTheDefaultStream) {
  GpuMemory gpu;
  constexpr std::string_view kTwice = R"txt(
graph twice(x: f32[32,96])
  y = Pointwise(x) program="(f32)->(f32) mul($0,2f32)"
  return y
)txt";
  const auto engine = gpu_engine(kTwice);
  ExecutionContext context(engine);
  const TensorView x = gpu.make({32, 96}), late = gpu.make({32, 96}), y = gpu.make({32, 96});
  context.set_input("x", x);
  context.set_output("y", y);
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    const Tensor values = random_f32({32, 96}, seed);
    gpu.write(late, values.as<float>());
    gpu.copy_on_default_stream(x, late);
    if (seed % 2 == 0) {
      context.run();
    } else {
      context.enqueue(Stream::make(test_device()));
      context.wait();
    }
    const std::vector<float> got = gpu.read(y);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], 2 * values.as<float>()[i]);
  }
}

TEST(GpuMemory, OfAnotherDeviceIsRefused) {
  GpuMemory gpu;
  const auto engine = gpu_engine(kConvNet);
  ExecutionContext context(engine);
  TensorView memory = gpu.make({1, 3, 9, 7});
  memory.place.device = 5;
  EXPECT_THAT(error_of([&] { context.set_input("x", memory); }),
              AllOf(HasSubstr("unsupported: input \"x\" is in the memory of GPU 5: copy it to "),
                    HasSubstr("the host; the engine is on")));
  const auto on_cpu = make_engine(build_for(kConvNet, {"cpu"}), {.device = "cpu"});
  ExecutionContext of_cpu(on_cpu);
  EXPECT_THAT(error_of([&] {
                of_cpu.set_input("x", gpu.make({1, 3, 9, 7}));
              }),
              HasSubstr("copy it to the host; the engine is on x86-64"));
}

// Memory of a GPU is compared with the caller's, which is row-major.
TEST(GpuMemory, AFileWithOtherPortsIsRefused) {
  EngineFile file = build_for(kConvNet, {"emulated"});
  Plan& plan = file.plans[0];
  plan.slots[plan.inputs[0]].strides = {Size(189), Size(1), Size(21), Size(3)};
  EXPECT_THAT(error_of([&] { load_on(file, "emulated"); }),
              HasSubstr("port \"x\" of a GPU's plan is not row-major"));
}

// From a device of its own, as an application's pool would.
class CountingAllocator final : public Allocator {
 public:
  void* allocate(size_t bytes, size_t alignment) override {
    EXPECT_EQ(alignment, 256u);
    if (total + bytes > most) return nullptr;
    auto buffer = device_->allocate(bytes);
    void* const memory = buffer->data();
    buffers_.emplace(memory, std::move(buffer));
    total += bytes;
    return memory;
  }
  void release(void* memory, size_t bytes) override {
    EXPECT_EQ(buffers_.at(memory)->size(), bytes);
    buffers_.erase(memory);
    total -= bytes;
  }
  size_t total = 0, most = size_t{1} << 30;

 private:
  std::unique_ptr<Device> device_ = cuda_backend().open(test_device());
  std::map<void*, std::unique_ptr<Buffer>> buffers_;
};

TEST(GpuMemory, ComesFromTheApplicationsAllocator) {
  const auto allocator = std::make_shared<CountingAllocator>();
  const Tensor x = random_f32({1, 3, 9, 7}, 1);
  const EngineFile file = build_for(kConvNet, {test_target()});
  {
    const auto engine = make_engine(file, {.device = test_device(), .gpu_allocator = allocator});
    const size_t weights = allocator->total;
    EXPECT_GT(weights, 0u);
    ExecutionContext context(engine);
    expect_near(run(context, *engine, {x}), reference(kConvNet, {x}));
    EXPECT_GT(allocator->total, weights);
  }
  EXPECT_EQ(allocator->total, 0u);
  allocator->most = 64;
  EXPECT_THAT(
      error_of([&] { make_engine(file, {.device = test_device(), .gpu_allocator = allocator}); }),
      HasSubstr("the application's allocator has no"));
}

template <class Struct>
Struct sized() {
  Struct result = {};
  result.size = sizeof(result);
  return result;
}

TEST(GpuMemory, IsGivenByTheCInterface) {
  GpuMemory gpu;
  const std::vector<std::byte> bytes = save(build_for(kDynamicNet, {test_target()}));
  const std::string device = test_device();
  CountingAllocator allocator;
  auto options = sized<anneal_engine_options>();
  options.device = device.c_str();
  options.gpu_allocate = [](void* argument, uint64_t count, uint64_t alignment) {
    return static_cast<CountingAllocator*>(argument)->allocate(count, alignment);
  };
  options.gpu_release = [](void* argument, void* memory, uint64_t count) {
    static_cast<CountingAllocator*>(argument)->release(memory, count);
  };
  options.allocator_argument = &allocator;
  anneal_error error = {};
  anneal_engine* engine = nullptr;
  anneal_context* context = nullptr;
  ASSERT_EQ(anneal_engine_load_memory(bytes.data(), bytes.size(), nullptr, nullptr, &options,
                                      &engine, &error),
            ANNEAL_OK)
      << error.message;
  ASSERT_EQ(anneal_context_make(engine, nullptr, &context, &error), ANNEAL_OK) << error.message;
  EXPECT_GT(allocator.total, 0u);
  const auto tensor = [&](const TensorView& view) {
    auto result = sized<anneal_tensor>();
    result.dtype = ANNEAL_F32;
    result.rank = view.dims.rank();
    for (int axis = 0; axis < view.dims.rank(); ++axis) result.dims[axis] = view.dims[axis];
    result.data = view.data;
    result.memory = ANNEAL_CUDA;
    result.memory_device = view.place.device;
    return result;
  };
  const Tensor x = random_f32({4, 6}, 1), z = random_f32({4, 6}, 2);
  const TensorView on_gpu[] = {gpu.make({4, 6}), gpu.make({4, 6}), gpu.make({8, 5}),
                               gpu.make({8, 3})};
  gpu.write(on_gpu[0], x.as<float>());
  gpu.write(on_gpu[1], z.as<float>());
  const char* const names[] = {"x", "z", "y", "rows"};
  for (size_t i = 0; i < 4; ++i) {
    const anneal_tensor memory = tensor(on_gpu[i]);
    const auto set = i < 2 ? anneal_context_set_input : anneal_context_set_output;
    ASSERT_EQ(set(context, names[i], &memory, &error), ANNEAL_OK) << error.message;
  }
  ASSERT_EQ(anneal_context_run(context, &error), ANNEAL_OK) << error.message;
  auto output = sized<anneal_tensor>();
  ASSERT_EQ(anneal_context_output(context, "y", &output, &error), ANNEAL_OK) << error.message;
  EXPECT_EQ(output.memory, ANNEAL_CUDA);
  EXPECT_EQ(output.data, on_gpu[2].data);
  expect_near({{"y", gpu.read(on_gpu[2])}, {"rows", gpu.read(on_gpu[3])}},
              reference(kDynamicNet, {x, z}));
  anneal_context_free(context);
  anneal_engine_free(engine);
  EXPECT_EQ(allocator.total, 0u);
}

}  // namespace
}  // namespace anneal::testing
