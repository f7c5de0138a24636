// Products by quantized weights give the bits of the f32 kernel with dequantized weights, for every
// instruction set, number of rows and way to have scales.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "anneal/core/fail.h"
#include "anneal/core/new_tensor.h"
#include "anneal/graph/op/op_names.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/tests/kernels/layer_run.h"
#include "anneal/tests/kernels/tensor_text.h"

namespace anneal::testing {
namespace {

enum class Zeros { kNone, kMiddle, kAny };

struct Weights {
  int64_t k = 0, n = 0, groups = 1;
  bool per_column = true, transposed = false;
  DataType dtype = DataType::kI8;
  Zeros zeros = Zeros::kNone;
  WeightEncoding encoding = WeightEncoding::kIntegers;  // others are transposed
  float scale_unit = 0.001F;                            // of these others
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
    {.k = 1024, .n = 300, .groups = 32, .transposed = true, .encoding = WeightEncoding::kU4},
    {.k = 66,
     .n = 45,
     .groups = 3,
     .transposed = true,
     .zeros = Zeros::kAny,
     .encoding = WeightEncoding::kU4},
    {.k = 1030, .n = 17, .per_column = false, .transposed = true, .encoding = WeightEncoding::kU4},
    {.k = 96,
     .n = 33,
     .groups = 6,
     .per_column = false,
     .transposed = true,
     .zeros = Zeros::kAny,
     .encoding = WeightEncoding::kU4},
    {.k = 1024, .n = 300, .groups = 32, .transposed = true, .encoding = WeightEncoding::kU2},
    {.k = 132,
     .n = 45,
     .groups = 3,
     .transposed = true,
     .zeros = Zeros::kAny,
     .encoding = WeightEncoding::kU2},
    {.k = 1100, .n = 70, .transposed = true, .encoding = WeightEncoding::kE4M3},
    {.k = 96, .n = 33, .groups = 6, .transposed = true, .encoding = WeightEncoding::kE5M2},
    {.k = 1030,
     .n = 17,
     .per_column = false,
     .transposed = true,
     .encoding = WeightEncoding::kE4M3},
    {.k = 1024, .n = 300, .groups = 64, .transposed = true, .encoding = WeightEncoding::kE2M1},
    {.k = 66, .n = 131, .groups = 3, .transposed = true, .encoding = WeightEncoding::kFp4},
    {.k = 256, .n = 40, .groups = 4, .transposed = true, .encoding = WeightEncoding::kNf4},
};

struct Operands {
  TestLayer quantized, floats;
};

TestLayer layer_of(const Weights& weights, std::vector<std::optional<Tensor>> inputs,
                   int64_t rows) {
  TestLayer layer{MatMul{.transpose_b = weights.transposed, .b_encoding = weights.encoding}};
  layer.inputs = std::move(inputs);
  layer.op_input_count = static_cast<int>(layer.inputs.size());
  layer.output_dims = {{rows, weights.n}};
  layer.outputs = {{DataType::kF32, Shape{rows, weights.n}}};
  return layer;
}

Tensor normal_rows(int64_t rows, int64_t k) {
  std::mt19937 random(static_cast<uint32_t>(k + rows));
  std::normal_distribution<float> normal;
  NewTensor a = allocate_tensor(DataType::kF32, {rows, k});
  for (size_t i = 0; i < a.data.size() / 4; ++i)
    reinterpret_cast<float*>(a.data.data())[i] = normal(random);
  return a.tensor;
}

// A code of a finite number.
int random_code(WeightEncoding encoding, std::mt19937& random) {
  const int code = std::uniform_int_distribution<int>(0, (1 << bits_of(encoding)) - 1)(random);
  if (encoding == WeightEncoding::kE4M3 && (code & 0x7f) == 0x7f) return code - 1;
  if (encoding == WeightEncoding::kE5M2 && (code & 0x7c) == 0x7c) return code - 4;
  return code;
}

// The form of MatMul::b_encoding, and the same numbers as f32.
Operands make_codes(const Weights& w, int64_t rows) {
  std::mt19937 random(static_cast<uint32_t>(w.k + w.n));
  const int bits = bits_of(w.encoding), in_byte = codes_in_byte(w.encoding);
  const bool are_integers = has_integers(w.encoding);
  const int middle = are_integers ? 1 << (bits - 1) : 0;
  const int64_t columns = w.per_column ? w.n : 1, group = w.k / w.groups;
  NewTensor codes = allocate_tensor(DataType::kU8, {w.n, w.k / in_byte});
  NewTensor floats = allocate_tensor(DataType::kF32, {w.n, w.k});
  NewTensor scales = allocate_tensor(DataType::kF32, {columns, w.groups});
  NewTensor zeros = allocate_tensor(DataType::kU8, {columns, w.groups});
  auto* scale = reinterpret_cast<float*>(scales.data.data());
  for (size_t i = 0; i < zeros.data.size(); ++i) {
    scale[i] = w.scale_unit * static_cast<float>(random_code(WeightEncoding::kU4, random) + 1);
    zeros.data[i] =
        static_cast<std::byte>(w.zeros == Zeros::kAny ? random_code(w.encoding, random) : middle);
  }
  for (int64_t n = 0; n < w.n; ++n)
    for (int64_t k = 0; k < w.k; ++k) {
      const int code = random_code(w.encoding, random);
      const auto of_scale = static_cast<size_t>((w.per_column ? n * w.groups : 0) + k / group);
      std::byte& byte = codes.data[static_cast<size_t>(n * (w.k / in_byte) + k / in_byte)];
      byte |= static_cast<std::byte>(code << (k % in_byte * bits));
      const float number =
          are_integers ? static_cast<float>(code - std::to_integer<int>(zeros.data[of_scale]))
                       : number_of(w.encoding, static_cast<uint8_t>(code));
      reinterpret_cast<float*>(floats.data.data())[n * w.k + k] = number * scale[of_scale];
    }
  std::optional<Tensor> zero;
  if (w.zeros != Zeros::kNone) zero = zeros.tensor;
  const Tensor a = normal_rows(rows, w.k);
  Operands made{layer_of(w, {a, codes.tensor, std::nullopt, zero, scales.tensor}, rows),
                layer_of(w, {a, floats.tensor}, rows)};
  std::get<MatMul>(made.floats.op).b_encoding = WeightEncoding::kIntegers;
  return made;
}

Operands make(const Weights& w, int64_t rows) {
  if (w.encoding != WeightEncoding::kIntegers) return make_codes(w, rows);
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
  const Tensor a = normal_rows(rows, w.k);
  NewTensor integers = allocate_tensor(w.dtype, dims(w.k, w.n));
  NewTensor floats = allocate_tensor(DataType::kF32, dims(w.k, w.n));
  NewTensor scales = allocate_tensor(DataType::kF32, dims(w.groups, columns));
  NewTensor zeros = allocate_tensor(w.dtype, dims(w.groups, columns));
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
  return {layer_of(w, {a, integers.tensor, std::nullopt, zero, scales.tensor}, rows),
          layer_of(w, {a, floats.tensor}, rows)};
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
            << fmt::format("{} x {} in {} groups of {}, {} rows, {} threads", weights.k, weights.n,
                           weights.groups, to_string(weights.encoding), rows, threads);
      }
    }
}

