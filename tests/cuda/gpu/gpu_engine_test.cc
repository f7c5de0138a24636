// Whole engines on a GPU: the emulated one, or the card that ANNEAL_TEST_DEVICE names ("cuda").
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "anneal/core/new_tensor.h"
#include "anneal/engine/run/counted_steps.h"
#include "anneal/engine/run/debug.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/kernels/cuda/api/libraries.h"
#include "anneal/kernels/cuda/backend.h"
#include "anneal/kernels/cuda/code/code_image.h"
#include "anneal/kernels/cuda/runtime/device.h"
#include "anneal/tests/cuda/environment.h"
#include "anneal/tests/cuda/gpu_engine.h"
#include "anneal/tests/engine/graphs.h"
#include "anneal/tests/error_of.h"

namespace anneal::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<std::string> kernels_on_cpu(const Plan& plan) {
  std::vector<std::string> kernels;
  for (const Step& step : plan.steps)
    if (step.device + 1u == plan.devices.size()) kernels.push_back(step.kernel);
  return kernels;
}

TEST(GpuEngine, ANetOfConvolutionsRunsOnTheDeviceAlone) {
  const auto engine = gpu_engine(kConvNet);
  EXPECT_THAT(kernels_on_cpu(plan_of(*engine)), ::testing::IsEmpty());
  EXPECT_THAT(engine->load_warnings(), ::testing::IsEmpty());
  ExecutionContext context(engine, {.spin = true});
  // The second run at the same shapes is recorded, the third one played.
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    const std::vector<Tensor> inputs = {random_f32({1, 3, 9, 7}, seed)};
    expect_near(run(context, *engine, inputs), reference(kConvNet, inputs));
  }
  EXPECT_THAT(context.run_warnings(), ::testing::IsEmpty());
}

// By drivers that do not capture, or libraries whose calls cannot be captured.
TEST(GpuEngine, WorkThatCannotBeRecordedIsLaunchedAndToldOnce) {
  if (test_device() != "emulated") GTEST_SKIP() << "only the emulated driver can be told to fail";
  const auto file = build_for(kConvNet, {"emulated"});
  for (const char* where : {"begin", "launch", "end"}) {
    SCOPED_TRACE(where);
    const cuda::Setting fails("ANNEAL_EMULATED_CAPTURE_FAILS", where);
    const auto engine = load_on(file, "emulated");
    // The context reads its inputs where they lie, when it is profiled as well.
    std::vector<Tensor> inputs;
    ExecutionContext context(engine);
    for (uint32_t seed = 1; seed <= 4; ++seed) {
      inputs = {random_f32({1, 3, 9, 7}, seed)};
      expect_near(run(context, *engine, inputs), reference(kConvNet, inputs));
      EXPECT_EQ(context.run_warnings().size(), seed == 1 ? 0u : 1u)
          << "the first run is not recorded";
    }
    EXPECT_THAT(context.run_warnings()[0],
                AllOf(HasSubstr("launched one by one in every run"), HasSubstr("CUDA_ERROR_")));
    context.profile();
    EXPECT_EQ(context.run_warnings().size(), 1u);
  }
}

// The channels of a group, or of an image, are neighbours of other groups' and images'.
constexpr std::string_view kNormsOfChannelsLast = R"txt(
graph norms(x: f32[2,24,9,7])
  const w: f32[48,24,1,1] = random(1)
  c = Conv(x, w) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  r = Reshape(c, i64{2,12,4,9,7})
  n = Normalize(r) axes=[2,3,4]
  g = Reshape(n, i64{2,48,9,7})
  m = Reduce(g, i64{2,3}) kind=mean keepdims=true
  l = ArgReduce(c) axis=1
  s = Softmax(c) axis=1
  y = Pointwise(s, g, m) program="(f32,f32,f32)->(f32) add(add($0,$1),$2)"
  return y, l
)txt";

TEST(GpuEngine, NormsAndMeansOfChannelsLastImages) {
  const auto engine = gpu_engine(kNormsOfChannelsLast);
  EXPECT_THAT(kernels_on_cpu(plan_of(*engine)), ::testing::IsEmpty());
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = {random_f32({2, 24, 9, 7}, 1)};
  expect_near(run(context, *engine, inputs), reference(kNormsOfChannelsLast, inputs));
}

