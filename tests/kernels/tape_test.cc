// Tapes against evaluate(), on every instruction set that this CPU has.
#include "anneal/kernels/cpu/program/tape.h"
#include "anneal/core/dtype_kinds.h"
#include "anneal/core/error.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "anneal/core/float16.h"
#include "anneal/kernels/cpu/program/tape_space.h"
#include "anneal/tests/kernels/tape_check.h"

namespace anneal::cpu {
namespace {

void check_both_ways(const Program& program, const Dims& dims, int ulp, std::mt19937& random) {
  for (const bool has_gaps : {false, true}) check_program(program, dims, ulp, random, has_gaps);
}

constexpr DataType kWidest[] = {DataType::kF32, DataType::kF64, DataType::kI32, DataType::kI64,
                                DataType::kU32, DataType::kU64, DataType::kBool};

TEST(Tape, EveryOpcodeOfEveryType) {
  std::mt19937 random(1);
  for (int code = 0; code <= static_cast<int>(Opcode::kLessEqual); ++code) {
    const auto opcode = static_cast<Opcode>(code);
    if (operand_count(opcode) == 0 || opcode == Opcode::kCast || opcode == Opcode::kRound ||
        opcode == Opcode::kSaturate)
      continue;
    for (const DataType dtype : kWidest) {
      ProgramBuilder builder;
      Program program;
      try {
        const Reg a = builder.input(0, dtype);
        const Reg result = operand_count(opcode) == 1
                               ? builder.apply(opcode, a)
                               : builder.apply(opcode, a, builder.input(1, dtype));
        program = builder.finish(result, kWidest[static_cast<size_t>(result.type)]);
      } catch (const Error&) {
        continue;  // not an opcode of this type
      }
      check_both_ways(program, {1, 1025}, is_transcendental(opcode) ? 5 : 0, random);
    }
  }
}

// Angles of rotary embeddings and others, also next to multiples of pi / 2, where results are
// small.
TEST(Tape, SinesOfManyAngles) {
  std::vector<float> angles;
  for (int quarter = -41000; quarter < 41000; quarter += quarter % 100 == 0 ? 1 : 11)
    for (const float beside : {-1.0F, 0.0F, 1.0F}) {
      const auto angle = static_cast<float>(quarter * 1.5707963267948966);
      angles.push_back(beside == 0 ? angle : std::nextafter(angle, beside * 1e9F));
    }
  std::mt19937 random(3);
  for (int i = 0; i < 100'000; ++i)
    angles.push_back(std::uniform_real_distribution<float>(-70'000, 70'000)(random));
  for (float small = 1; small > 1e-30F; small *= 0.37F)
    angles.insert(angles.end(), {small, -small});
  const auto check = [&](Opcode opcode, auto want) {
    ProgramBuilder builder;
    const Program program =
        builder.finish(builder.apply(opcode, builder.input(0, DataType::kF32)), DataType::kF32);
    std::vector<Array> arrays(2, Array(DataType::kF32, {std::ssize(angles)}));
    for (Array& array : arrays) array.view.data = array.bytes.data();
    std::ranges::copy(angles, arrays[0].view.as<float>());
    for (const Isa isa : isas()) {
      run_elements(compiled(program), isa, {&arrays[0].view, 1}, {&arrays[1].view, 1});
      for (size_t i = 0; i < angles.size(); ++i) {
        const auto exact = static_cast<float>(want(double{angles[i]}));
        const float got = arrays[1].view.as<float>()[i];
        ASSERT_TRUE(near(RegisterType::kF32, Scalar::of(got), Scalar::of(exact), 2))
            << to_string(opcode) << " of " << angles[i] << " is " << got << ", not " << exact
            << " on " << to_string(isa);
      }
    }
  };
  check(Opcode::kSin, [](double x) { return std::sin(x); });
  check(Opcode::kCos, [](double x) { return std::cos(x); });
  for (float& angle : angles) angle = angle / 700;
  check(Opcode::kExpm1, [](double x) { return std::expm1(x); });
}

// A number's sine does not depend on the numbers beside it, and zeros keep their signs.
TEST(Tape, SinesDoNotDependOnTheirNeighbours) {
  std::mt19937 random(4);
  std::vector<float> angles(1024), beside;
  for (float& angle : angles)
    angle = std::uniform_real_distribution<float>(-60'000, 60'000)(random);
  angles[0] = 0, angles[2] = -0.0F;
  beside = angles;
  for (size_t i = 1; i < beside.size(); i += 2) beside[i] = i % 4 == 1 ? 1e6F : std::nanf("");
  const auto sines = [&](const std::vector<float>& of, Opcode opcode, Isa isa) {
    ProgramBuilder builder;
    const Program program =
        builder.finish(builder.apply(opcode, builder.input(0, DataType::kF32)), DataType::kF32);
    std::vector<Array> arrays(2, Array(DataType::kF32, {std::ssize(of)}));
    for (Array& array : arrays) array.view.data = array.bytes.data();
    std::ranges::copy(of, arrays[0].view.as<float>());
    run_elements(compiled(program), isa, {&arrays[0].view, 1}, {&arrays[1].view, 1});
    return std::vector<float>(arrays[1].view.as<float>(), arrays[1].view.as<float>() + of.size());
  };
  for (const Isa isa : isas())
    for (const Opcode opcode : {Opcode::kSin, Opcode::kCos}) {
      const std::vector<float> alone = sines(angles, opcode, isa);
      const std::vector<float> among = sines(beside, opcode, isa);
      for (size_t i = 0; i < angles.size(); i += 2)
        EXPECT_EQ(std::bit_cast<uint32_t>(alone[i]), std::bit_cast<uint32_t>(among[i]))
            << angles[i] << " on " << to_string(isa);
      if (opcode == Opcode::kCos) continue;
      EXPECT_FALSE(std::signbit(alone[0]));
      EXPECT_TRUE(std::signbit(alone[2])) << to_string(isa);
    }
}

// All pairs, so that most vectors hold finite numbers alone; the signs of zeros count, too.
TEST(Tape, PowerOfFiniteNumbers) {
  const float bases[] = {0.0f,       -0.0f,      1.0f,  -1.0f,       0.5f,  -2.0f,
                         3.0f,       0.1f,       10.0f, 1e-42f,      3e38f, -3e38f,
                         1.0000001f, 0.9999999f, 7.5f,  -0.3333333f, 1e-10f};
  const float exponents[] = {0.0f, -0.0f, 1.0f,   -1.0f,  2.0f,        3.0f,  -3.0f, 0.5f,
                             2.4f, 1e10f, -1e10f, 0.333f, 16777217.0f, 75.3f, 1e-30f};
  const int64_t rows = std::size(bases), columns = std::size(exponents);
  ProgramBuilder builder;
  const Program program =
      builder.finish(builder.apply(Opcode::kPow, builder.input(0, DataType::kF32),
                                   builder.input(1, DataType::kF32)),
                     DataType::kF32);
  std::vector<Array> arrays(3, Array(DataType::kF32, {rows * columns}));
  for (Array& array : arrays) array.view.data = array.bytes.data();
  for (int64_t i = 0; i < rows * columns; ++i) {
    arrays[0].view.as<float>()[i] = bases[i / columns];
    arrays[1].view.as<float>()[i] = exponents[i % columns];
  }
  const TensorView in[] = {arrays[0].view, arrays[1].view}, out[] = {arrays[2].view};
  for (const Isa isa : isas()) {
    run_elements(compiled(program), isa, in, out);
    for (int64_t i = 0; i < rows * columns; ++i) {
      const float x = bases[i / columns], y = exponents[i % columns];
      const float want = std::pow(x, y), got = arrays[2].view.as<float>()[i];
      EXPECT_TRUE(near(RegisterType::kF32, Scalar::of(got), Scalar::of(want), 1))
          << x << " to the " << y << " is " << got << ", not " << want << " on " << to_string(isa);
      EXPECT_TRUE(std::isnan(want) || std::signbit(got) == std::signbit(want)) << x << " " << y;
    }
  }
}

TEST(Tape, EveryPairOfInstructions) {
  std::mt19937 random(6);
  for (const Opcode first : kPairOpcodes) {
    for (const Opcode second : kPairOpcodes) {
      for (const bool right : {false, true}) {
        ProgramBuilder builder;
        const Reg a = builder.input(0, DataType::kF32), c = builder.input(2, DataType::kF32);
        const Reg b = builder.apply(first, a, builder.input(1, DataType::kF32));
        const Reg result = right ? builder.apply(second, c, b) : builder.apply(second, b, c);
        check_both_ways(builder.finish(result, DataType::kF32), {3, 67}, 0, random);
      }
    }
  }
}

TEST(Tape, EveryCastRoundingAndSelection) {
  std::mt19937 random(2);
  for (const DataType from : all_dtypes()) {
    if (from == DataType::kString) continue;
    for (const DataType to : all_dtypes()) {
      if (to == DataType::kString) continue;
      ProgramBuilder cast;
      check_both_ways(cast.finish(cast.cast(cast.input(0, from), register_type(to)), to), {37, 5},
                      0, random);
      ProgramBuilder round;
      check_both_ways(round.finish(round.round(round.input(0, from), to), to), {3, 64}, 0, random);
      if (!is_integer(to) || from == DataType::kBool) continue;
      ProgramBuilder saturate;
      check_both_ways(saturate.finish(saturate.saturate(saturate.input(0, from), to), to), {7, 23},
                      0, random);
    }
    ProgramBuilder select;
    const Reg which = select.input(0, DataType::kBool);
    check_both_ways(
        select.finish(select.select(which, select.input(1, from), select.input(2, from)), from),
        {9, 31}, 0, random);
  }
}

// exp, log, tanh, sigmoid and erf over the whole range of f32.
TEST(Tape, ElementaryFunctionsAreWithinFourUlp) {
  struct Case {
    Opcode opcode;
    double (*truth)(double);
  };
  const Case cases[] = {
      {Opcode::kExp, [](double x) { return std::exp(x); }},
      {Opcode::kLog, [](double x) { return std::log(x); }},
      {Opcode::kTanh, [](double x) { return std::tanh(x); }},
      {Opcode::kErf, [](double x) { return std::erf(x); }},
      {Opcode::kSigmoid,
       [](double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }},
  };
  constexpr int64_t kCount = 1 << 16;
  for (const Case& c : cases) {
    ProgramBuilder builder;
    const Program program =
        builder.finish(builder.apply(c.opcode, builder.input(0, DataType::kF32)), DataType::kF32);
    const Tape tape = compiled(program);
    for (const Isa isa : isas()) {
      double worst = 0;
      float worst_at = 0;
      for (uint32_t part = 0; part < 8; ++part) {
        Array in(DataType::kF32, {kCount});
        Array out(DataType::kF32, {kCount});
        auto* const x = in.view.as<float>();
        for (int64_t i = 0; i < kCount; ++i)
          x[i] = std::bit_cast<float>(static_cast<uint32_t>(i) << 16 |
                                      (part * 8191 + 77 * static_cast<uint32_t>(i)) % 65536);
        const TensorView from[] = {in.view};
        const TensorView to[] = {out.view};
        run_elements(tape, isa, from, to);
        for (int64_t i = 0; i < kCount; ++i) {
          const double want = c.truth(x[i]);
          const double got = out.view.as<float>()[i];
          const auto rounded = static_cast<float>(want);
          if (got == rounded || (std::isnan(want) && std::isnan(got))) continue;
          const double unit =
              std::max(std::ldexp(1.0, std::ilogb(want) - 23), std::ldexp(1.0, -149));
          const double off =
              std::isfinite(got) && std::isfinite(rounded) ? std::abs(got - want) / unit : 1e9;
          if (off > worst) worst = off, worst_at = x[i];
        }
      }
      RecordProperty(std::string(to_string(c.opcode)) + "_" + std::string(to_string(isa)),
                     std::to_string(worst));
      EXPECT_LE(worst, 4) << to_string(c.opcode) << " on " << to_string(isa) << " at " << worst_at;
    }
  }
}

// A view with a random order of axes in memory, gaps, and some broadcast axes.
struct ViewStorage {
  std::vector<std::byte> bytes;
  TensorView view;
};
ViewStorage random_view(DataType dtype, const Dims& dims, bool may_broadcast,
                        std::mt19937& random) {
  ViewStorage placed;
  placed.view = {dtype, dims, Dims::filled(dims.rank(), 0), nullptr};
  std::vector<int> order(static_cast<size_t>(dims.rank()));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  if (random() % 2 != 0) std::shuffle(order.begin(), order.end(), random);
  int64_t step = random() % 4 == 0 ? 2 : 1;
  for (size_t i = order.size(); i-- > 0;) {
    const int axis = order[i];
    if (may_broadcast && random() % 3 == 0) placed.view.dims[axis] = 1;
    placed.view.strides[axis] = step;
    step *= placed.view.dims[axis] + (random() % 4 == 0 ? 3 : 0);
  }
  placed.bytes.resize(static_cast<size_t>(step) * size_of(dtype));
  placed.view.data = placed.bytes.data();
  for (int64_t i = 0; i < count(placed.view.dims); ++i)
    store_scalar(dtype, random_value(dtype, random),
                 element(placed.view, index_of(placed.view.dims, i)));
  return placed;
}

TEST(Tape, AnyStridesBroadcastsAndIndices) {
  std::mt19937 random(3);
  const char* texts[] = {
      "(f32,f32)->(f32) max(add($0,$1),0f32)",
      "(f32,f16,i8)->(f16) round_f16(add(mul($0,$1),f32($2)))",
      "(f32,f32)->(f32) add(mul($0,2f32),f32(index(1)))",
      "(u8,f32)->(f32,bool) mul(f32($0),$1), lt($1,2f32)",
      "(i64,i32)->(i64) add($0,mul(i64($1),index(0)))",
      "(f32)->(f32) $0",
      "(bool,f32,f32)->(f32) select($0,$1,neg($2))",
      "(bf16,f64)->(f64) add(f64($0),$1)",
      "(f32,f32)->(f32) 3f32",
      "(f32)->(f32) select(le(sub(index(1),index(0)),1i64),$0,0f32)",
      "(i64,i64)->(f32) select(lt($0,$1),f32($0),f32(index(1)))",
      "(f64,f64)->(bool) le($0,$1)",
  };
  const Dims shapes[] = {{2, 3, 5, 7}, {1, 64, 3, 33},    {4, 1, 2000}, {3, 130},
                         {17},         {2, 2, 2, 2, 300}, {5, 3000},    {16, 6, 6}};
  for (const char* text : texts) {
    const Program program = parse_program(text);
    const Tape tape = compiled(program);
    for (Dims dims : shapes) {
      if (program.uses_index() && dims.rank() < 2) continue;
      std::vector<ViewStorage> inputs, outputs;
      std::vector<TensorView> in, out;
      for (const DataType dtype : program.inputs())
        inputs.push_back(random_view(dtype, dims, true, random));
      for (const auto& result : program.results())
        outputs.push_back(random_view(result.dtype, dims, false, random));
      for (const auto& placed : inputs) in.push_back(placed.view);
      for (const auto& placed : outputs) out.push_back(placed.view);
      const auto want = expected(program, in, out);
      for (const Isa isa : isas()) {
        run_elements(tape, isa, in, out);
        expect_stored(program, want, out, 0, isa);
      }
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// Quantized activations: exact, as evaluate() gives them.
TEST(Tape, TheEndThatIsAFunctionOfOneByteIsATable) {
  const char* texts[] = {
      "(i32,f32,f32)->(u8) %0=mul(f32(sub(i32(saturate_u8(add(rint(div(add($2,mul($1,f32($0))),"
      "0.0625f32)),124f32))),124i32)),0.0625f32); saturate_u8(add(rint(div(mul(mul(f32(i32("
      "saturate_u8(rint(div(sigmoid(%0),0.004f32))))),0.004f32),%0),0.03f32)),10f32))",
      "(f32)->(u8) saturate_u8(rint(mul(exp(mul(f32(saturate_i8(rint($0))),0.05f32)),9f32)))",
      "(f32,u8)->(i8) saturate_i8(rint(mul(tanh(mul(f32(saturate_i8(sub(rint(mul($0,17f32)),"
      "f32($1)))),0.01f32)),127f32)))",
  };
  std::mt19937 random(7);
  for (const char* text : texts) {
    const Program program = parse_program(text);
    ASSERT_NE(compiled(program).table(), nullptr) << text;
    for (const Dims& dims : {Dims{5, 259}, Dims{7, 3}, Dims{3, 64}, Dims{2, 2000}})
      for (const bool has_gaps : {false, true}) check_program(program, dims, 0, random, has_gaps);
  }
}

TEST(Tape, NoTableForWhatIsNoFunctionOfOneByte) {
  for (const char* text : {
           // of another input, too; of what the byte was made of; nothing slow; not to a byte
           "(f32,f32)->(u8) saturate_u8(mul(sigmoid(f32(saturate_u8(rint($0)))),$1))",
           "(f32)->(u8) saturate_u8(mul(sigmoid(f32(saturate_u8(rint($0)))),$0))",
           "(f32)->(u8) saturate_u8(mul(f32(saturate_i8(rint($0))),3f32))",
           "(f32)->(f32) sigmoid(f32(saturate_u8(rint($0))))",
       })
    EXPECT_EQ(compiled(parse_program(text)).table(), nullptr) << text;
}

TEST(Tape, AnInputMayBeTheOutput) {
  std::mt19937 random(4);
  const Program program =
      parse_program("(f32,f32)->(f32,f32) %0=add($0,$1); mul(%0,2f32), sub($0,%0)");
  const Tape tape = compiled(program);
  for (const int64_t columns : {5, 64, 1024, 3000}) {
    for (const Isa isa : isas()) {
      Array a = random_array(DataType::kF32, {3, columns}, random);
      Array b = random_array(DataType::kF32, {3, columns}, random);
      const TensorView views[] = {a.view, b.view};
      const auto want = expected(program, views, views);
      run_elements(tape, isa, views, views);
      expect_stored(program, want, views, 0, isa);
    }
  }
}

// As GEMM and convolution use it: blocks of accumulators, rows numbered through several axes.
TEST(Tape, Epilogue) {
  std::mt19937 random(5);
  const Program program =
      parse_program("(i32,f32,u8)->(u8) saturate_u8(add(rint(mul(f32($0),$1)),f32($2)))");
  const Tape tape = compiled(program);
  const Dims dims = {2, 40, 5, 6};  // channels are columns
  const Array accumulators = random_array(DataType::kI32, {2 * 5 * 6, 40}, random);
  TensorView scale = random_array(DataType::kF32, {40, 1, 1}, random).view;
  const Array scales = random_array(DataType::kF32, {40, 1, 1}, random);
  scale = scales.view;
  ViewStorage residual = random_view(DataType::kU8, dims, false, random);
  ViewStorage result = random_view(DataType::kU8, dims, false, random);
  TensorView as_output = row_major_view(DataType::kI32, {2, 5, 6, 40}, accumulators.view.data);
  as_output.dims = dims;
  as_output.strides = {5 * 6 * 40, 1, 6 * 40, 40};
  const TensorView all[] = {as_output, scale, residual.view};
  const TensorView out[] = {result.view};
  const auto want = expected(program, all, out);
  const TensorView further[] = {scale, residual.view};
  const TapeSpace space = TapeSpace::of_accumulators(tape, further, out, {Dims{0, 2, 3}, 1});
  ASSERT_EQ(space.rows(), 60);
  ASSERT_EQ(space.columns(), 40);
  alignas(64) static std::byte scratch[64 * kTileLanes * 8];
  for (const Isa isa : isas()) {
    for (const auto& [row, rows] : {std::pair{0, 7}, {7, 50}, {57, 3}})
      for (const auto& [column, columns] : {std::pair{0, 16}, {16, 24}}) {
        TapeSpace::Operands operands{further, out};
        operands.accumulators = {accumulators.view.as<int32_t>() + row * 40 + column, 40};
        space.run(run_tape(isa), tape, operands, {row, rows, column, columns}, scratch);
      }
    expect_stored(program, want, out, 0, isa);
    std::fill(result.bytes.begin(), result.bytes.end(), std::byte{0});
  }
}

}  // namespace
}  // namespace anneal::cpu
