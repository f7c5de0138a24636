// Engines whose plans name cuBLASLt, on the device of ANNEAL_TEST_DEVICE. In another process
// without the library, or with another one, they run the recorded runner-up
// (tests/virtual_card/cublas_lt_test.py).
//
// ANNEAL_CUBLAS_LT_ENGINE: a file that the first test writes and the second reads.
// ANNEAL_CUBLAS_LT_WHY: what the remark of the second says, a regular expression.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "anneal/engine/run/debug.h"
#include "anneal/engine/run/planned_kernel.h"
#include "anneal/kernels/cuda/cublas_lt/library.h"
#include "anneal/kernels/cuda/runtime/device.h"
#include "anneal/kernels/cuda/runtime/gpu_device.h"
#include "anneal/tests/cuda/gpu_engine.h"

namespace anneal::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A bias and ReLU, which only the approximate kernel has, then a product without; both of f32.
constexpr std::string_view kTwoProducts = R"txt(
graph two_products(x: f32[8,64])
  const w: f32[64,96] = random(1)
  const b: f32[96] = random(2)
  const v: f32[96,32] = random(3)
  p = MatMul(x, w)
  s = Pointwise(p, b) program="(f32,f32)->(f32) max(add($0,$1),0f32)"
  y = MatMul(s, v)
  return y
)txt";

std::string path_of_engine() {
  const char* const path = std::getenv("ANNEAL_CUBLAS_LT_ENGINE");
  return path != nullptr ? path : "";
}

// Each step that cuBLASLt can run gets its second algorithm, as a tuner might choose; its own
// kernel becomes the runner-up. How many were changed.
int take_the_library(EngineFile& file, Device& device) {
  Plan& plan = file.plans[0];
  int count = 0;
  for (const char* const name : {"cublaslt.matmul", "cublaslt.matmul.approximate"}) {
    const KernelEntry* const entry = find_kernel(cuda_backend(), name);
    for (Step& step : plan.steps) {
      if (step.op.index() != entry->op || step.kernel.starts_with("cublaslt")) continue;
      const StepOperands operands = operands_of(file, plan, step);
      Request request = request_of(plan, step, operands, device);
      request.tactic = {};
      const std::vector<Tactic> tactics = entry->tactics(request);
      if (tactics.size() < 3) continue;
      step.runner_up = step.kernel;
      step.runner_up_tactic = step.tactic;
      step.kernel = entry->name;
      step.tactic = tactics[2];  // with a workspace, of the fake
      ++count;
    }
  }
  return count;
}

std::vector<Tensor> inputs_of(uint32_t seed) { return {random_f32({8, 64}, seed)}; }

class CublasLtEngine : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_device() != "cuda") GTEST_SKIP() << "ANNEAL_TEST_DEVICE names no card";
  }
  static void expect_right(const std::shared_ptr<const Engine>& engine) {
    ExecutionContext context(engine);
    // The second run at the same shapes is recorded, the third one played.
    for (uint32_t seed = 1; seed <= 4; ++seed)
      expect_near(run(context, *engine, inputs_of(seed)), reference(kTwoProducts, inputs_of(seed)));
    EXPECT_THAT(context.run_warnings(), ::testing::IsEmpty());
  }
};

TEST_F(CublasLtEngine, RunsAPlanThatNamesTheLibrary) {
  const auto device = cuda_backend().open("cuda");
  const std::string& why = cuda::lt_handle_of(cuda::gpu_of(*device)).why_not();
  if (!why.empty()) GTEST_SKIP() << why;
  EngineFile file = build_for(kTwoProducts, {test_target()});
  ASSERT_EQ(take_the_library(file, *device), 2);
  const auto engine = load_on(file, "cuda");
  EXPECT_THAT(engine->load_warnings(), ::testing::IsEmpty());
  EXPECT_THAT(plan_of(*engine).steps[1].kernel, HasSubstr("cublaslt"));
  expect_right(engine);
  if (const std::string path = path_of_engine(); !path.empty()) {
    const std::vector<std::byte> bytes = save(file);
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
}

TEST_F(CublasLtEngine, RunsTheRunnerUpWhereTheLibraryRefuses) {
  const char* const why = std::getenv("ANNEAL_CUBLAS_LT_WHY");
  if (path_of_engine().empty() || why == nullptr) GTEST_SKIP() << "there is no engine to run";
  std::ifstream from(path_of_engine(), std::ios::binary);
  const std::vector<char> content{std::istreambuf_iterator<char>(from), {}};
  const auto bytes = std::make_shared<std::vector<std::byte>>(content.size());
  std::memcpy(bytes->data(), content.data(), content.size());
  const auto engine = make_engine(load_engine_file(*bytes, bytes), {.device = "cuda"});
  ASSERT_EQ(engine->load_warnings().size(), 2u);
  for (const std::string& warning : engine->load_warnings())
    EXPECT_THAT(warning, AllOf(HasSubstr("runs on cuda.matmul.simt instead of cublaslt.matmul"),
                               ::testing::ContainsRegex(why)));
  expect_right(engine);
}

}  // namespace
}  // namespace anneal::testing