TEST(GpuEngine, SiblingsOfABlockAreOneLayer) {
  const auto engine = gpu_engine(kInceptionBlock);
  std::vector<std::vector<int64_t>> splits;
  for (const Step& step : plan_of(*engine).steps)
    if (const auto* conv = std::get_if<Conv>(&step.op)) splits.push_back(conv->split);
  EXPECT_THAT(splits,
              ::testing::UnorderedElementsAre(std::vector<int64_t>{16, 12, 8}, ::testing::IsEmpty(),
                                              ::testing::IsEmpty(), ::testing::IsEmpty()));
  EXPECT_THAT(kernels_on_cpu(plan_of(*engine)), ::testing::IsEmpty());
  ExecutionContext context(engine);
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    const std::vector<Tensor> inputs = {random_f32({1, 24, 9, 7}, seed)};
    expect_near(run(context, *engine, inputs), reference(kInceptionBlock, inputs));
  }
}

// A Resize of a matrix without its kernel stands between two layers on the GPU.
constexpr std::string_view kMixedNet = R"txt(
graph mixed_net(x: f32[4,6], y: f32[6])
  const m: f32[6,8] = random(1)
  a = Pointwise(x, y) program="(f32,f32)->(f32) add($0,$1)"
  s = Resize(a) mode=linear axes=[1] scales=[1.1]
  g = MatMul(s, m)
  b = Pointwise(s) program="(f32)->(f32) mul($0,2f32)"
  return g, b, a as sums, x as same
)txt";

TEST(GpuEngine, LayersWithoutAKernelRunOnTheCpuAndSayWhy) {
  const EngineFile file = build_for(kMixedNet, {test_target()}, kernels_of_matrix_resize());
  const Plan& plan = file.plans[0];
  size_t fallbacks = 0, transfers = 0;
  for (const Decision& decision : plan.decisions) {
    if (decision.stage != kFallback) continue;
    ++fallbacks;
    EXPECT_EQ(decision.subject, "s");
    EXPECT_THAT(decision.text,
                AllOf(HasSubstr("Resize"), HasSubstr("only one to three spatial axes")));
  }
  for (const Step& step : plan.steps) transfers += step.kernel == kTransfer ? 1 : 0;
  EXPECT_EQ(fallbacks, 1u);
  EXPECT_EQ(transfers, 2u /* x, y */ + 2 /* to s and back */ + 2 /* g, sums; s computes b */ -
                           1 /* a = sums */);
  const auto engine = load_on(file, test_device());
  ExecutionContext context(engine);
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    const std::vector<Tensor> inputs = {random_f32({4, 6}, seed), random_f32({6}, seed + 9)};
    expect_near(run(context, *engine, inputs), reference(kMixedNet, inputs));
  }
}

// Weights that are a view of 16 of 20 channels: vectors of 4, where tensor cores read 8.
constexpr std::string_view kSlicedWeights = R"txt(
graph sliced_weights(x: f32[1,16,5,7], w: f32[8,20,1,1])
  a = Pointwise(x) program="(f32)->(f16) rint($0)"
  b = Pointwise(w) program="(f32)->(f16) rint($0)"
  v = Slice(b, i64{0}, i64{16}, i64{1}, i64{1})
  c = Conv(a, v) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  y = Pointwise(c) program="(f16)->(f32) $0"
  return y
)txt";

TEST(GpuEngine, WeightsMayBeAViewOfWhatIsComputed) {
  const auto engine = gpu_engine(kSlicedWeights);
  EXPECT_THAT(plan_of(*engine).steps,
              ::testing::Contains(::testing::Field(&Step::kernel, "cuda.conv.mma")));
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = {random_f32({1, 16, 5, 7}, 1), random_f32({8, 20, 1, 1}, 2)};
  expect_near(run(context, *engine, inputs), reference(kSlicedWeights, inputs));
}

TEST(GpuEngine, ShapesComeAndGo) {
  const auto engine = gpu_engine(kDynamicNet);
  ExecutionContext context(engine, {.shape_cache_size = 2});
  for (const int64_t batch : {3, 16, 1, 3, 3, 5, 16, 16, 16, 3}) {
    const std::vector<Tensor> inputs = {random_f32({batch, 6}, static_cast<uint32_t>(batch)),
                                        random_f32({batch, 6}, 7)};
    expect_near(run(context, *engine, inputs), reference(kDynamicNet, inputs));
  }
}