TEST(QuantizedWeights, HaveTheReferencesResults) {
  const KernelEntry* reference = find_kernel(cpu_backend(), "cpu.matmul.reference");
  const KernelEntry* by_integers = find_kernel(cpu_backend(), "cpu.matmul.quantized_weights");
  std::unique_ptr<Device> device = cpu_backend().open("cpu");
  for (const Weights& weights : kWeights) {
    const Operands operands = make(weights, 3);
    const RunResult wanted = run_layer(*reference, operands.quantized, *device);
    const RunResult got = run_layer(*by_integers, operands.quantized, *device,
                                    {.constants = {1, 3, 4}, .ignore_speed_heuristics = true});
    ASSERT_EQ(wanted.why_not + got.why_not, "");
    EXPECT_EQ(difference(got.outputs[0], wanted.outputs[0], 1e-5), std::nullopt)
        << fmt::format("{} x {} in {} groups", weights.k, weights.n, weights.groups);
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

// The product of rows that are rounded to 8 bits by blocks of k, in f64.
std::vector<double> rounded_product(const Weights& w, const Operands& operands, int64_t rows) {
  const auto a = operands.floats.inputs[0]->as<float>();
  const auto b = operands.floats.inputs[1]->as<float>();
  const int64_t group = w.k / w.groups;
  std::vector<double> sums;
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<double> rounded;
    for (int64_t k = 0; k < w.k; k += group) {
      const auto part = a.subspan(static_cast<size_t>(row * w.k + k), static_cast<size_t>(group));
      float most = 0;
      for (const float x : part) most = std::max(most, std::abs(x));
      for (const float x : part)
        rounded.push_back(most == 0 ? 0 : std::nearbyint(x * (127 / most)) * double{most / 127});
    }
    for (int64_t n = 0; n < w.n; ++n) {
      double sum = 0;
      for (size_t k = 0; k < rounded.size(); ++k)
        sum += rounded[k] * b[static_cast<size_t>(n * w.k) + k];
      sums.push_back(sum);
    }
  }
  return sums;
}

const KernelEntry& rounded_rows() { return *find_kernel(cpu_backend(), "cpu.matmul.rounded_rows"); }

constexpr float kBinaryUnit = 1.0F / 1024;  // f16 holds multiples of it
// Weights as the kernel takes them.
constexpr Weights kOfRoundedRows[] = {
    {.k = 1024,
     .n = 300,
     .groups = 32,
     .transposed = true,
     .encoding = WeightEncoding::kU4,
     .scale_unit = kBinaryUnit},
    {.k = 96,
     .n = 33,
     .groups = 6,
     .transposed = true,
     .zeros = Zeros::kAny,
     .encoding = WeightEncoding::kU4,
     .scale_unit = kBinaryUnit},
    {.k = 4096,
     .n = 70,
     .per_column = false,
     .transposed = true,
     .encoding = WeightEncoding::kU4,
     .scale_unit = kBinaryUnit},
    {.k = 240,
     .n = 16,
     .groups = 5,
     .per_column = false,
     .transposed = true,
     .zeros = Zeros::kAny,
     .encoding = WeightEncoding::kU4,
     .scale_unit = kBinaryUnit},
    {.k = 512,
     .n = 45,
     .groups = 16,
     .transposed = true,
     .encoding = WeightEncoding::kU2,
     .scale_unit = kBinaryUnit},
    {.k = 96,
     .n = 33,
     .groups = 6,
     .transposed = true,
     .zeros = Zeros::kAny,
     .encoding = WeightEncoding::kU2,
     .scale_unit = kBinaryUnit},
    {.k = 256, .n = 40, .groups = 8, .transposed = true, .encoding = WeightEncoding::kU4},
    {.k = 1024,
     .n = 300,
     .groups = 32,
     .transposed = true,
     .dtype = DataType::kU8,
     .zeros = Zeros::kMiddle},
    {.k = 96,
     .n = 33,
     .groups = 6,
     .transposed = true,
     .dtype = DataType::kU8,
     .zeros = Zeros::kAny},
    {.k = 512, .n = 45, .groups = 16, .transposed = true},
    {.k = 240, .n = 16, .groups = 5, .per_column = false, .transposed = true, .zeros = Zeros::kAny},
    {.k = 64, .n = 70, .transposed = true, .dtype = DataType::kU8},
};

// Those that this machine, and ANNEAL_MAX_ISA, allow.
std::vector<std::string> targets_here() {
  std::vector<std::string> targets = {"cpu", "cpu:baseline"};
  try {
    static_cast<void>(cpu_backend().open("cpu:avx2"));
    targets.emplace_back("cpu:avx2");
  } catch (const Error&) {
  }
  return targets;
}

// The results of the kernel, which are the same bits for all targets, placements and threads.
std::vector<Tensor> results_everywhere(const KernelEntry& kernel, const TestLayer& layer,
                                       const std::string& of_what) {
  std::vector<Tensor> first;
  for (const std::string& target : targets_here())
    for (const Placement placement :
         {Placement::kRowMajor, Placement::kPadded, Placement::kReversed})
      for (const int threads : {1, 2}) {
        std::unique_ptr<Device> device = cpu_backend().open(target);
        const RunResult got = run_layer(kernel, layer, *device,
                                        {.placement = placement,
                                         .threads = threads,
                                         .constants = {1, 3, 4},
                                         .ignore_speed_heuristics = true});
        EXPECT_EQ(got.why_not, "");
        if (first.empty()) first = got.outputs;
        EXPECT_EQ(got.outputs, first)
            << fmt::format("{}, {}, {} threads", of_what, target, threads);
      }
  return first;
}

TEST(RoundedRows, GiveTheFormulasSumsOnEveryCpu) {
  for (const Weights& weights : kOfRoundedRows)
    for (const int64_t rows : {1, 2, 3, 4, 5, 7, 33, 70}) {
      Operands operands = make(weights, rows);
      std::get<MatMul>(operands.quantized.op).may_round_a = true;
      const std::vector<double> wanted = rounded_product(weights, operands, rows);
      double largest = 0;
      for (const double sum : wanted) largest = std::max(largest, std::abs(sum));
      const std::vector<Tensor> first = results_everywhere(
          rounded_rows(), operands.quantized,
          fmt::format("{} x {} in {} groups, {} rows", weights.k, weights.n, weights.groups, rows));
      ASSERT_EQ(first.size(), 1u);
      const auto sums = first[0].as<float>();
      ASSERT_EQ(sums.size(), wanted.size());
      // Scales that f16 cannot hold are rounded.
      const bool has_binary_scales =
          weights.encoding != WeightEncoding::kIntegers && weights.scale_unit == kBinaryUnit;
      const double tolerance = has_binary_scales ? 1e-5 : 1.0 / 2048;
      for (size_t i = 0; i < sums.size(); ++i)
        ASSERT_NEAR(sums[i], wanted[i], tolerance * largest) << rows << " rows, " << i;
    }
}

TEST(RoundedRows, KeepWhatIsNotFinite) {
  const Weights& weights = kOfRoundedRows[0];
  Operands operands = make(weights, 5);
  std::get<MatMul>(operands.quantized.op).may_round_a = true;
  std::vector<float> rows(operands.floats.inputs[0]->as<float>().begin(),
                          operands.floats.inputs[0]->as<float>().end());
  const auto row = [&](size_t i) { return rows.begin() + static_cast<std::ptrdiff_t>(i * 1024); };
  std::fill(row(0), row(1), 0.0F);
  *(row(1) + 100) = std::numeric_limits<float>::quiet_NaN();
  *(row(2) + 1023) = -std::numeric_limits<float>::infinity();
  std::fill(row(3), row(4), 1e-38F);
  operands.quantized.inputs[0] = Tensor::of<float>(DataType::kF32, {5, 1024}, rows);
  for (const char* target : {"cpu", "cpu:baseline"}) {
    std::unique_ptr<Device> device = cpu_backend().open(target);
    const RunResult got = run_layer(rounded_rows(), operands.quantized, *device,
                                    {.constants = {1, 3, 4}, .ignore_speed_heuristics = true});
    ASSERT_EQ(got.why_not, "");
    const auto sums = got.outputs[0].as<float>();
    for (size_t n = 0; n < 300; ++n) {
      EXPECT_EQ(sums[n], 0);
      EXPECT_TRUE(std::isnan(sums[300 + n]) && std::isnan(sums[600 + n]));
      EXPECT_EQ(sums[900 + n], 0) << "smaller numbers than 1e-30 count as 0";
      EXPECT_TRUE(std::isfinite(sums[1200 + n]) && sums[1200 + n] != 0);
    }
  }
}

TEST(RoundedRows, AreOnlyThoseThatMayBe) {
  std::unique_ptr<Device> device = cpu_backend().open("cpu");
  const auto why_not = [&](const Weights& weights, bool may_round) {
    Operands operands = make(weights, 2);
    std::get<MatMul>(operands.quantized.op).may_round_a = may_round;
    return run_layer(rounded_rows(), operands.quantized, *device,
                     {.constants = {1, 3, 4}, .ignore_speed_heuristics = true})
        .why_not;
  };
  EXPECT_EQ(why_not(kOfRoundedRows[0], false), "the left side may not be rounded");
  EXPECT_EQ(why_not(kWeights[0], true), "the codes of a column do not follow each other");
  EXPECT_EQ(why_not({.k = 64, .n = 4, .transposed = true, .encoding = WeightEncoding::kE2M1}, true),
            "the weights are no integers with scales");
  EXPECT_EQ(why_not({.k = 66, .n = 4, .transposed = true, .encoding = WeightEncoding::kU4}, true),
            "scales of groups that are no multiple of 16");
  Operands operands = make(kOfRoundedRows[0], 2);
  std::get<MatMul>(operands.quantized.op).may_round_a = true;
  std::vector<float> scales(300 * 32, 1.0F);
  std::fill(scales.begin(), scales.begin() + 32, 1e-9F);
  operands.quantized.inputs[4] = Tensor::of<float>(DataType::kF32, {300, 32}, scales);
  EXPECT_EQ(
      run_layer(rounded_rows(), operands.quantized, *device, {.constants = {1, 3, 4}}).why_not,
      "scales that f16 cannot hold");
  EXPECT_FALSE(rounded_rows().exact) << "--exact leaves it out";
}

const KernelEntry& split_rows() { return *find_kernel(cpu_backend(), "cpu.matmul.split_rows"); }

// Weights of 8 bits whose columns lie apart, also with scales that several groups of rows share.
constexpr Weights kOfSplitRows[] = {
    {.k = 512, .n = 45},
    {.k = 96, .n = 131, .groups = 3, .zeros = Zeros::kAny},
    {.k = 1296, .n = 35, .groups = 3, .per_column = false},
    {.k = 272, .n = 64, .dtype = DataType::kU8, .zeros = Zeros::kMiddle},
    {.k = 1120, .n = 17, .transposed = true},
};

// Multiplies all numbers by `scale`, and one of each 100 by `outliers`: it costs others of its
// group digits.
void scale_rows(Operands& operands, float outliers, float scale) {
  const Tensor& a = *operands.floats.inputs[0];
  std::vector<float> numbers(a.as<float>().begin(), a.as<float>().end());
  for (float& number : numbers) number *= scale;
  for (size_t i = 0; i < numbers.size(); i += 100) numbers[i] *= outliers;
  operands.floats.inputs[0] = operands.quantized.inputs[0] =
      Tensor::of<float>(DataType::kF32, a.dims(), numbers);
}

// The product in f64, and how far off f32 may be: 2^-22 of the sum of all magnitudes, each taken as
// the largest one of 64 rows of b around it.
struct ExactProduct {
  std::vector<double> sums, tolerances;
};
ExactProduct exact_product(const Weights& w, const Operands& operands, int64_t rows) {
  const auto a = operands.floats.inputs[0]->as<float>();
  const auto b = operands.floats.inputs[1]->as<float>();
  ExactProduct product;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t n = 0; n < w.n; ++n) {
      double sum = 0, magnitudes = 0;
      for (int64_t k = 0; k < w.k; ++k) {
        double most = 0;
        for (int64_t i = std::max<int64_t>(k - 63, 0); i < std::min(k + 64, w.k); ++i)
          most = std::max<double>(most, std::abs(a[static_cast<size_t>(row * w.k + i)]));
        const double number = b[static_cast<size_t>(w.transposed ? n * w.k + k : k * w.n + n)];
        sum += a[static_cast<size_t>(row * w.k + k)] * number;
        magnitudes += most * std::abs(number);
      }
      product.sums.push_back(sum);
      product.tolerances.push_back(std::ldexp(magnitudes, -22));
    }
  return product;
}

