// TopK of long lines: what is found, and that it does not depend on who looks where. Ties, numbers
// that are none, axes and types are the op suite's (topk_*).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <string>

#include "anneal/core/fail.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/tests/kernels/layer_run.h"
#include "anneal/tests/kernels/tensor_text.h"
#include "anneal/tests/worker_budget.h"

namespace anneal::testing {
namespace {

TestLayer layer_of(const TopK& op, const Tensor& x, int64_t k) {
  TestLayer layer{op};
  layer.inputs = {x, Tensor::of<int64_t>(DataType::kI64, {1}, std::vector<int64_t>{k})};
  layer.op_input_count = 2;
  Dims dims = x.dims();
  dims[static_cast<int>(op.axis)] = k;
  layer.outputs = {{x.dtype(), shape_of(dims)}, {DataType::kI64, shape_of(dims)}};
  layer.output_dims = {dims, dims};
  return layer;
}

RunResult run(const char* kernel, const TestLayer& layer, int threads = 1) {
  RunOptions options;
  options.threads = threads;
  return run_layer(*find_kernel(cpu_backend(), kernel), layer, *cpu_backend().open("cpu"), options);
}

// What a softmax has in the places that are found is nearly the same; all else is.
void expect_as_reference(const std::string& what, const TopK& op, const Tensor& x, int64_t k) {
  const TestLayer layer = layer_of(op, x, k);
  std::vector<Tensor> wanted = run("cpu.topk.reference", layer).outputs;
  for (const int threads : {1, 2, 3, 8}) {
    const RunResult got = run("cpu.topk.simd", layer, threads);
    ASSERT_EQ(got.why_not, "");
    if (op.of != TopKOf::kValues && threads == 1) {
      const double tolerance = default_tolerance(x.dtype());
      EXPECT_EQ(difference(got.outputs[0], wanted[0], tolerance), std::nullopt)
          << what << ": " << k;
      wanted[0] = got.outputs[0];
    }
    EXPECT_EQ(got.outputs, wanted) << what << ": k " << k << ", " << threads << " threads";
  }
}

class TopKLines : public ::testing::Test {
  WorkerBudget budget_{7};
};

TEST_F(TopKLines, AnyTeamFindsTheSame) {
  for (const char* text : {"f32[1,150001]", "f32[3,70001]", "bf16[1,90001]", "i8[2,100003]",
                           "i64[1,66000]", "f32[70001,2]"}) {
    const Tensor x = tensor_from_text(text, 1);
    const int64_t axis = x.dims()[0] > x.dims()[1] ? 0 : 1;
    for (const bool largest : {true, false})
      for (const int64_t k : {1, 7, 1500, 66000})
        expect_as_reference(text, TopK{axis, largest}, x, k);
  }
}

// Every element is a candidate when it is met, none is after the first ones, all are the same.
TEST_F(TopKLines, OrderedLines) {
  std::vector<float> numbers(50021);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = std::floor(static_cast<float>(i) / 3);
  const auto check = [&](const char* what) {
    const Tensor x = Tensor::of<float>(DataType::kF32, {1, 50021}, numbers);
    for (const bool largest : {true, false})
      for (const int64_t k : {1, 300, 5000}) expect_as_reference(what, TopK{1, largest}, x, k);
  };
  check("ascending");
  std::reverse(numbers.begin(), numbers.end());
  check("descending");
  std::fill(numbers.begin(), numbers.end(), -0.0f);
  for (size_t i = 0; i < numbers.size(); i += 2) numbers[i] = 0.0f;
  check("zeros");
  std::fill(numbers.begin(), numbers.end(), -std::numeric_limits<float>::infinity());
  check("infinities");
}

TEST_F(TopKLines, AnyTeamFindsTheSameOfASoftmax) {
  for (const char* text :
       {"f32[1,150001]=-20..20", "f32[3,70001]", "bf16[1,90001]=-9..9", "f16[70001,2]=-9..9"}) {
    const Tensor x = tensor_from_text(text, 1);
    const int64_t axis = x.dims()[0] > x.dims()[1] ? 0 : 1;
    for (const TopKOf of : {TopKOf::kSoftmax, TopKOf::kLogSoftmax})
      for (const bool largest : {true, false})
        for (const int64_t k : {1, 1500, 66000})
          expect_as_reference(text, TopK{axis, largest, true, of}, x, k);
  }
}

// Blocks of a line that have nothing, all, or the only number that is none.
TEST_F(TopKLines, SoftmaxOfSpecialNumbers) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> numbers(50021, -kInfinity);
  const auto check = [&](const char* what) {
    const Tensor x = Tensor::of<float>(DataType::kF32, {1, 50021}, numbers);
    for (const TopKOf of : {TopKOf::kSoftmax, TopKOf::kLogSoftmax})
      for (const bool largest : {true, false})
        for (const int64_t k : {1, 300, 5000})
          expect_as_reference(what, TopK{1, largest, true, of}, x, k);
  };
  check("hidden");
  for (size_t i = 20000; i < 20100; ++i) numbers[i] = static_cast<float>(i % 7);
  check("hidden but for a few");
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i) / 8;
  check("ascending");
  std::reverse(numbers.begin(), numbers.end());
  check("descending");
  numbers[30000] = -kInfinity;
  numbers[30002] = 3e38f, numbers[10] = -3e38f;
  check("far apart");
  numbers[17] = kInfinity;
  check("infinity");
  numbers[40000] = std::numeric_limits<float>::quiet_NaN();
  check("NaN");
  std::fill(numbers.begin(), numbers.begin() + 6000, numbers[40000]);
  check("NaN at first");
}

TEST_F(TopKLines, NotEnoughElementsAreAnError) {
  TestLayer layer = layer_of(TopK{0}, tensor_from_text("f32[5]", 1), 6);
  EXPECT_THROW(run("cpu.topk.simd", layer), Error);
}

}  // namespace
}  // namespace anneal::testing