TEST(GpuEngine, BodiesOfControlFlowGiveTheResultsOfTheCpu) {
  const auto engine = gpu_engine(kBodiesNet);
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = {random_f32({3}, 1), random_f32({5, 3}, 2)};
  const auto cpu = load_on(build_for(kBodiesNet, {"cpu"}), "cpu");
  ExecutionContext on_cpu(cpu);
  const auto wanted = run(on_cpu, *cpu, inputs);
  for (int i = 0; i < 3; ++i) expect_near(run(context, *engine, inputs), wanted);
}

TEST(GpuEngine, AnEngineForCardsAndCpusGivesTheSameOnBoth) {
  if (!cuda::nvrtc_library().table) GTEST_SKIP() << cuda::nvrtc_library().why_not;
  const EngineFile file = build_for(kConvNet, {"sm_90", "cpu"});
  ASSERT_EQ(file.plans.size(), 2u);
  EXPECT_FALSE(file.plans[0].code.empty());
  const std::vector<Tensor> inputs = {random_f32({1, 3, 9, 7}, 3)};
  const auto wanted = reference(kConvNet, inputs);
  for (const std::string& device : {std::string("cpu"), test_device()}) {
    const auto engine = load_on(file, device);
    EXPECT_EQ(plan_of(*engine).target, device == "cpu" ? "cpu" : "sm_90");
    ExecutionContext context(engine);
    expect_near(run(context, *engine, inputs), wanted);
  }
}

// Of an engine file, code is only as good as its digest says: what does not fit is made again.
TEST(GpuEngine, CodeThatIsNotTheKernelsOwnIsNotUsed) {
  if (!cuda::nvrtc_library().table) GTEST_SKIP() << cuda::nvrtc_library().why_not;
  EngineFile file = build_for(kConvNet, {"sm_90"});
  const std::vector<Tensor> inputs = {random_f32({1, 3, 9, 7}, 3)};
  std::vector<cuda::CodePart> parts = cuda::parts_of(file.plans[0].code);
  for (cuda::CodePart& part : parts) part.digests.at(0)[3] ^= std::byte{0x55};
  file.plans[0].code = cuda::code_image(parts);
  const auto engine = load_on(file, test_device());
  ExecutionContext context(engine);
  expect_near(run(context, *engine, inputs), reference(kConvNet, inputs));
}

constexpr std::string_view kTransposedConv = R"txt(
graph up(x: f32[2,8,5,7])
  const w: f32[8,4,2,2] = random(1)
  const b: f32[4,1,1] = random(2)
  y = ConvTranspose(x, w; b) strides=[2,2] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1] output_padding=[0,0] epilogue="(f32,f32)->(f32) max(add($0,$1),0f32)"
  return y
)txt";

TEST(GpuEngine, ATransposedConvolutionWithABiasStaysOnTheDevice) {
  const auto engine = gpu_engine(kTransposedConv);
  EXPECT_THAT(kernels_on_cpu(plan_of(*engine)), ::testing::IsEmpty());
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = {random_f32({2, 8, 5, 7}, 1)};
  expect_near(run(context, *engine, inputs), reference(kTransposedConv, inputs));
}

// A convolution and a product on tensor cores.
constexpr std::string_view kProducts = R"txt(
graph products(x: f32[1,16,6,6])
  const w: f16[32,16,3,3] = random(1)
  const m: f16[32,16] = random(2)
  h = Pointwise(x) program="(f32)->(f16) round_f16($0)"
  c = Conv(h, w) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  p = Reduce(c, i64{2,3}) kind=max keepdims=false
  g = MatMul(p, m)
  y = Pointwise(g) program="(f16)->(f32) $0"
  return y
)txt";

// As of a library or a device that refuses the plan's tactics.
EngineFile with_refused_tactics(const std::string& target) {
  EngineFile file = build_for(kProducts, {target});
  for (Step& step : file.plans[0].steps)
    if (!step.tactic.empty()) step.kernel += ".gone";
  return file;
}

