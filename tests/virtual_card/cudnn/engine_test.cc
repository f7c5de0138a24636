// Engines whose plans name cuDNN, with the fake of it on the virtual card. In another process
// without the library, or with another one, they run the recorded runner-up
// (tests/virtual_card/cudnn/engine_test.py).
//
// ANNEAL_CUDNN_ENGINE: a file that one test writes and another reads.
// ANNEAL_CUDNN_WHY: what the remarks of the other say, a regular expression.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

#include "anneal/core/new_tensor.h"
#include "anneal/engine/run/debug.h"
#include "anneal/engine/run/planned_kernel.h"
#include "anneal/kernels/cuda/api/libraries.h"
#include "anneal/tests/cuda/environment.h"
#include "anneal/tests/cuda/gpu_engine.h"
#include "anneal/tests/error_of.h"

namespace anneal::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Net {
  std::string_view name, text;
  std::vector<Dims> inputs;  // of f16
  int steps;                 // that cuDNN runs
};

// A bias and ReLU; a residual; a convolution of groups; a product.
const Net kImages = {"images",
                     R"txt(
graph images(x: f16[2,8,9,7])
  const w: f16[16,8,3,3] = random(1)
  const b: f16[16,1,1] = random(2)
  const v: f16[16,16,1,1] = random(3)
  const d: f16[16,4,3,3] = random(4)
  const m: f16[16,10] = random(5)
  c = Conv(x, w) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  r = Pointwise(c, b) program="(f16,f16)->(f16) round_f16(max(add($0,$1),0f32))"
  e = Conv(r, v) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  s = Pointwise(e, r) program="(f16,f16)->(f16) round_f16(max(add($0,$1),0f32))"
  g = Conv(s, d) strides=[2,2] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1] groups=4
  p = Reduce(g, i64{2,3}) kind=mean keepdims=false
  q = MatMul(p, m)
  y = Pointwise(q) program="(f16)->(f32) mul($0,0.125f32)"
  return y
)txt",
                     {{2, 8, 9, 7}},
                     4};

// Two heads of queries for each one of keys; each row sees itself and those before it.
const Net kAttention = {"attention",
                        R"txt(
graph attention(q: f16[2,4,12,16], k: f16[2,2,12,16], v: f16[2,2,12,16])
  const m: f16[16,8] = random(1)
  a = Attention(q, k, v) score="(f32)->(f32) select(lt(index(2),index(3)),-inff32,mul($0,0.25f32))"
  p = MatMul(a, m)
  y = Pointwise(p) program="(f16)->(f32) $0"
  return y
)txt",
                        {{2, 4, 12, 16}, {2, 2, 12, 16}, {2, 2, 12, 16}},
                        2};

std::vector<Tensor> inputs_of(const Net& net, uint32_t seed) {
  std::vector<Tensor> inputs;
  for (const Dims& dims : net.inputs) {
    const Tensor wide = random_f32(dims, seed++);
    NewTensor half = allocate_tensor(DataType::kF16, dims);
    for (int64_t i = 0; i < wide.count(); ++i)
      store_scalar(DataType::kF16,
                   Scalar::of(std::round(wide.as<float>()[static_cast<size_t>(i)] * 64) / 64),
                   half.data.data() + 2 * i);
    inputs.push_back(half.tensor);
  }
  return inputs;
}

// Each step that a kernel of cuDNN takes gets the tactic with this index, or its last one, as a
// tuner might choose; its own kernel becomes the runner-up. How many were changed.
int take_cudnn(EngineFile& file, Device& device, size_t index) {
  Plan& plan = file.plans[0];
  int count = 0;
  for (Step& step : plan.steps)
    for (const std::string_view name : {"cudnn.conv", "cudnn.matmul", "cudnn.attention"}) {
      const KernelEntry* const entry = find_kernel(cuda_backend(), name);
      if (entry == nullptr || step.op.index() != entry->op) continue;
      const StepOperands operands = operands_of(file, plan, step);
      Request request = request_of(plan, step, operands, device);
      request.tactic = {};
      const std::vector<Tactic> tactics = entry->tactics(request);
      if (tactics.empty()) {
        const KernelResult made = entry->make(request);
        ADD_FAILURE() << step.name << ": " << (made ? "no tactics" : made.reason());
        continue;
      }
      step.runner_up = step.kernel;
      step.runner_up_tactic = step.tactic;
      step.kernel = entry->name;
      step.tactic = tactics[std::min(index, tactics.size() - 1)];
      ++count;
      break;
    }
  return count;
}

