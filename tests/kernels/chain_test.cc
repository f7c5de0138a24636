// Chains against tiles and evaluate(), on every instruction set that this CPU has.
#include "anneal/kernels/cpu/chain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "anneal/tests/kernels/tape_check.h"

namespace anneal::cpu {
namespace {

// What epilogues and activations look like. Both operands of a step, what is used twice, integers
// in f32, rounding, and NaN.
constexpr const char* kChains[] = {
    "(f32,f32)->(f32) min(max(add($0,$1),0f32),6f32)",
    "(f32,f32,f32)->(f32) max(add($2,add($0,$1)),0f32)",
    "(f32,f32)->(f32) sub(2f32,div($1,sub($0,$1)))",
    "(f32)->(f32) div(1f32,sqrt(abs($0)))",
    "(f32,f32)->(f32) %0=add($0,$1); mul(%0,sigmoid(%0))",
    "(f32,f32)->(f32) %0=add($0,$1); mul(mul(%0,add(erf(mul(%0,0.70710677f32)),1f32)),0.5f32)",
    "(f32,f32)->(f32) %0=add($0,$1); mul(mul(%0,0.5f32),add(1f32,tanh(mul(add(%0,mul(mul("
    "mul(%0,%0),%0),0.044715f32)),0.7978845f32))))",
    "(f32)->(f32) mul($0,min(max(add($0,3f32),0f32),6f32))",
    "(f32,f32)->(f32) sub(exp($0),floor($1))",
    "(bf16,bf16)->(bf16) round_bf16(add($0,$1))",
    "(f16,f32)->(f16) round_f16(mul($0,neg($1)))",
    "(i32,f32)->(u8) saturate_u8(rint(div(add($1,mul(f32($0),0.0078125f32)),0.25f32)))",
    "(i32,f32)->(i8) saturate_i8(add(rint(mul(f32($0),$1)),-3f32))",
    "(f32)->(i8) saturate_i8($0)",
    "(i32,f32,u8)->(u8) saturate_u8(add(rint(div(add(mul(f32(sub(i32($2),119i32)),0.25f32),mul("
    "f32(sub(i32(saturate_u8(add(rint(div(add($1,mul(f32($0),0.0078125f32)),0.5f32)),136f32))),"
    "136i32)),0.5f32)),0.75f32)),133f32))",
    "(i8,u8)->(f32) mul(f32($0),f32(sub(i32($1),7i32)))",
};

// The same numbers with gaps between them.
Array spread(const Array& array, const Dims& dims) {
  Dims stored = dims;
  stored[dims.rank() - 1] *= 2;
  Array wide(array.view.dtype, stored);
  const size_t size = size_of(array.view.dtype);
  for (size_t at = 0; at < array.bytes.size(); at += size)
    std::memcpy(wide.bytes.data() + 2 * at, array.bytes.data() + at, size);
  return wide;
}

// Exactly what tiles give, and what evaluate() does where that is exact.
TEST(Chain, Programs) {
  std::mt19937 random(6);
  for (const char* text : kChains) {
    const Program program = parse_program(text);
    EXPECT_NE(compiled(program).chain(), nullptr) << text;
    const bool is_exact = std::none_of(program.code().begin(), program.code().end(),
                                       [](auto& i) { return is_transcendental(i.opcode); });
    for (const int64_t columns : {3, 16, 24, 40, 64, 144, 259}) {
      const Dims dims = {5, columns};
      if (is_exact) check_program(program, dims, 0, random, false);
      std::vector<Array> dense, wide;
      std::vector<TensorView> in, gapped;
      for (const DataType dtype : program.inputs()) {
        dense.push_back(random_array(dtype, dims, random));
        wide.push_back(spread(dense.back(), dims));
      }
      for (size_t i = 0; i < dense.size(); ++i) {
        in.push_back(dense[i].view);
        gapped.push_back(with_gaps(wide[i], dims));
      }
      const DataType result = program.results()[0].dtype;
      const Array by_chain(result, dims), by_tiles(result, dims);
      for (const Isa isa : isas()) {
        run_elements(compiled(program), isa, in, {&by_chain.view, 1});
        run_elements(compiled(program), isa, gapped, {&by_tiles.view, 1});
        std::vector<Scalar> want;
        for (size_t at = 0; at < by_tiles.bytes.size(); at += size_of(result))
          want.push_back(load_scalar(result, by_tiles.bytes.data() + at));
        expect_stored(program, want, {&by_chain.view, 1}, 0, isa);
      }
    }
  }
}

TEST(Chain, NotPrograms) {
  for (const char* text :
       {"(f32,f32)->(f32) mul(add($0,$1),sub(exp($0),exp($1)))",  // three values at a time
        "(i32,f32)->(f32) mul($1,f32(add($0,1i32)))",             // f32 does not hold the sum
        "(i32)->(u8) saturate_u8(f32(i32(u32($0))))", "(f64)->(f64) exp($0)",
        "(f32)->(f32, f32) exp($0), neg($0)"}) {
    std::string why_not;
    const auto tape = Tape::compile(parse_program(text), why_not);
    ASSERT_TRUE(tape) << text;
    EXPECT_EQ(tape->chain(), nullptr) << text;
  }
}

// A column and a number beside a matrix; results over an operand.
TEST(Chain, PortsOfAllShapes) {
  std::mt19937 random(7);
  const Program program = parse_program("(f32,u8,f32)->(f32) mul(add($0,f32($1)),$2)");
  for (const int64_t columns : {16, 40, 100, 200}) {
    const Dims dims = {7, columns};
    for (const auto& [first, second] : {std::pair<Dims, Dims>{{7, 1}, {1, columns}},
                                        {{1, 1}, {7, columns}},
                                        {{1, columns}, {7, 1}}}) {
      const Array a = random_array(DataType::kF32, first, random);
      const Array b = random_array(DataType::kU8, second, random);
      Array c = random_array(DataType::kF32, dims, random);
      const std::vector<std::byte> before = c.bytes;
      const TensorView in[] = {a.view, b.view, c.view}, out[] = {c.view};
      const auto want = expected(program, in, out);
      for (const Isa isa : isas()) {
        c.bytes = before;
        run_elements(compiled(program), isa, in, out);
        expect_stored(program, want, out, 0, isa);
      }
    }
  }
}

}  // namespace
}  // namespace anneal::cpu
