// Products by quantized weights give the bits of the f32 kernel with dequantized weights, for every
// instruction set, number of rows and way to have scales.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "anneal/core/new_tensor.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/tests/kernels/layer_run.h"

namespace anneal::testing {
namespace {

enum class Zeros { kNone, kMiddle, kAny };

struct Weights {
  int64_t k = 0, n = 0, groups = 1;
  bool per_column = true, transposed = false;
  DataType dtype = DataType::kI8;
  Zeros zeros = Zeros::kNone;
};

constexpr Weights kWeights[] = {
    {.k = 70, .n = 300},
    {.k = 33, .n = 45, .transposed = true, .dtype = DataType::kU8, .zeros = Zeros::kAny},
    {.k = 129, .n = 64, .per_column = false, .dtype = DataType::kU8, .zeros = Zeros::kMiddle},
    {.k = 1100, .n = 17, .transposed = true},
    {.k = 96, .n = 131, .groups = 3, .zeros = Zeros::kAny},
    {.k = 1024,
     .n = 40,
     .groups = 32,
     .transposed = true,
     .dtype = DataType::kU8,
     .zeros = Zeros::kMiddle},
    {.k = 1300, .n = 35, .groups = 2, .per_column = false},
};

struct Operands {
  TestLayer quantized, floats;
};

TestLayer layer_of(const Weights& weights, std::vector<std::optional<Tensor>> inputs,
                   int64_t rows) {
  TestLayer layer{MatMul{.transpose_b = weights.transposed}};
  layer.inputs = std::move(inputs);
  layer.op_input_count = static_cast<int>(layer.inputs.size());
  layer.output_dims = {{rows, weights.n}};
  layer.outputs = {{DataType::kF32, Shape{rows, weights.n}}};
  return layer;
}

Operands make(const Weights& w, int64_t rows) {
  std::mt19937 random(static_cast<uint32_t>(w.k + rows));
  std::normal_distribution<float> normal;
  const bool is_signed = w.dtype == DataType::kI8;
  const auto byte = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random) - (is_signed ? 128 : 0);
  };
  const auto dims = [&](int64_t depth, int64_t columns) {
    return w.transposed ? Dims{columns, depth} : Dims{depth, columns};
  };
  const auto at = [&](int64_t depth, int64_t columns, int64_t k, int64_t n) {
    return static_cast<size_t>(w.transposed ? n * depth + k : k * columns + n);
  };
  const int64_t columns = w.per_column ? w.n : 1, group = w.k / w.groups;
  NewTensor a = allocate_tensor(DataType::kF32, {rows, w.k});
  NewTensor integers = allocate_tensor(w.dtype, dims(w.k, w.n));
  NewTensor floats = allocate_tensor(DataType::kF32, dims(w.k, w.n));
  NewTensor scales = allocate_tensor(DataType::kF32, dims(w.groups, columns));
  NewTensor zeros = allocate_tensor(w.dtype, dims(w.groups, columns));
  for (size_t i = 0; i < a.data.size() / 4; ++i)
    reinterpret_cast<float*>(a.data.data())[i] = normal(random);
  for (size_t i = 0; i < scales.data.size() / 4; ++i)
    reinterpret_cast<float*>(scales.data.data())[i] = normal(random) * 0.01F;
  for (std::byte& zero : zeros.data)
    zero = static_cast<std::byte>(w.zeros == Zeros::kAny ? byte(0, 255) : byte(128, 128));
  for (int64_t k = 0; k < w.k; ++k)
    for (int64_t n = 0; n < w.n; ++n) {
      const int value = byte(0, 255);
      const size_t i = at(w.k, w.n, k, n);
      integers.data[i] = static_cast<std::byte>(value);
      const size_t of_scale = at(w.groups, columns, k / group, w.per_column ? n : 0);
      const auto raw = std::to_integer<int>(zeros.data[of_scale]);
      const int zero = w.zeros == Zeros::kNone ? 0 : is_signed ? static_cast<int8_t>(raw) : raw;
      reinterpret_cast<float*>(floats.data.data())[i] =
          static_cast<float>(value - zero) *
          reinterpret_cast<const float*>(scales.data.data())[of_scale];
    }
  std::optional<Tensor> zero;
  if (w.zeros != Zeros::kNone) zero = zeros.tensor;
  return {layer_of(w, {a.tensor, integers.tensor, std::nullopt, zero, scales.tensor}, rows),
          layer_of(w, {a.tensor, floats.tensor}, rows)};
}

TEST(QuantizedWeights, GiveTheBitsOfDequantizedOnes) {
  const KernelEntry* by_integers = find_kernel(cpu_backend(), "cpu.matmul.quantized_weights");
  const KernelEntry* by_floats = find_kernel(cpu_backend(), "cpu.matmul.packed");
  ASSERT_TRUE(by_integers && by_floats);
  std::unique_ptr<Device> device = cpu_backend().open("cpu");
  for (const Weights& weights : kWeights)
    for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 100}) {
      const Operands operands = make(weights, rows);
      const RunResult wanted = run_layer(*by_floats, operands.floats, *device, {.constants = {1}});
      ASSERT_EQ(wanted.why_not, "");
      for (const int threads : {1, 2}) {
        const RunResult got = run_layer(
            *by_integers, operands.quantized, *device,
            {.threads = threads, .constants = {1, 3, 4}, .ignore_speed_heuristics = true});
        ASSERT_EQ(got.why_not, "");
        EXPECT_EQ(got.outputs, wanted.outputs)
            << fmt::format("{} x {} in {} groups, {} rows, {} threads", weights.k, weights.n,
                           weights.groups, rows, threads);
      }
    }
}

TEST(QuantizedWeights, AreForInstructionSetsThatConvertBytes) {
  const KernelEntry* entry = find_kernel(cpu_backend(), "cpu.matmul.quantized_weights");
  std::unique_ptr<Device> device = cpu_backend().open("cpu:baseline");
  const Operands operands = make(kWeights[0], 1);
  EXPECT_EQ(run_layer(*entry, operands.quantized, *device, {.constants = {1, 3, 4}}).why_not,
            "without AVX2 f32 weights take less time");
}

TEST(QuantizedWeights, AreConstants) {
  const KernelEntry* entry = find_kernel(cpu_backend(), "cpu.matmul.quantized_weights");
  std::unique_ptr<Device> device = cpu_backend().open("cpu");
  const Operands operands = make(kWeights[0], 3);
  EXPECT_NE(run_layer(*entry, operands.quantized, *device).why_not, "");
  EXPECT_EQ(run_layer(*entry, operands.floats, *device, {.constants = {1}}).why_not,
            "weights without scales");
}

}  // namespace
}  // namespace anneal::testing
