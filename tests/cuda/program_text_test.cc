// Every opcode on every register type, every storage type and every kind of literal, as text on the
// device, against evaluate(), on ugly values.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/new_tensor.h"
#include "anneal/graph/program/program_rules.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/kernels/cuda/backend.h"
#include "anneal/tests/cuda/environment.h"
#include "anneal/tests/kernels/layer_run.h"
#include "anneal/tests/kernels/tensor_text.h"

namespace anneal::testing {
namespace {

using Results = std::vector<std::pair<Reg, DataType>>;

constexpr DataType kRegisters[] = {DataType::kF32, DataType::kF64, DataType::kI32, DataType::kI64,
                                   DataType::kU32, DataType::kU64, DataType::kBool};

template <class T>
Tensor tensor_of(DataType dtype, const std::vector<T>& values) {
  return Tensor::of<T>(dtype, {static_cast<int64_t>(values.size())}, values);
}

template <class T>
Tensor ugly_floats(DataType dtype) {
  using Limits = std::numeric_limits<T>;
  std::vector<T> values = {T(0),
                           Limits::infinity(),
                           Limits::quiet_NaN(),
                           Limits::denorm_min(),
                           Limits::min(),
                           Limits::max(),
                           T(1e-40),
                           T(1e-8)};
  for (const double value : {0.25,
                             1.0 / 3,
                             0.5,
                             0.999,
                             1.0,
                             1.5,
                             2.0,
                             2.5,
                             3.0,
                             7.0,
                             10.25,
                             31.0,
                             88.72,
                             103.3,
                             126.5,
                             127.5,
                             128.0,
                             255.5,
                             256.0,
                             32767.5,
                             65504.0,
                             65519.9,
                             65520.0,
                             65536.0,
                             2147483647.0,
                             2147483648.0,
                             4294967040.0,
                             4294967296.0,
                             9.2233720368547748e18,
                             9.2233720368547758e18,
                             1.8446744073709552e19,
                             1e30,
                             1 + 0x1p-11 + 0x1p-40,
                             1 + 0x1p-11,
                             1 + 0x1p-8 + 0x1p-40,
                             1 + 0x1p-8,
                             0x1p-25,
                             0x1p-25 + 0x1p-60})
    values.push_back(static_cast<T>(value));
  for (size_t i = 0, count = values.size(); i < count; ++i) values.push_back(-values[i]);
  return tensor_of(dtype, values);
}

template <class T>
Tensor ugly_integers(DataType dtype) {
  using Limits = std::numeric_limits<T>;
  std::vector<T> values = {Limits::min(), T(Limits::min() + 1), Limits::max(), T(Limits::max() - 1),
                           T(Limits::max() / 2 + 1)};
  for (const int64_t value :
       {0,   1,   2,   3,   7,   31,    32,    33,    63,    64,    65,
        127, 128, 129, 255, 256, 32767, 32768, 65535, 65536, 46341, 16777217}) {
    values.push_back(static_cast<T>(value));
    values.push_back(static_cast<T>(-value));
  }
  return tensor_of(dtype, values);
}

Tensor ugly_values(DataType dtype) {
  switch (dtype) {
    case DataType::kF32:
      return ugly_floats<float>(dtype);
    case DataType::kF64:
      return ugly_floats<double>(dtype);
    case DataType::kI32:
      return ugly_integers<int32_t>(dtype);
    case DataType::kI64:
      return ugly_integers<int64_t>(dtype);
    case DataType::kU32:
      return ugly_integers<uint32_t>(dtype);
    case DataType::kU64:
      return ugly_integers<uint64_t>(dtype);
    default:
      return tensor_from_text("bool[2]={0,1}");
  }
}

// The values along one of `rank` axes.
Tensor along(const Tensor& values, int axis, int rank) {
  Dims dims = Dims::filled(rank, 1);
  dims[axis] = values.count();
  auto fresh = allocate_tensor(values.dtype(), dims);
  std::memcpy(fresh.data.data(), values.bytes().data(), values.bytes().size());
  return fresh.tensor;
}

DataType storage_of(RegisterType type) {
  for (const DataType dtype : kRegisters)
    if (register_type(dtype) == type) return dtype;
  return DataType::kF32;
}

bool is_valid(Opcode opcode, RegisterType type, std::span<const RegisterType> operands,
              uint64_t immediate = 0) {
  return fault({.opcode = opcode, .type = type, .immediate = immediate}, operands).empty();
}

// Whether the C library's function may differ from CUDA's, by the 4 ulp that either may be off.
bool is_approximate(Opcode opcode) {
  return (opcode >= Opcode::kExp && opcode <= Opcode::kSigmoid) || opcode == Opcode::kPow;
}

template <class T, class Bits>
bool is_near(T got, T wanted, int64_t ulps) {
  if (std::isnan(got) || std::isnan(wanted)) return std::isnan(got) && std::isnan(wanted);
  if (got == wanted) return true;
  if (std::signbit(got) != std::signbit(wanted)) return false;
  const auto distance = static_cast<int64_t>(std::bit_cast<Bits>(got)) -
                        static_cast<int64_t>(std::bit_cast<Bits>(wanted));
  return std::abs(distance) <= ulps;
}

// As Scalar's bits, NaN being one value.
bool agrees(DataType dtype, const std::byte* got, const std::byte* wanted, int64_t ulps) {
  const Scalar a = load_scalar(dtype, got), b = load_scalar(dtype, wanted);
  if (register_type(dtype) == RegisterType::kF32)
    return is_near<float, int32_t>(a.as<float>(), b.as<float>(), ulps);
  if (register_type(dtype) == RegisterType::kF64)
    return is_near<double, int64_t>(a.as<double>(), b.as<double>(), ulps);
  return a == b;
}

class ProgramText : public ::testing::Test {
 protected:
  struct Result {
    std::string what;
    int64_t ulps;
  };

