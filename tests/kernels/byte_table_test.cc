// Functions of one 8-bit number: their table, what it refuses, and the kernels that look it up.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "anneal/kernels/byte_table.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/kernels/cpu/base/byte_lookup.h"
#include "anneal/tests/kernels/layer_run.h"
#include "anneal/tests/kernels/tensor_text.h"

namespace anneal::testing {
namespace {

constexpr const char* kKernel = "cpu.pointwise.table";

TestLayer layer_of(const char* program, const Tensor& x, DataType result) {
  TestLayer layer{Pointwise{parse_program(program)}};
  layer.inputs = {x};
  layer.op_input_count = 1;
  layer.outputs = {{result, shape_of(x.dims())}};
  layer.output_dims = {x.dims()};
  return layer;
}

RunResult run(const TestLayer& layer, std::span<const std::byte> tactic = {}) {
  const auto device = cpu_backend().open("cpu");
  RunOptions options;
  options.tactic = tactic;
  return run_layer(*find_kernel(cpu_backend(), kKernel), layer, *device, options);
}

TEST(ByteTable, HoldsTheResultOfEveryByte) {
  std::vector<int8_t> all(256);
  std::iota(all.begin(), all.end(), static_cast<int8_t>(-128));
  const Tensor x = Tensor::of<int8_t>(DataType::kI8, {256}, all);
  const RunResult got =
      run(layer_of("(i8)->(u8) saturate_u8(rint(mul(f32($0),2.5f32)))", x, DataType::kU8));
  ASSERT_EQ(got.why_not, "");
  ASSERT_EQ(got.tactic.size(), 256u);
  for (int i = -128; i < 128; ++i) {
    const float wanted = std::min(255.f, std::max(0.f, std::nearbyint(2.5f * float(i))));
    EXPECT_EQ(got.outputs[0].as<uint8_t>()[static_cast<size_t>(i + 128)], wanted) << i;
    EXPECT_EQ(std::to_integer<int>(got.tactic[static_cast<uint8_t>(i)]), wanted) << i;
  }
}

TEST(ByteTable, ATacticIsTheTable) {
  const Tensor x = tensor_from_text("u8[3]={0,7,255}", 1);
  const TestLayer layer = layer_of("(u8)->(u8) max($0,9u32)", x, DataType::kU8);
  std::vector<std::byte> tactic(256, std::byte{1});
  tactic[7] = std::byte{99};
  const RunResult got = run(layer, tactic);
  ASSERT_EQ(got.why_not, "");
  EXPECT_EQ(got.outputs[0], tensor_from_text("u8[3]={1,99,1}", 1));
  tactic.pop_back();
  EXPECT_EQ(run(layer, tactic).why_not, "a tactic that is none of this kernel's");
}

TEST(ByteTable, OtherLayersAreRefused) {
  const Tensor bytes = tensor_from_text("i8[5]", 1), words = tensor_from_text("i16[5]", 1);
  const auto refusal = [](const char* program, const Tensor& x, DataType result) {
    return run(layer_of(program, x, result)).why_not;
  };
  const std::string other = "not from one tensor of 8 bits to one of 8 bits";
  EXPECT_EQ(refusal("(i16)->(i8) saturate_i8($0)", words, DataType::kI8), other);
  EXPECT_EQ(refusal("(i8)->(i16) mul($0,3i32)", bytes, DataType::kI16), other);
  EXPECT_EQ(refusal("(i8)->(i8) $0", bytes, DataType::kI8), "a program that computes nothing");
  EXPECT_EQ(refusal("(i8)->(i8) round_i8(add($0,i32(index(0))))", bytes, DataType::kI8),
            "a program that uses an index");
  TestLayer two = layer_of("(i8,i8)->(i8) min($0,$1)", bytes, DataType::kI8);
  two.inputs.emplace_back(bytes);
  two.op_input_count = 2;
  EXPECT_EQ(run(two).why_not, other);
}

TEST(ByteLookup, OfEveryLengthAndInstructionSet) {
  std::vector<uint8_t> table(256), from(300);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<uint8_t>(i * i + 31 * i + 5);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 167);
  for (const Isa isa : {Isa::kBaseline, current_isa()}) {
    const cpu::LookUpBytes look_up = cpu::look_up_bytes(isa);
    for (size_t n = 0; n < 200; ++n) {
      std::vector<uint8_t> to(from.size(), 17), wanted = to;
      for (size_t i = 0; i < n; ++i) wanted[i] = table[from[i]];
      look_up(table.data(), from.data(), to.data(), static_cast<int64_t>(n));
      ASSERT_EQ(to, wanted) << to_string(isa) << ", " << n;
    }
  }
}

}  // namespace
}  // namespace anneal::testing
