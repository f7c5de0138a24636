// Products of f32 by weights of f16 and bf16 give the bits of the f32 kernel with the same numbers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "anneal/core/fail.h"
#include "anneal/core/float16.h"
#include "anneal/core/new_tensor.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/tests/kernels/layer_run.h"
#include "anneal/tests/kernels/tensor_text.h"

namespace anneal::testing {
namespace {

struct Form {
  int64_t k, n;
  bool transposed;
};
constexpr Form kForms[] = {{70, 300, false}, {33, 45, true},     {129, 64, false}, {1100, 17, true},
                           {1, 1, true},     {1030, 131, false}, {64, 2048, true}};

struct Operands {
  TestLayer halves, floats;
};

TestLayer layer_of(const Form& form, const Tensor& a, const Tensor& b) {
  TestLayer layer{MatMul{.transpose_b = form.transposed}};
  layer.inputs = {a, b};
  layer.op_input_count = 2;
  const int64_t rows = a.dims()[0];
  layer.output_dims = {{rows, form.n}};
  layer.outputs = {{DataType::kF32, Shape{rows, form.n}}};
  return layer;
}

// Numbers of all magnitudes of the type, subnormal ones too.
Operands make(const Form& form, DataType half, int64_t rows) {
  std::mt19937 random(static_cast<uint32_t>(form.k + form.n));
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-24, 3);
  NewTensor a = allocate_tensor(DataType::kF32, {rows, form.k});
  for (size_t i = 0; i < a.data.size() / 4; ++i)
    reinterpret_cast<float*>(a.data.data())[i] = normal(random);
  const Dims dims = form.transposed ? Dims{form.n, form.k} : Dims{form.k, form.n};
  NewTensor halves = allocate_tensor(half, dims), floats = allocate_tensor(DataType::kF32, dims);
  for (size_t i = 0; i < halves.data.size() / 2; ++i) {
    const float number = std::ldexp(normal(random), exponent(random));
    const bool is_f16 = half == DataType::kF16;
    const uint16_t bits = is_f16 ? to_f16(number).bits : to_bf16(number).bits;
    reinterpret_cast<uint16_t*>(halves.data.data())[i] = bits;
    reinterpret_cast<float*>(floats.data.data())[i] =
        is_f16 ? to_f32(Float16{bits}) : to_f32(BFloat16{bits});
  }
  return {layer_of(form, a.tensor, halves.tensor), layer_of(form, a.tensor, floats.tensor)};
}

// Those that this machine, and ANNEAL_MAX_ISA, allow.
std::vector<std::string> targets() {
  std::vector<std::string> found = {"cpu", "cpu:baseline"};
  try {
    static_cast<void>(cpu_backend().open("cpu:avx2"));
    found.emplace_back("cpu:avx2");
  } catch (const Error&) {
  }
  return found;
}

const KernelEntry& kernel(const char* name) { return *find_kernel(cpu_backend(), name); }

TEST(HalfWeights, GiveTheBitsOfF32Ones) {
  for (const std::string& target : targets()) {
    const std::unique_ptr<Device> device = cpu_backend().open(target);
    for (const DataType half : {DataType::kF16, DataType::kBF16})
      for (const Form& form : kForms)
        for (const int64_t rows : {1, 2, 3, 5, 6, 7, 9, 100}) {
          const Operands operands = make(form, half, rows);
          const RunResult wanted =
              run_layer(kernel("cpu.matmul.packed"), operands.floats, *device, {.constants = {1}});
          ASSERT_EQ(wanted.why_not, "");
          for (const int threads : {1, 2}) {
            const RunResult got =
                run_layer(kernel("cpu.matmul.half_weights"), operands.halves, *device,
                          {.threads = threads, .constants = {1}, .ignore_speed_heuristics = true});
            ASSERT_EQ(got.why_not, "");
            EXPECT_EQ(got.outputs, wanted.outputs)
                << fmt::format("{}: {} x {} of {}, {} rows, {} threads", target, form.k, form.n,
                               to_string(half), rows, threads);
          }
        }
  }
}

TEST(HalfWeights, HaveTheReferencesResults) {
  const std::unique_ptr<Device> device = cpu_backend().open("cpu");
  for (const DataType half : {DataType::kF16, DataType::kBF16}) {
    const Operands operands = make({70, 45, true}, half, 3);
    const RunResult wanted = run_layer(kernel("cpu.matmul.reference"), operands.halves, *device);
    const RunResult of_f32 = run_layer(kernel("cpu.matmul.reference"), operands.floats, *device);
    const RunResult got = run_layer(kernel("cpu.matmul.half_weights"), operands.halves, *device,
                                    {.constants = {1}, .ignore_speed_heuristics = true});
    ASSERT_EQ(wanted.why_not + got.why_not, "");
    EXPECT_EQ(wanted.outputs, of_f32.outputs);
    EXPECT_EQ(difference(got.outputs[0], wanted.outputs[0], 1e-5), std::nullopt);
  }
}

// As values of a run, which a kernel that measured times chose may read.
TEST(HalfWeights, MayBePackedInARun) {
  const std::unique_ptr<Device> device = cpu_backend().open("cpu");
  for (const DataType half : {DataType::kF16, DataType::kBF16})
    for (const bool transposed : {false, true}) {
      const Operands operands = make({70, 45, transposed}, half, 3);
      const auto result = [&](std::vector<int> constants) {
        return run_layer(kernel("cpu.matmul.half_weights"), operands.halves, *device,
                         {.constants = std::move(constants), .ignore_speed_heuristics = true});
      };
      const RunResult packed = result({1}), in_run = result({});
      ASSERT_EQ(packed.why_not + in_run.why_not, "");
      EXPECT_EQ(packed.outputs, in_run.outputs);
    }
}

TEST(HalfWeights, OtherOperandsAreRefused) {
  const std::unique_ptr<Device> device = cpu_backend().open("cpu");
  const Operands operands = make({70, 45, false}, DataType::kF16, 3);
  EXPECT_EQ(run_layer(kernel("cpu.matmul.half_weights"), operands.halves, *device).why_not,
            "weights that are not constant are faster in f32");
  EXPECT_EQ(
      run_layer(kernel("cpu.matmul.half_weights"), operands.floats, *device, {.constants = {1}})
          .why_not,
      "no weights of f16 or bf16 for data of f32");
  EXPECT_EQ(run_layer(kernel("cpu.matmul.half_weights"), operands.halves,
                      *cpu_backend().open("cpu:baseline"), {.constants = {1}})
                .why_not,
            "without AVX2 f32 weights take less time");
  for (const char* other : {"cpu.matmul.packed", "cpu.matmul.quantized_weights"})
    EXPECT_NE(run_layer(kernel(other), operands.halves, *device, {.constants = {1}}).why_not, "");
}

}  // namespace
}  // namespace anneal::testing
