// VectorPrograms against tiles and evaluate(), on every instruction set that this CPU has.
#include "anneal/kernels/cpu/program/vector_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>

#include "anneal/core/float16.h"
#include "anneal/kernels/cpu/program/tape_space.h"
#include "anneal/tests/kernels/tape_check.h"

namespace anneal::cpu {
namespace {

constexpr const char* kGeluByTanh =
    "(f32,f32)->(f32) %0=add($0,$1); mul(mul(%0,0.5f32),add(1f32,tanh(mul(add(%0,mul(mul("
    "mul(%0,%0),%0),0.044715f32)),0.7978845f32))))";
constexpr const char* kQuantizedSum =
    "(i32,f32,u8)->(u8) saturate_u8(add(rint(div(add(mul(f32(sub(i32($2),119i32)),0.25f32),mul("
    "f32(sub(i32(saturate_u8(add(rint(div(add($1,mul(f32($0),0.0078125f32)),0.5f32)),136f32))),"
    "136i32)),0.5f32)),0.75f32)),133f32))";

// What epilogues and activations look like. Both operands of a step, what is used twice, integers
// in f32, rounding, and NaN.
constexpr const char* kVectorPrograms[] = {
    "(f32,f32)->(f32) min(max(add($0,$1),0f32),6f32)",
    "(f32,f32,f32)->(f32) max(add($2,add($0,$1)),0f32)",
    "(f32,f32)->(f32) sub(2f32,div($1,sub($0,$1)))",
    "(f32)->(f32) div(1f32,sqrt(abs($0)))",
    "(f32,f32)->(f32) %0=add($0,$1); mul(%0,sigmoid(%0))",
    "(f32,f32)->(f32) %0=add($0,$1); mul(mul(%0,add(erf(mul(%0,0.70710677f32)),1f32)),0.5f32)",
    kGeluByTanh,
    "(f32)->(f32) mul($0,min(max(add($0,3f32),0f32),6f32))",
    "(f32,f32)->(f32) sub(exp($0),floor($1))",
    "(bf16,bf16)->(bf16) round_bf16(add($0,$1))",
    "(f32,f32,f32)->(bf16) round_bf16(min(max(add($1,mul($0,$2)),0f32),6f32))",
    "(f32,f32,bf16)->(bf16) round_bf16(max(add($2,add($0,$1)),0f32))",
    "(i32,f32,f32)->(u8) saturate_u8(add(rint(mul(add($2,mul($1,f32($0))),0.0625f32)),3f32))",
    "(f32,f32)->(bf16) %0=add($0,$1); round_bf16(mul(%0,sigmoid(%0)))",
    "(f32,f32)->(bf16) round_bf16(sigmoid(add($0,$1)))",
    "(f32,f32)->(bf16) %0=add($0,$1); round_bf16(mul(%0,add(erf(mul(%0,0.70710677f32)),1f32)))",
    "(f32,f32)->(bf16) %0=mul($0,$1); round_bf16(mul(add(tanh(%0),1f32),0.5f32))",
    "(f16,f32)->(f16) round_f16(mul($0,neg($1)))",
    "(i32,f32)->(u8) saturate_u8(rint(div(add($1,mul(f32($0),0.0078125f32)),0.25f32)))",
    "(i32,f32)->(i8) saturate_i8(add(rint(mul(f32($0),$1)),-3f32))",
    "(f32)->(i8) saturate_i8($0)",
    kQuantizedSum,
    "(i8,u8)->(f32) mul(f32($0),f32(sub(i32($1),7i32)))",
};

// Exactly what tiles give, and what evaluate() does where that is exact.
TEST(VectorProgram, Programs) {
  std::mt19937 random(6);
  for (const char* text : kVectorPrograms) {
    const Program program = parse_program(text);
    EXPECT_EQ(compiled(program).vector_programs().size(), 1U) << text;
    const bool is_exact = std::none_of(program.code().begin(), program.code().end(),
                                       [](auto& i) { return is_transcendental(i.opcode); });
    for (const int64_t columns : {3, 16, 24, 40, 64, 144, 259}) {
      const Dims dims = {5, columns};
      if (is_exact) check_program(program, dims, 0, random, false);
      std::vector<Array> inputs;
      std::vector<TensorView> in;
      for (const DataType dtype : program.inputs())
        inputs.push_back(random_array(dtype, dims, random));
      for (const Array& array : inputs) in.push_back(array.view);
      const DataType result = program.results()[0].dtype;
      const Array by_vector_program(result, dims), wide(result, {5, 2 * columns});
      const TensorView by_tiles = with_gaps(wide, dims);
      for (const Isa isa : isas()) {
        run_elements(compiled(program), isa, in, {&by_vector_program.view, 1});
        run_elements(compiled(program), isa, in, {&by_tiles, 1});
        std::vector<Scalar> want;
        for (int64_t i = 0; i < count(dims); ++i)
          want.push_back(load_scalar(result, element(by_tiles, index_of(dims, i))));
        expect_stored(program, want, {&by_vector_program.view, 1}, 0, isa);
      }
    }
  }
}

TEST(VectorProgram, SeveralResults) {
  std::mt19937 random(9);
  const Program program = parse_program(
      "(i32,f32)->(u8,i8,f32) %0=add($1,f32($0)); saturate_u8(rint(mul(%0,0.25f32))), "
      "saturate_i8(rint(mul(%0,0.5f32))), %0");
  EXPECT_EQ(compiled(program).vector_programs().size(), 3U);
  for (const int64_t columns : {16, 40, 100})
    check_program(program, {7, columns}, 0, random, false);
}

// Of a program that rounds to bf16, every number of it and what the functions give exactly.
void expect_approximation(const char* text, double (*exact)(double), double near_zero = 0) {
  const Tape tape = compiled(parse_program(text));
  const bool is_coarse = std::any_of(tape.steps().begin(), tape.steps().end(), [](auto& step) {
    return step.coarse != Bf16Approximation::kNone;
  });
  EXPECT_TRUE(is_coarse) << text;
  const Array x(DataType::kBF16, {256, 256}), y(DataType::kBF16, {256, 256});
  for (int i = 0; i < 65536; ++i) x.view.as<uint16_t>()[i] = static_cast<uint16_t>(i);
  for (const Isa isa : isas()) {
    run_elements(tape, isa, {&x.view, 1}, {&y.view, 1});
    for (int i = 0; i < 65536; ++i) {
      const double in = to_f32(x.view.as<BFloat16>()[i]), want = exact(in);
      const double got = to_f32(y.view.as<BFloat16>()[i]);
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(got)) << text << " of " << in << " on " << to_string(isa);
        continue;
      }
      // Half a step and the error of the function, of which nothing is left below normal numbers.
      // Without AVX-512, sums with what f32 holds of erf and tanh.
      const double allowed = std::abs(want) * (std::ldexp(1, -8) + std::ldexp(1, -13)) +
                             std::ldexp(1 + std::abs(in), -126) + near_zero +
                             (isa < Isa::kAvx512 ? std::ldexp(1, -23) : 0);
      if (std::isinf(want) || std::abs(want) > 3.38e38) continue;
      ASSERT_NEAR(got, want, allowed) << text << " of " << in << " on " << to_string(isa);
    }
  }
}