void expect_products(const Engine& engine, ExecutionContext& context) {
  EXPECT_EQ(engine.load_warnings().size(), 2u);
  for (const std::string& warning : engine.load_warnings())
    EXPECT_THAT(warning, HasSubstr(" instead of cuda."));
  const Tensor x = random_f32({1, 16, 6, 6}, 3);
  const auto got = run(context, engine, std::vector<Tensor>{x}).at("y");
  const auto wanted = reference(kProducts, {x}).at("y");
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(got[i], wanted[i], 0.02 * (1 + std::abs(wanted[i]))) << i;
}

TEST(GpuEngine, FallbackKernelsHaveTheirCodeInTheFile) {
  if (test_device() == "emulated") GTEST_SKIP() << "its code is in no file";
  const EngineFile file = with_refused_tactics(test_target());
  const cuda::TemporaryFolder folder;
  {
    const cuda::Setting cache("ANNEAL_CACHE_DIR",
                              folder.path().string());  // has all that is compiled
    const auto engine = load_on(file, test_device());
    ExecutionContext context(engine);
    expect_products(*engine, context);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "something was compiled";
  if (!is_virtual_card()) return;  // there NVRTC can be hidden: the next test in a new process
  const std::string path = folder.path() / "products.engine";
  write_engine_file(path, file);
  const cuda::Setting engine("ANNEAL_TEST_ENGINE", path), nvrtc("ANNEAL_VIRTUAL_CARD_NVRTC", "/");
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command = self + " --gtest_filter=GpuEngine.FallbackKernelsNeedNoNvrtc";
  EXPECT_EQ(std::system((command + " | grep -qF '[  PASSED  ] 1 test'").c_str()), 0);
}

TEST(GpuEngine, FallbackKernelsNeedNoNvrtc) {
  const char* const path = std::getenv("ANNEAL_TEST_ENGINE");
  if (path == nullptr) GTEST_SKIP() << "run by the test above";
  const auto engine = Engine::load(path, {.device = test_device()});
  ExecutionContext context(engine);
  expect_products(*engine, context);
}

TEST(GpuEngine, HalfPrecisionStaysInItsTypes) {
  constexpr std::string_view kHalfNet = R"txt(
graph half_net(x: f16[1,8,6,6])
  const w: f16[16,8,3,3] = random(1)
  const m: f16[16,10] = random(2)
  c = Conv(x, w) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  r = Pointwise(c) program="(f16)->(f16) max($0,0f32)"
  p = Reduce(r, i64{2,3}) kind=mean keepdims=false
  g = MatMul(p, m)
  y = Pointwise(g) program="(f16)->(f32) $0"
  return y
)txt";
  const EngineFile file = build_for(kHalfNet, {"cpu", test_target()});
  ASSERT_EQ(file.plans.size(), 2u);
  const auto halves = [](const Plan& plan) {
    return std::count_if(plan.slots.begin(), plan.slots.end(), [](const Slot& slot) {
      return slot.type.dtype == DataType::kF16 && slot.storage == Storage::kArena;
    });
  };
  EXPECT_EQ(halves(file.plans[0]), 0);
  EXPECT_GE(halves(file.plans[1]), 3);
  const Tensor x = random_f32({1, 8, 6, 6}, 5);
  NewTensor half = allocate_tensor(DataType::kF16, x.dims());
  for (int64_t i = 0; i < x.count(); ++i)
    store_scalar(DataType::kF16,
                 Scalar::of(std::round(x.as<float>()[static_cast<size_t>(i)] * 64) / 64),
                 half.data.data() + 2 * i);
  const std::vector<Tensor> inputs = {half.tensor};
  const auto wanted = reference(kHalfNet, inputs);
  const auto engine = load_on(file, test_device());
  ExecutionContext context(engine);
  const auto got = run(context, *engine, inputs);
  for (size_t i = 0; i < wanted.at("y").size(); ++i)
    EXPECT_NEAR(got.at("y")[i], wanted.at("y")[i], 0.03 * (1 + std::abs(wanted.at("y")[i])));
}