  // Runs the program on the inputs; `results` says what each result is.
  void expect_agreement(const Program& program, const std::vector<Tensor>& inputs,
                        const std::vector<Result>& results) {
    TestLayer layer{.op = Pointwise{program}};
    for (const Tensor& input : inputs) layer.inputs.emplace_back(input);
    layer.op_input_count = static_cast<int>(inputs.size());
    SizeTable sizes;
    for (const Fact& fact : infer_with(layer, own_types(layer), sizes)) {
      layer.outputs.push_back(fact.type);
      layer.output_dims.push_back(dims_of(fact.type.shape));
    }
    const KernelEntry& kernel = *find_kernel(cuda_backend(), "cuda.pointwise.strided");
    const RunResult got = run_layer(kernel, layer, *device_);
    ASSERT_EQ(got.why_not, "");
    const auto wanted =
        run_layer(*reference_entry(cpu_backend(), op_index<Pointwise>), layer, *cpu_);
    for (size_t k = 0; k < results.size(); ++k) {
      const DataType dtype = layer.outputs[k].dtype;
      const size_t size = size_of(dtype);
      const int64_t elements = count(layer.output_dims[k]);
      int64_t wrong = 0;
      for (int64_t i = 0; i < elements; ++i) {
        const size_t at = static_cast<size_t>(i) * size;
        if (agrees(dtype, got.outputs[k].bytes().data() + at, wanted.outputs[k].bytes().data() + at,
                   results[k].ulps))
          continue;
        if (++wrong > 3) break;
        ADD_FAILURE() << results[k].what << ", element " << i << ": " << element(got.outputs[k], i)
                      << " instead of " << element(wanted.outputs[k], i);
      }
    }
  }