// Calls that the fake was given to execute. Null: the library is NVIDIA's, on a GPU.
uint64_t (*executions())() {
  const auto& library = cuda::cudnn_library();
  void* const handle =
      library.table ? dlopen(library.path.c_str(), RTLD_NOW | RTLD_NOLOAD) : nullptr;
  if (handle == nullptr) return nullptr;
  return reinterpret_cast<uint64_t (*)()>(dlsym(handle, "fake_cudnn_executions"));
}

uint64_t executed() { return executions() != nullptr ? executions()() : 0; }

void expect_alike(const std::map<std::string, std::vector<float>>& got,
                  const std::map<std::string, std::vector<float>>& wanted) {
  for (const auto& [name, values] : wanted) {
    ASSERT_EQ(got.at(name).size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(got.at(name)[i], values[i], 0.02 * (1 + std::abs(values[i])))
          << name << ", element " << i;
  }
}

std::string path_of_engine() {
  const char* const path = std::getenv("ANNEAL_CUDNN_ENGINE");
  return path != nullptr ? path : "";
}

class CudnnEngine : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_device() != "cuda") GTEST_SKIP() << "ANNEAL_TEST_DEVICE names no card";
    device_ = cuda_backend().open("cuda");
  }
  void expect_right(const std::shared_ptr<const Engine>& engine, const Net& net) {
    ExecutionContext context(engine);
    // The second run at the same shapes is recorded, the third one played.
    for (uint32_t seed = 1; seed <= 4; ++seed)
      expect_alike(run(context, *engine, inputs_of(net, seed)),
                   reference(net.text, inputs_of(net, seed)));
    EXPECT_THAT(context.run_warnings(), IsEmpty());
  }
  std::unique_ptr<Device> device_;
};

TEST_F(CudnnEngine, PlansThatNameTheLibraryAgreeWithOurKernels) {
  if (!cuda::cudnn_library().table) GTEST_SKIP() << "cuDNN is not here";
  for (const Net& net : {kImages, kAttention}) {
    const EngineFile own = build_for(net.text, {test_target()});
    const auto without = load_on(own, "cuda");
    for (const size_t index : {size_t{0}, size_t{1}, size_t{7}}) {
      SCOPED_TRACE(std::string(net.name) + ", tactic " + std::to_string(index));
      EngineFile file = own;
      ASSERT_EQ(take_cudnn(file, *device_, index), net.steps);
      const auto engine = load_on(file, "cuda");
      EXPECT_THAT(engine->load_warnings(), IsEmpty());
      const uint64_t before = executed();
      expect_right(engine, net);
      // The first run launches, the second records, and two are played.
      if (executions() != nullptr) {
        EXPECT_EQ(executed() - before, 2u * static_cast<uint64_t>(net.steps));
      }
      ExecutionContext ours(without), theirs(engine);
      const auto inputs = inputs_of(net, 9);
      expect_alike(run(theirs, *engine, inputs), run(ours, *without, inputs));
    }
  }
}

TEST_F(CudnnEngine, ContextsOnTwoStreams) {
  if (!cuda::cudnn_library().table) GTEST_SKIP() << "cuDNN is not here";
  EngineFile file = build_for(kImages.text, {test_target()});
  ASSERT_EQ(take_cudnn(file, *device_, 1), kImages.steps);  // with workspaces
  const auto engine = load_on(file, "cuda");
  std::vector<std::thread> threads;
  for (uint32_t seed = 1; seed <= 2; ++seed)
    threads.emplace_back([&, seed] {
      ExecutionContext context(engine);
      const auto inputs = inputs_of(kImages, seed);
      const auto wanted = reference(kImages.text, inputs);
      for (int i = 0; i < 6; ++i) expect_alike(run(context, *engine, inputs), wanted);
      EXPECT_THAT(context.run_warnings(), IsEmpty());
    });
  for (std::thread& each : threads) each.join();
}