// As a vision transformer begins: windows beside each other, of more elements than a bit each.
TEST(GpuEngine, PatchesOfAnImageGoToTensorCores) {
  constexpr std::string_view kPatches = R"txt(
graph patches(x: f16[2,3,40,40])
  const w: f16[24,3,16,20] = random(1)
  const b: f16[24,1,1] = random(2)
  y = Conv(x, w; b) strides=[16,20] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1] epilogue="(f32,f16)->(f32) add(mul($0,0.01f32),$1)"
  return y
)txt";
  const auto engine = gpu_engine(kPatches);
  const auto& steps = plan_of(*engine).steps;
  EXPECT_TRUE(
      std::ranges::any_of(steps, [](const Step& step) { return step.kernel == "cuda.conv.mma"; }));
  const Tensor x = random_f32({2, 3, 40, 40}, 5);
  NewTensor half = allocate_tensor(DataType::kF16, x.dims());
  for (int64_t i = 0; i < x.count(); ++i)
    store_scalar(DataType::kF16, Scalar::of(x.as<float>()[static_cast<size_t>(i)]),
                 half.data.data() + 2 * i);
  const std::vector<Tensor> inputs = {half.tensor};
  ExecutionContext context(engine);
  const auto got = run(context, *engine, inputs), wanted = reference(kPatches, inputs);
  for (size_t i = 0; i < wanted.at("y").size(); ++i)
    EXPECT_NEAR(got.at("y")[i], wanted.at("y")[i], 1e-3) << i;
}

TEST(GpuEngine, WatchedValuesAreThoseOfTheModel) {
  const auto engine = gpu_engine(kConvNet);
  ExecutionContext context(engine);
  const std::vector<Tensor> inputs = {random_f32({1, 3, 9, 7}, 3)};
  const auto wanted = reference(kConvNet, inputs);
  std::map<std::string, std::vector<float>> told;
  observe(context, [&](const Observation& observed) {
    if (observed.value.dtype == DataType::kF32)
      told[std::string(observed.name)] = elements(observed.value);
  });
  static_cast<void>(run(context, *engine, inputs));
  observe(context, {});
  ASSERT_TRUE(told.contains("s"));
  expect_near({{"features", told["s"]}}, {{"features", wanted.at("features")}});
  expect_near(run(context, *engine, inputs), wanted);
}

// Outputs too: they are copied from the device, where the value may have another name.
TEST(GpuEngine, WatchedOutputsHaveTheirNames) {
  for (const std::string_view text : {kConvNet, kTransposedConv, kProducts}) {
    const auto engine = gpu_engine(text);
    ExecutionContext context(engine);
    std::vector<Tensor> inputs;
    for (const TensorInfo& port : engine->inputs()) inputs.push_back(random_f32(port.dims, 3));
    std::map<std::string, int> told;
    observe(context, [&](const Observation& observed) { ++told[std::string(observed.name)]; });
    static_cast<void>(run(context, *engine, inputs));
    for (const TensorInfo& port : engine->outputs()) EXPECT_EQ(told[port.name], 1) << port.name;
  }
}

// Recordings are of all steps of a run, and one that is watched goes step by step.
TEST(GpuEngine, WatchedRunsAndRecordedOnesDoNotMix) {
  for (const std::string_view text : {kConvNet, kMixedNet}) {
    const auto engine = gpu_engine(text, kernels_of_matrix_resize());
    ExecutionContext context(engine);
    uint32_t seed = 0;
    for (const bool watched : {false, true, true, false, false, true, false, true, true, false}) {
      std::vector<Tensor> inputs;
      for (const TensorInfo& port : engine->inputs())
        inputs.push_back(random_f32(port.dims, ++seed));
      const auto wanted = reference(text, inputs);
      std::map<std::string, std::vector<float>> told;
      const auto tell = [&](const Observation& observed) {
        if (observed.value.dtype == DataType::kF32)
          told[std::string(observed.name)] = elements(observed.value);
      };
      observe(context, watched ? Observer(tell) : Observer());
      expect_near(run(context, *engine, inputs), wanted);
      for (const auto& [name, values] : wanted)
        if (told.contains(name)) expect_near({{name, told[name]}}, {{name, values}});
    }
  }
}