void expect_digits_of_f32(const Weights& weights, int64_t rows, float outliers, float scale = 1) {
  Operands operands = make(weights, rows);
  scale_rows(operands, outliers, scale);
  const ExactProduct wanted = exact_product(weights, operands, rows);
  const std::vector<Tensor> first =
      results_everywhere(split_rows(), operands.quantized,
                         fmt::format("{} x {}, {} rows", weights.k, weights.n, rows));
  ASSERT_EQ(first.size(), 1u);
  const auto sums = first[0].as<float>();
  ASSERT_EQ(sums.size(), wanted.sums.size());
  for (size_t i = 0; i < sums.size(); ++i)
    ASSERT_NEAR(sums[i], wanted.sums[i], wanted.tolerances[i]) << fmt::format(
        "{} x {} in {} groups, {} rows, element {}", weights.k, weights.n, weights.groups, rows, i);
}

TEST(SplitRows, GiveTheDigitsOfF32OnEveryCpu) {
  for (const Weights& weights : kOfRoundedRows) expect_digits_of_f32(weights, 3, 1);
  for (const Weights& weights : kOfSplitRows)
    for (const int64_t rows : {1, 2, 11, 23}) expect_digits_of_f32(weights, rows, 1);
  expect_digits_of_f32(kOfSplitRows[1], 2, 1, 1e-28F);
  expect_digits_of_f32(kOfRoundedRows[0], 2, 1e4F);
  expect_digits_of_f32(kOfSplitRows[0], 2, 1e4F);
}