TEST(VectorProgram, ApproximationsAreWithinTheirBound) {
  expect_approximation("(bf16)->(bf16) round_bf16(sigmoid($0))",
                       [](double x) { return 1 / (1 + std::exp(-x)); });
  expect_approximation("(bf16)->(bf16) round_bf16(mul(f32($0),sigmoid(f32($0))))",
                       [](double x) { return x * (1 / (1 + std::exp(-x))); });
  expect_approximation(
      "(bf16)->(bf16) round_bf16(add(erf($0),1f32))", [](double x) { return std::erfc(-x); },
      std::ldexp(1, -40));
  expect_approximation("(bf16)->(bf16) round_bf16(add(tanh($0),1f32))",
                       [](double x) { return 2 / (1 + std::exp(-2 * x)); });
}

TEST(VectorProgram, NoApproximationsWhereMoreDigitsAreLeft) {
  for (const char* text : {"(f32)->(f32) sigmoid($0)", "(f32)->(f16) round_f16(sigmoid($0))",
                           "(f32)->(u8) saturate_u8(rint(mul(sigmoid($0),255f32)))",
                           "(f32)->(bf16) round_bf16(sub(sigmoid($0),0.5f32))",
                           "(f32)->(bf16) round_bf16(add(erf($0),0.5f32))",
                           "(f32)->(bf16,f32) %0=sigmoid($0); round_bf16(%0), %0",
                           "(f32)->(bf16) %0=sigmoid($0); round_bf16(mul(%0,%0))"}) {
    const Tape tape = compiled(parse_program(text));
    for (const TapeStep& step : tape.steps())
      EXPECT_EQ(step.coarse, Bf16Approximation::kNone) << text;
  }
}

// Denormal numbers and halves between two of bf16, on their way into memory.
TEST(VectorProgram, Bf16IsRoundedAsEvaluated) {
  const Program program = parse_program("(f32,f32)->(bf16) round_bf16(mul($0,$1))");
  ASSERT_EQ(compiled(program).vector_programs().size(), 1U);
  // A row of normal numbers, one that is mixed, and one with what is no number.
  const Array a(DataType::kF32, {3, 16}), b(DataType::kF32, {3, 16});
  for (int64_t i = 0; i < 48; ++i) {
    const int exponent = i / 16 == 1 && i % 2 == 0 ? -130 : -70;
    a.view.as<float>()[i] = std::ldexp(1.0f + static_cast<float>(i % 16 * 2 + 1) / 256, exponent);
    b.view.as<float>()[i] = i % 3 == 0 ? -1.0f : 1.0f;
  }
  a.view.as<float>()[40] = std::numeric_limits<float>::quiet_NaN();
  a.view.as<float>()[41] = std::numeric_limits<float>::infinity();
  a.view.as<float>()[42] = std::numeric_limits<float>::max();
  const Array y(DataType::kBF16, {3, 16});
  const TensorView in[] = {a.view, b.view}, out[] = {y.view};
  const auto want = expected(program, in, out);
  for (const Isa isa : isas()) {
    run_elements(compiled(program), isa, in, out);
    expect_stored(program, want, out, 0, isa);
  }
}