TEST(GpuEngine, AProfileNamesEveryStep) {
  const auto engine = gpu_engine(kConvNet);
  ExecutionContext context(engine);
  const Tensor input = random_f32({1, 3, 9, 7}, 3);
  context.set_input("x", input.view());
  const std::vector<StepTime> times = context.profile();
  ASSERT_EQ(times.size(), plan_of(*engine).steps.size());
  for (const StepTime& time : times) {
    EXPECT_GE(time.microseconds, 0) << time.step;
    EXPECT_EQ(time.times, 1) << time.step;
  }
}

TEST(GpuEngine, AProfileTellsWhatFunctionsDidWhereTheyCount) {
  const EngineFile file = build_for(kConvNet, {"emulated"});
  const Tensor input = random_f32({1, 3, 9, 7}, 3);
  for (const std::string device : {"emulated", "emulated:counting"}) {
    const auto engine = load_on(file, device);
    ExecutionContext context(engine);
    context.set_input("x", input.view());
    for (int i = 0; i < 3; ++i) context.run();  // counts that are none of the profile's
    for (const CountedStep& time : profile_counted(context)) {
      const bool counts = device != "emulated" && time.kernel != kTransfer;
      ASSERT_EQ(time.functions.empty(), !counts) << time.step;
      if (!counts) continue;
      EXPECT_EQ(time.functions[0].launches, 1) << time.step;
      EXPECT_FALSE(time.functions[0].sites.empty()) << time.step;
    }
  }
}

TEST(GpuEngine, TheMemoryLimitIsKept) {
  constexpr std::string_view kGrowing = R"txt(
size N in 1..100000 opt 1
graph growing(x: f32[N,64])
  a = Reduce(x, i64{1}) kind=max
  b = Pointwise(x, a) program="(f32,f32)->(f32) sub($0,$1)"
  c = Softmax(b) axis=1
  return c
)txt";
  const auto engine = gpu_engine(kGrowing);
  ExecutionContext context(engine, {.max_memory = 1 << 20, .prewarm_profiles = false});
  const auto run_rows = [&](int64_t rows) {
    const std::vector<Tensor> inputs = {random_f32({rows, 64}, 1)};
    expect_near(run(context, *engine, inputs), reference(kGrowing, inputs));
  };
  run_rows(10);
  const std::string error = error_of([&] { run_rows(50000); });
  EXPECT_THAT(error, AllOf(HasSubstr("the memory limit is 1048576"), HasSubstr("bytes")));
  run_rows(20);
}