  std::unique_ptr<Device> cpu_ = cpu_backend().open("cpu");
  std::unique_ptr<Device> device_ = cuda_backend().open(cuda::device_under_test());
};

TEST_F(ProgramText, OpcodesOfOneOperand) {
  for (const DataType dtype : kRegisters) {
    const RegisterType type = register_type(dtype);
    ProgramBuilder builder;
    Results results;
    std::vector<Result> names;
    const Reg x = builder.input(0, dtype);
    const auto add = [&](Reg reg, DataType as, std::string what, int64_t ulps) {
      results.emplace_back(reg, as);
      names.push_back({fmt::format("{} of {}", what, to_string(dtype)), ulps});
    };
    for (size_t i = 0; i < kOpcodeCount; ++i) {
      const auto opcode = static_cast<Opcode>(i);
      if (operand_count(opcode) != 1) continue;
      if (opcode == Opcode::kCast) {
        for (const DataType to : kRegisters)
          if (to != dtype)
            add(builder.cast(x, register_type(to)), to, fmt::format("cast to {}", to_string(to)),
                0);
      } else if (opcode == Opcode::kRound || opcode == Opcode::kSaturate) {
        for (const DataType to : all_dtypes()) {
          if (to == DataType::kString ||
              !is_valid(opcode, register_type(to), {&type, 1}, static_cast<uint64_t>(to)))
            continue;
          add(opcode == Opcode::kRound ? builder.round(x, to) : builder.saturate(x, to), to,
              fmt::format("{} to {}", to_string(opcode), to_string(to)), 0);
        }
      } else if (is_valid(opcode, type, {&type, 1}) ||
                 is_valid(opcode, RegisterType::kBool, {&type, 1})) {
        const Reg result = builder.apply(opcode, x);
        add(result, storage_of(result.type), std::string(to_string(opcode)),
            is_approximate(opcode) ? 8 : 0);
      }
    }
    ASSERT_GE(results.size(), 7u);
    expect_agreement(builder.finish(results), {ugly_values(dtype)}, names);
  }
}

TEST_F(ProgramText, OpcodesOfTwoOperands) {
  for (const DataType dtype : kRegisters) {
    const RegisterType types[] = {register_type(dtype), register_type(dtype)};
    ProgramBuilder builder;
    Results results;
    std::vector<Result> names;
    const Reg x = builder.input(0, dtype), y = builder.input(1, dtype);
    for (size_t i = 0; i < kOpcodeCount; ++i) {
      const auto opcode = static_cast<Opcode>(i);
      if (operand_count(opcode) != 2 ||
          !(is_valid(opcode, types[0], types) || is_valid(opcode, RegisterType::kBool, types)))
        continue;
      const Reg result = builder.apply(opcode, x, y);
      results.emplace_back(result, storage_of(result.type));
      names.push_back({fmt::format("{} of {}", to_string(opcode), to_string(dtype)),
                       is_approximate(opcode) ? 8 : 0});
    }
    ASSERT_GE(results.size(), 4u);
    const Tensor values = ugly_values(dtype);
    expect_agreement(builder.finish(results), {along(values, 0, 2), along(values, 1, 2)}, names);
  }
}

TEST_F(ProgramText, Select) {
  for (const DataType dtype : kRegisters) {
    ProgramBuilder builder;
    const Reg chosen = builder.select(builder.input(0, DataType::kBool), builder.input(1, dtype),
                                      builder.input(2, dtype));
    const Tensor values = ugly_values(dtype);
    expect_agreement(builder.finish(chosen, dtype),
                     {along(ugly_values(DataType::kBool), 0, 2), along(values, 1, 2), values},
                     {{fmt::format("select of {}", to_string(dtype)), 0}});
  }
}

// All bits of one and two bytes.
TEST_F(ProgramText, LoadsAndStores) {
  for (const DataType dtype : all_dtypes()) {
    if (dtype == DataType::kString) continue;
    Tensor values = ugly_values(DataType::kBool);
    if (size_of(dtype) > 2) values = ugly_values(dtype);
    if (size_of(dtype) <= 2 && dtype != DataType::kBool) {
      auto all = allocate_tensor(dtype, {int64_t{1} << (8 * size_of(dtype))});
      for (size_t i = 0; i < all.data.size(); ++i)
        all.data[i] = static_cast<std::byte>(i % size_of(dtype) == 0 ? i / size_of(dtype)
                                                                     : (i / size_of(dtype)) >> 8);
      values = all.tensor;
    }
    ProgramBuilder builder;
    const Reg x = builder.input(0, dtype);
    expect_agreement(builder.finish(x, dtype), {values}, {{std::string(to_string(dtype)), 0}});
  }
}

TEST_F(ProgramText, LiteralsAndIndices) {
  for (const DataType dtype : kRegisters) {
    ProgramBuilder builder;
    builder.input(0, DataType::kU8);
    Results results;
    std::vector<Result> names;
    const Tensor values = ugly_values(dtype);
    for (int64_t i = 0; i < values.count(); ++i) {
      const RegisterType type = register_type(dtype);
      const double value = element(values, i);
      if (is_float(type)) {
        results.emplace_back(type == RegisterType::kF32
                                 ? builder.constant(static_cast<float>(value))
                                 : builder.constant(value),
                             dtype);
      } else {
        int64_t whole = 0;
        std::memcpy(&whole, values.bytes().data() + static_cast<size_t>(i) * size_of(dtype),
                    size_of(dtype));
        results.emplace_back(builder.constant(type, whole), dtype);
      }
      names.push_back({fmt::format("the literal {} of {}", value, to_string(dtype)), 0});
    }
    expect_agreement(builder.finish(results), {tensor_from_text("u8[2]")}, names);
  }
  expect_agreement(parse_program("(i64)->(i64) add($0,sub(mul(index(0),1000i64),index(1)))"),
                   {tensor_from_text("i64[7,23]")}, {{"index", 0}});
}

}  // namespace
}  // namespace anneal::testing