// There are too many ways to order what is used twice sixty times.
TEST(VectorProgram, TheSearchForOneEnds) {
  ProgramBuilder builder;
  Reg x = builder.input(0, DataType::kF32);
  for (int i = 0; i < 60; ++i)
    x = builder.apply(Opcode::kSub, builder.apply(Opcode::kAbs, x),
                      builder.apply(Opcode::kSqrt, x));
  EXPECT_TRUE(compiled(builder.finish(x, DataType::kF32)).vector_programs().empty());
}

TEST(VectorProgram, NotPrograms) {
  for (const char* text :
       {"(f32,f32)->(f32) mul(add($0,$1),sub(exp($0),exp($1)))",  // three values at a time
        "(i32,f32)->(f32) mul($1,f32(add($0,1i32)))",             // f32 does not hold the sum
        "(i32)->(u8) saturate_u8(f32(i32(u32($0))))", "(f64)->(f64) exp($0)",
        "(f32)->(f32, f32) exp($0), neg($0)"}) {
    const auto tape = Tape::compile(parse_program(text));
    ASSERT_TRUE(tape) << text;
    EXPECT_TRUE(tape->vector_programs().empty()) << text;
  }
}

// A column and a number beside a matrix; results over an operand.
TEST(VectorProgram, PortsOfAllShapes) {
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

// Elements with gaps between them, and results that lie down the rows.
TEST(VectorProgram, TurnedBlocks) {
  std::mt19937 random(8);
  const Program program = parse_program(
      "(i32,f32,bf16)->(u8) saturate_u8(rint(mul(add(f32($0),$1),"
      "$2)))");
  const Dims dims = {40, 3};
  const Array a = random_array(DataType::kI32, {40, 6}, random);
  const Array b = random_array(DataType::kF32, {1, 3}, random);
  const Array c = random_array(DataType::kBF16, {40, 6}, random);
  const TensorView in[] = {with_gaps(a, dims), b.view, with_gaps(c, dims)};
  Array y(DataType::kU8, {3, 40});
  TensorView out = y.view;
  out.dims = dims;
  out.strides = {1, 40};
  const auto want = expected(program, in, {&out, 1});
  for (const Isa isa : isas()) {
    std::fill(y.bytes.begin(), y.bytes.end(), std::byte{0});
    const Tape tape = compiled(program);
    TapeSpace::Operands operands{in, {&out, 1}};
    const TapeSpace space = TapeSpace::of_blocks(tape, in, {&out, 1}, {Dims{0}, 1});
    std::vector<std::byte> scratch(tape.scratch_bytes() + 64);
    void* aligned = scratch.data();
    size_t room = scratch.size();
    std::align(64, tape.scratch_bytes(), aligned, room);
    space.run(run_tape(isa), tape, operands, {0, 40, 0, 3}, static_cast<std::byte*>(aligned));
    expect_stored(program, want, {&out, 1}, 0, isa);
  }
}

// Sums of pixels, a row for each, beside an input of the same layout; results lie in planes. One
// more input than those that are copied.
TEST(VectorProgram, PlanesFromPixels) {
  std::mt19937 random(9);
  const Program program =
      parse_program("(f32,f32,i32,f32,f32)->(f32) add(add(mul($0,$1),f32($2)),mul($3,$4))");
  const Tape tape = compiled(program);
  alignas(64) static std::byte scratch[64 * kTileLanes * 8];
  for (const int64_t pixels : {16, 63, 64, 65, 79, 80, 130})
    for (const int64_t channels : {1, 3, 16, 21}) {
      const Dims dims = {pixels, channels};
      const Array sums = random_array(DataType::kF32, dims, random);
      const Array scales = random_array(DataType::kF32, {1, channels}, random);
      const Array integers = random_array(DataType::kI32, dims, random);
      const Array more = random_array(DataType::kF32, dims, random);
      const Array factors = random_array(DataType::kF32, {pixels, 1}, random);
      Array planes(DataType::kF32, {channels, pixels});
      TensorView out = planes.view;
      out.dims = dims;
      out.strides = {1, pixels};
      const TensorView all[] = {sums.view, scales.view, integers.view, more.view, factors.view};
      const std::span<const TensorView> further = std::span(all).subspan(1);
      const auto want = expected(program, all, {&out, 1});
      const TapeSpace space = TapeSpace::of_accumulators(tape, further, {&out, 1}, {Dims{0}, 1});
      for (const Isa isa : isas()) {
        std::fill(planes.bytes.begin(), planes.bytes.end(), std::byte{0});
        const TapeSpace::Operands operands{further, {&out, 1}, {sums.view.data, channels}};
        space.run(run_tape(isa), tape, operands, {0, pixels, 0, channels}, scratch);
        expect_stored(program, want, {&out, 1}, 0, isa);
      }
    }
}

}  // namespace
}  // namespace anneal::cpu