TEST(GpuEngine, ContextsOnManyThreadsDoNotDisturbEachOther) {
  const auto engine = gpu_engine(kConvNet);
  std::vector<std::string> problems(4);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < problems.size(); ++t)
    threads.emplace_back([&, t] {
      try {
        ExecutionContext context(engine);
        const std::vector<Tensor> inputs = {random_f32({1, 3, 9, 7}, t)};
        const auto wanted = reference(kConvNet, inputs);
        for (int i = 0; i < 3; ++i) {
          const auto got = run(context, *engine, inputs);
          for (const auto& [name, values] : wanted)
            for (size_t k = 0; k < values.size(); ++k)
              if (std::abs(got.at(name)[k] - values[k]) > 1e-3f) problems[t] = name;
        }
      } catch (const std::exception& error) {
        problems[t] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& problem : problems) EXPECT_EQ(problem, "");
}

// A fault anywhere in the process takes the device's context from all who share it.
TEST(GpuEngine, ALostDeviceIsAnErrorAndComesBack) {
  if (test_device() != "emulated") GTEST_SKIP() << "it would take the card from other programs";
  const std::vector<Tensor> inputs = {random_f32({1, 3, 9, 7}, 3)};
  const auto wanted = reference(kConvNet, inputs);
  const EngineFile file = build_for(kConvNet, {"emulated", "cpu"});
  {
    const auto engine = load_on(file, "emulated");
    ExecutionContext context(engine);
    expect_near(run(context, *engine, inputs), wanted);
    {
      const auto device = cuda_backend().open("emulated");
      const auto faulty = cuda::code_of(*device).add(
          {"faulty", {}, "KERNEL($name, 32)(Out<f32> y, i64 n) { y[n + threadIdx.x] = 1; }"});
      static_cast<void>(device->prepare_code({}));
      const auto memory = device->allocate(64);
      const auto stream = device->make_stream();
      cuda::Arguments arguments;
      arguments.add(memory->data());
      arguments.add(int64_t{1} << 30);
      const std::string fault = error_of([&] {
        cuda::launch(*stream, *faulty, {.grid = {1, 1, 1}, .block = {32, 1, 1}}, arguments);
        stream->wait();
      });
      EXPECT_THAT(fault, AllOf(HasSubstr("device: "), HasSubstr("faulty_"), HasSubstr("line 1")));
    }
    for (int i = 0; i < 2; ++i) {
      const std::string error = error_of([&] { static_cast<void>(run(context, *engine, inputs)); });
      EXPECT_THAT(error, AllOf(HasSubstr("device: "), HasSubstr("step")));
    }
    // The CPU's plan of the same file is not concerned.
    const auto cpu = load_on(file, "cpu");
    ExecutionContext on_cpu(cpu);
    expect_near(run(on_cpu, *cpu, inputs), wanted);
  }
  const auto engine = load_on(file, "emulated");
  ExecutionContext context(engine);
  expect_near(run(context, *engine, inputs), wanted);
}

TEST(GpuPlan, ForgedTransfersAreRefused) {
  const EngineFile good = build_for(kMixedNet, {"emulated"}, kernels_of_matrix_resize());
  const auto transfer_of = [](EngineFile& file) -> Step& {
    for (Step& step : file.plans[0].steps)
      if (step.kernel == kTransfer) return step;
    throw std::logic_error("no transfer");
  };
  const auto refusal = [&](auto&& forge) {
    EngineFile file = good;
    forge(file, transfer_of(file));
    return error_of([&] { static_cast<void>(load_on(file, "cpu")); });
  };
  EXPECT_THAT(refusal([](EngineFile&, Step& step) {
                step.inputs = {step.inputs[0], step.inputs[0]};
              }),
              HasSubstr("copy one slot to one slot"));
  EXPECT_THAT(refusal([](EngineFile&, Step& step) { step.device = 1; }),
              HasSubstr("between the CPU and its device"));
  EXPECT_THAT(refusal([](EngineFile&, Step& step) {
                step.op = Pointwise{parse_program("(f32)->(f32) neg($0)")};
              }),
              HasSubstr("computes while it copies"));
  EXPECT_THAT(refusal([](EngineFile& file, Step& step) {
                file.plans[0].slots[step.outputs[0]].device = 1;
              }),
              HasSubstr("device"));
  EXPECT_THAT(
      refusal([](EngineFile& file, Step& step) { file.plans[0].slots[step.inputs[0]].device = 0; }),
      HasSubstr("device"));
  EXPECT_THAT(refusal([](EngineFile& file, Step&) { file.plans[0].arena_bytes.pop_back(); }),
              HasSubstr("arenas"));
  EXPECT_THAT(refusal([](EngineFile& file, Step&) { file.plans[0].devices[1] = "sm_90"; }),
              HasSubstr("no CPU"));
}

// An output whose size depends on values, and SizeTensor, on the device.
TEST(GpuPlan, WhatTheCpuMustHaveIsRefusedOnADevice) {
  const auto refusal = [&](std::string_view text, auto&& forge) {
    EngineFile file = build_for(text, {"sm_90"}, kernels_of_matrix_resize());
    forge(file.plans[0]);
    return error_of([&] { static_cast<void>(load_on(file, "cpu")); });
  };
  EXPECT_THAT(refusal(kLateNet, [](Plan& plan) { plan.slots[plan.outputs[0]].device = 0; }),
              HasSubstr("\"y\" lies on the wrong device"));
  constexpr std::string_view kSizes = R"txt(
size N in 1..9 opt 2
graph sizes(x: f32[N,4])
  s = SizeTensor() elements=[N,4]
  y = Pointwise(x) program="(f32)->(f32) neg($0)"
  return y, s
)txt";
  EXPECT_THAT(refusal(kSizes,
                      [](Plan& plan) {
                        for (Step& step : plan.steps)
                          if (std::holds_alternative<SizeTensor>(step.op)) step.device = 0;
                      }),
              HasSubstr("is for the CPU alone"));
}

}  // namespace
}  // namespace anneal::testing