// Plans are made from published properties of the card, and run on the card.
TEST_F(CudnnEngine, PlansOfACrossBuildRun) {
  if (!cuda::cudnn_library().table) GTEST_SKIP() << "cuDNN is not here";
  const auto build_only = cuda_backend().open(test_target());
  EngineFile file = build_for(kImages.text, {test_target()});
  ASSERT_EQ(take_cudnn(file, *build_only, 1), kImages.steps);
  const auto engine = load_on(file, "cuda");
  EXPECT_THAT(engine->load_warnings(), IsEmpty());
  expect_right(engine, kImages);
}

TEST_F(CudnnEngine, ADamagedPlanIsReplacedByTheRunnerUp) {
  if (!cuda::cudnn_library().table) GTEST_SKIP() << "cuDNN is not here";
  EngineFile file = build_for(kImages.text, {test_target()});
  ASSERT_EQ(take_cudnn(file, *device_, 0), kImages.steps);
  size_t which = 0;
  for (Step& step : file.plans[0].steps) {
    if (!step.kernel.starts_with("cudnn.")) continue;
    // Of the plan's JSON, of what names the layer, or of the whole tactic.
    if (which % 3 == 0) step.tactic[step.tactic.size() - 40] = std::byte{0};
    if (which % 3 == 1) step.tactic.resize(step.tactic.size() - 1);
    if (which % 3 == 2) step.tactic = {std::byte{1}};
    ++which;
  }
  const auto engine = load_on(file, "cuda");
  EXPECT_EQ(engine->load_warnings().size(), which);
  const uint64_t before = executed();
  expect_right(engine, kImages);
  EXPECT_EQ(executed(), before);
}

TEST_F(CudnnEngine, AFailureOfTheLibraryEndsTheRun) {
  if (executions() == nullptr) GTEST_SKIP() << "the fake is not here";
  EngineFile file = build_for(kImages.text, {test_target()});
  ASSERT_EQ(take_cudnn(file, *device_, 0), kImages.steps);
  const auto engine = load_on(file, "cuda");
  ExecutionContext context(engine);
  const cuda::Setting fails("ANNEAL_FAKE_CUDNN_FAILS", "execute");
  const std::string error = error_of([&] { run(context, *engine, inputs_of(kImages, 1)); });
  EXPECT_THAT(error, AllOf(HasSubstr("CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER"),
                           HasSubstr("nothing runs")));
}

TEST_F(CudnnEngine, IsWritten) {
  if (path_of_engine().empty()) GTEST_SKIP() << "run by engine_test.py";
  ASSERT_NE(executions(), nullptr) << "the fake is not here";
  EngineFile file = build_for(kImages.text, {test_target()});
  ASSERT_EQ(take_cudnn(file, *device_, 0), kImages.steps);
  const std::vector<std::byte> bytes = save(file);
  std::ofstream(path_of_engine(), std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

std::shared_ptr<const Engine> engine_from_file() {
  std::ifstream from(path_of_engine(), std::ios::binary);
  const std::vector<char> content{std::istreambuf_iterator<char>(from), {}};
  const auto bytes = std::make_shared<std::vector<std::byte>>(content.size());
  std::memcpy(bytes->data(), content.data(), content.size());
  return make_engine(load_engine_file(*bytes, bytes), {.device = "cuda"});
}

TEST_F(CudnnEngine, IsReadAndRuns) {
  if (path_of_engine().empty()) GTEST_SKIP() << "run by engine_test.py";
  ASSERT_NE(executions(), nullptr) << "the fake is not here";
  const auto engine = engine_from_file();
  EXPECT_THAT(engine->load_warnings(), IsEmpty());
  expect_right(engine, kImages);
  EXPECT_GT(executions()(), 0u);
}

TEST_F(CudnnEngine, IsReadAndRunsTheRunnerUp) {
  const char* const why = std::getenv("ANNEAL_CUDNN_WHY");
  if (path_of_engine().empty() || why == nullptr) GTEST_SKIP() << "run by engine_test.py";
  const auto engine = engine_from_file();
  EXPECT_EQ(engine->load_warnings().size(), static_cast<size_t>(kImages.steps));
  for (const std::string& warning : engine->load_warnings())
    EXPECT_THAT(warning,
                AllOf(ContainsRegex("runs on cuda[.].* instead of cudnn[.]"), ContainsRegex(why)));
  expect_right(engine, kImages);
}

}  // namespace
}  // namespace anneal::testing