TEST(SplitRows, GiveNanWhereANumberIsNotFinite) {
  const Weights& weights = kOfRoundedRows[0];
  Operands operands = make(weights, 3);
  std::vector<float> rows(operands.floats.inputs[0]->as<float>().begin(),
                          operands.floats.inputs[0]->as<float>().end());
  rows[1024 + 100] = std::numeric_limits<float>::infinity();
  std::fill(rows.begin() + 2048, rows.end(), 0.0F);
  operands.quantized.inputs[0] = Tensor::of<float>(DataType::kF32, {3, 1024}, rows);
  std::unique_ptr<Device> device = cpu_backend().open("cpu");
  const RunResult got = run_layer(split_rows(), operands.quantized, *device,
                                  {.constants = {1, 3, 4}, .ignore_speed_heuristics = true});
  ASSERT_EQ(got.why_not, "");
  const auto sums = got.outputs[0].as<float>();
  for (size_t n = 0; n < 300; ++n) {
    EXPECT_TRUE(std::isfinite(sums[n]));
    EXPECT_TRUE(std::isnan(sums[300 + n]));
    EXPECT_EQ(sums[600 + n], 0);
  }
}

// With one thread blocks of rows are rounded one by one, with five all rows before.
TEST(SplitRows, AndRoundedOnesOfManyBlocksAreThoseOfAnyThreads) {
  Operands operands = make(kOfRoundedRows[1], 150);
  std::get<MatMul>(operands.quantized.op).may_round_a = true;
  std::unique_ptr<Device> device = cpu_backend().open("cpu");
  for (const KernelEntry& kernel : {rounded_rows(), split_rows()}) {
    std::vector<Tensor> first;
    for (const Placement placement : {Placement::kRowMajor, Placement::kReversed})
      for (const int threads : {1, 5}) {
        const RunResult got = run_layer(kernel, operands.quantized, *device,
                                        {.placement = placement,
                                         .threads = threads,
                                         .constants = {1, 3, 4},
                                         .ignore_speed_heuristics = true});
        ASSERT_EQ(got.why_not, "");
        if (first.empty()) first = got.outputs;
        EXPECT_EQ(got.outputs, first) << kernel.name << ", " << threads << " threads";
      }
  }
}

TEST(SplitRows, AreForVectorsThatMultiplyBytes) {
  std::unique_ptr<Device> device = cpu_backend().open("cpu:baseline");
  const Operands operands = make(kOfRoundedRows[0], 1);
  EXPECT_EQ(run_layer(split_rows(), operands.quantized, *device, {.constants = {1, 3, 4}}).why_not,
            "without VNNI f32 weights take less time");
  EXPECT_FALSE(split_rows().exact) << "--exact leaves it out";
}

}  // namespace
}  // namespace anneal::testing
