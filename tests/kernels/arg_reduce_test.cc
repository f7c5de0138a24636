// ArgReduce of lines with NaNs and equal numbers, side by side and one after another.
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "anneal/core/fail.h"
#include "anneal/core/new_tensor.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/tests/kernels/layer_run.h"

namespace anneal::testing {
namespace {

// Of few different numbers; some are NaN.
Tensor random_lines(const Dims& dims, double nan_share, std::mt19937& random) {
  NewTensor made = allocate_tensor(DataType::kF32, dims);
  const float numbers[] = {-2, -0.0F, 0, 1, std::numeric_limits<float>::infinity()};
  for (size_t i = 0; i < made.data.size() / 4; ++i) {
    const bool is_nan = std::bernoulli_distribution(nan_share)(random);
    reinterpret_cast<float*>(made.data.data())[i] =
        is_nan ? std::numeric_limits<float>::quiet_NaN() : numbers[random() % std::size(numbers)];
  }
  return made.tensor;
}

RunResult run(const char* kernel, const ArgReduce& op, const Tensor& x, const std::string& target,
              int threads) {
  TestLayer layer{op};
  layer.inputs = {x};
  layer.op_input_count = 1;
  Dims dims = x.dims();
  dims[static_cast<int>(op.axis)] = 1;
  layer.outputs = {{DataType::kI64, shape_of(dims)}};
  layer.output_dims = {dims};
  return run_layer(*find_kernel(cpu_backend(), kernel), layer, *cpu_backend().open(target),
                   {.threads = threads, .is_exact = true});
}

TEST(ArgReduce, FindsTheSameInVectorsOfEveryCpu) {
  std::mt19937 random(1);
  for (const std::string target : {"cpu", "cpu:avx2", "cpu:baseline"}) {
    try {
      static_cast<void>(cpu_backend().open(target));
    } catch (const Error&) {
      continue;  // this machine, or ANNEAL_MAX_ISA, does not have it
    }
    for (const int64_t size : {1, 2, 7, 8, 16, 21, 33, 150})
      for (const int64_t lines : {1, 5, 16, 37, 130})
        for (const double nan_share : {0.0, 0.01})
          for (const int64_t axis : {1, 2})
            for (const bool largest : {true, false})
              for (const bool select_last : {true, false}) {
                const Dims dims = axis == 1 ? Dims{2, size, lines} : Dims{2, lines, size};
                const Tensor x = random_lines(dims, nan_share, random);
                const ArgReduce op{.largest = largest, .axis = axis, .select_last = select_last};
                const RunResult wanted = run("cpu.arg_reduce.reference", op, x, target, 1);
                const RunResult got = run("cpu.arg_reduce.lines", op, x, target, 2);
                ASSERT_EQ(wanted.why_not + got.why_not, "");
                ASSERT_EQ(got.outputs, wanted.outputs)
                    << target << ": " << size << " numbers along axis " << axis << ", " << lines
                    << " lines, largest " << largest << ", last " << select_last;
              }
  }
}

}  // namespace
}  // namespace anneal::testing
