// Programs: text forms, normal form, what the builder refuses, bytes.
#include "anneal/graph/program/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "anneal/core/bytes.h"
#include "anneal/core/fail.h"

namespace anneal {
namespace {

using testing::HasSubstr;

Program through_bytes(const Program& program) {
  ByteWriter to;
  save(to, program);
  const std::vector<std::byte> bytes = to.take();
  ByteReader from(bytes, "program");
  Program loaded = load_program(from);
  from.expect_end();
  return loaded;
}

struct TextCase {
  const char* written;
  const char* normal;  // nullptr: as written
};

class ProgramText : public testing::TestWithParam<TextCase> {};

TEST_P(ProgramText, ParsesToItsNormalForm) {
  const auto& [written, normal] = GetParam();
  const Program program = parse_program(written);
  EXPECT_EQ(to_string(program), normal == nullptr ? written : normal);
  EXPECT_EQ(parse_program(to_string(program)), program);
  EXPECT_EQ(through_bytes(program), program);
  EXPECT_EQ(hash(through_bytes(program)), hash(program));
}

constexpr TextCase kTexts[] = {
    {"()->()", nullptr},
    {"(f32)->()", nullptr},
    {"(f32)->(f32) $0", nullptr},
    {"(f32,i8)->(i8,f32) $1, $0", nullptr},
    {"(f32,f32)->(f32) $1", nullptr},
    {"(f32,f32)->(f32) max(add($0,$1),0f32)", nullptr},
    {" ( f32 , f32 )->( f32 )max( 0f32 , add( $1 , $0 ) ) ",
     "(f32,f32)->(f32) max(add($0,$1),0f32)"},
    {"(f32)->(f32) div(exp($0),add(1f32,exp($0)))",
     "(f32)->(f32) %0=exp($0); div(%0,add(%0,1f32))"},
    {"(f32)->(f32,f32) %7=exp($0); %7, %7", "(f32)->(f32,f32) %0=exp($0); %0, %0"},
    {"(f32)->(f32) %0=exp($0); %1=mul(%0,%0); sub(%1,div(%0,%1))", nullptr},
    // every dead instruction goes, its input stays
    {"(f32,f64)->(f32) %0=sqrt($1); neg($0)", "(f32,f64)->(f32) neg($0)"},
    // literals
    {"()->(f32) 0.1f32", nullptr},
    {"()->(f32) -0f32", nullptr},
    {"()->(f32) nanf32", nullptr},
    {"()->(f32) -nanf32", "()->(f32) nanf32"},
    {"()->(f32) inff32", nullptr},
    {"()->(f64) -inff64", nullptr},
    {"()->(f32) 1e-45f32", nullptr},
    {"()->(f32) 3.4028235e+38f32", nullptr},
    {"()->(f32) 16777216f32", nullptr},
    {"()->(f64) 5e-324f64", nullptr},
    {"()->(f64) 0.1f64", nullptr},
    {"()->(i32) -2147483648i32", nullptr},
    {"()->(i64) -9223372036854775808i64", nullptr},
    {"()->(u32) 4294967295u32", nullptr},
    {"()->(u64) 18446744073709551615u64", nullptr},
    {"()->(bool,bool) 1bool, 0bool", nullptr},
    // functions with a type in their name
    {"(f32)->(f16) round_f16(exp($0))", nullptr},
    {"(f32)->(f16) exp($0)", "(f32)->(f16) round_f16(exp($0))"},
    {"(f64)->(bf16) round_bf16($0)", nullptr},
    {"(i32)->(i8) round_i8(neg($0))", nullptr},
    {"(f32)->(i8) saturate_i8(rint($0))", nullptr},
    {"(i64)->(u64) saturate_u64($0)", nullptr},
    {"(i64)->(bool) bool($0)", nullptr},
    {"(bool)->(f32) f32($0)", nullptr},
    {"()->(i64) index(7)", nullptr},
    {"(f32)->(f32) select(lt(index(0),index(1)),$0,0f32)", nullptr},
    {"(bool,bool)->(bool) xor(and($1,$0),not($1))", "(bool,bool)->(bool) xor(not($1),and($0,$1))"},
    {"(u32)->(u32) shr(shl($0,3u32),bitor($0,1u32))", nullptr},
    // what is round already is not rounded again
    {"(f16)->(f16) $0", nullptr},
    {"(f16)->(f16) round_f16(max($0,0f32))", "(f16)->(f16) max($0,0f32)"},
    {"(f16)->(f16) max($0,0.1f32)", "(f16)->(f16) round_f16(max($0,0.1f32))"},
    {"(f16)->(bf16) $0", "(f16)->(bf16) round_bf16($0)"},
    {"(f32)->(f16) round_f16(round_f16($0))", "(f32)->(f16) round_f16($0)"},
    {"(i8)->(i16) saturate_i16($0)", "(i8)->(i16) $0"},
    {"(i8)->(i8) neg($0)", "(i8)->(i8) round_i8(neg($0))"},
    {"(f16)->(f16) neg(abs($0))", nullptr},
    {"(i32)->(i32) i32($0)", "(i32)->(i32) $0"},
    // folding: of constants only, and by the rules of evaluate()
    {"(f32)->(f32) mul($0,add(1f32,2f32))", "(f32)->(f32) mul($0,3f32)"},
    {"(f32)->(f32) add($0,0f32)", nullptr},
    {"(f32)->(f32) mul($0,0f32)", nullptr},
    {"()->(i32) div(-2147483648i32,-1i32)", "()->(i32) -2147483648i32"},
    {"()->(f32) div(0f32,0f32)", "()->(f32) nanf32"},
    {"()->(i8) saturate_i8(1000f32)", "()->(i8) 127i32"},
    {"(f32)->(f32) select(lt(1i32,2i32),$0,neg($0))", "(f32)->(f32) $0"},
    {"(f32)->(f32) select(0bool,$0,neg($0))", "(f32)->(f32) neg($0)"},
    {"(bool,f32)->(f32) select($0,$1,$1)", "(bool,f32)->(f32) $1"},
};
INSTANTIATE_TEST_SUITE_P(All, ProgramText, testing::ValuesIn(kTexts));

struct WrongText {
  const char* text;
  const char* why;
};

class WrongProgramText : public testing::TestWithParam<WrongText> {};

TEST_P(WrongProgramText, IsRefused) {
  try {
    parse_program(GetParam().text);
    FAIL() << "parsed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr(GetParam().why));
  }
}

constexpr WrongText kWrongTexts[] = {
    {"", "column 1: \"(\" is expected"},
    {"(f32", "\")\" is expected"},
    {"(f33)->(f32) $0", "a storage type is expected"},
    {"(string)->()", "a storage type is expected"},
    {"(f32)->(string) $0", "a storage type is expected"},
    {"(f32)(f32) $0", "\"->\" is expected"},
    {"(f32)->(f32)", "a value is expected"},
    {"(f32)->(f32) ", "a value is expected"},
    {"(f32)->(f32) $1", "there is no input $1"},
    {"(f32)->(f32) $", "a number is expected"},
    {"(f32)->(f32) $99999999999999999999", "a number is expected"},
    {"(f32)->(f32) %0", "%0 has no value yet"},
    {"(f32)->(f32) %0=%0; %0", "%0 has no value yet"},
    {"(f32)->(f32) %0=exp($0); %0=exp($0); %0", "%0 is named twice"},
    {"(f32)->(f32) %0=exp($0) %0", "\";\" is expected"},
    {"(f32)->(f32) $0, $0", "column 16: the end is expected"},
    {"(f32)->(f32,f32) $0", "\",\" is expected"},
    {"(f32)->(f32) exp($0", "\")\" is expected"},
    {"(f32)->(f32) exp $0", "a value is expected"},
    {"(f32)->(f32) foo($0)", "there is no function foo"},
    {"(f32)->(f32) cast($0)", "there is no function cast"},
    {"(f32)->(f32) constant($0)", "there is no function constant"},
    {"(f32)->(f32) round($0)", "there is no function round"},
    {"(f32)->(f32) round_string($0)", "there is no function round_string"},
    {"(f32)->(f32) round_f32($0)", "round_f32 of f32"},
    {"(f32)->(i8) round_i8($0)", "round_i8 of f32"},
    {"(i32)->(f16) round_f16($0)", "round_f16 of i32"},
    {"(f32)->(f32) saturate_f16($0)", "saturate_f16 of f32"},
    {"(bool)->(i8) saturate_i8($0)", "saturate takes numbers, not bool"},
    {"(f32)->(f32) exp()", "a value is expected"},
    {"(f32)->(f32) exp($0,$0)", "exp takes 1 operands, not 2"},
    {"(f32)->(f32) add($0)", "add takes 2 operands, not 1"},
    {"(f32)->(f32) select($0)", "select takes 3 operands, not 1"},
    {"(f32,i32)->(f32) add($0,$1)", "add takes numbers of one type, not f32 and i32"},
    {"(bool)->(bool) add($0,$0)", "add takes numbers of one type, not bool and bool"},
    {"(i32)->(i32) sqrt($0)", "sqrt takes f32 or f64, not i32"},
    {"(i32)->(i32) not($0)", "not takes bool, not i32"},
    {"(f32)->(f32) bitnot($0)", "bitnot takes integers, not f32"},
    {"(f32)->(f32) select($0,$0,$0)", "select takes a bool first, not f32"},
    {"(f32)->(i32) $0", "a result of type i32 is computed in i32, not f32"},
    {"(f32)->(f32) lt($0,1f32)", "a result of type f32 is computed in f32, not bool"},
    {"()->(i64) index(8)", "an index of axis 8"},
    {"()->(i64) index(-1)", "a number is expected"},
    {"()->(f32) 1", "a value is expected"},
    {"()->(f32) 1x32", "a value is expected"},
    {"()->(f32) 1e99f32", "a value is expected"},
    {"()->(i32) 2147483648i32", "a value is expected"},
    {"()->(u32) -1u32", "a value is expected"},
    {"()->(bool) 2bool", "a value is expected"},
    {"()->(f32) 0x10f32", "a value is expected"},
};
INSTANTIATE_TEST_SUITE_P(All, WrongProgramText, testing::ValuesIn(kWrongTexts));

TEST(ProgramText, OfAnyDepthIsReadWithoutRecursion) {
  std::string deep = "(f32)->(f32) ";
  for (int i = 0; i < 1'000'000; ++i) deep += "exp(";
  EXPECT_THROW(parse_program(deep), Error);
  std::string deepest;
  for (int i = 0; i < 4095; ++i) deepest += "exp(";
  deepest += "$0" + std::string(4095, ')');
  const Program program = parse_program("(f32)->(f32) " + deepest);
  EXPECT_EQ(program.code().size(), 4096u);
  EXPECT_EQ(parse_program(to_string(program)), program);
  EXPECT_EQ(through_bytes(program), program);
}

TEST(ProgramBuilder, SharesWhatIsEqualAndOrdersWhatCommutes) {
  ProgramBuilder one;
  const Reg a = one.input(0, DataType::kF32);
  const Reg b = one.input(1, DataType::kF32);
  const Reg ab = one.apply(Opcode::kAdd, one.apply(Opcode::kExp, a), one.apply(Opcode::kLog, b));
  const Program first = one.finish(one.apply(Opcode::kMul, ab, ab), DataType::kF32);

  ProgramBuilder other;  // made in another order, with dead ends
  other.constant(3.0f);
  const Reg y = other.input(1, DataType::kF32);
  const Reg log = other.apply(Opcode::kLog, y);
  other.apply(Opcode::kTan, log);
  const Reg x = other.input(0, DataType::kF32);
  const Reg exp = other.apply(Opcode::kExp, x);
  const Program second = other.finish(other.apply(Opcode::kMul, other.apply(Opcode::kAdd, log, exp),
                                                  other.apply(Opcode::kAdd, exp, log)),
                                      DataType::kF32);
  EXPECT_EQ(first, second);
  EXPECT_EQ(to_string(second), "(f32,f32)->(f32) %0=add(exp($0),log($1)); mul(%0,%0)");
}

TEST(ProgramBuilder, ConstantsAreConverted) {
  ProgramBuilder builder;
  const std::vector<std::pair<Reg, DataType>> results = {
      {builder.constant(0.5f), DataType::kF32},
      {builder.constant(0.1), DataType::kF64},
      {builder.constant(RegisterType::kF32, 0.1), DataType::kF32},
      {builder.constant(RegisterType::kI32, 1e99), DataType::kI32},
      {builder.constant(RegisterType::kU32, -1.0), DataType::kU32},
      {builder.constant(RegisterType::kBool, 2.0), DataType::kBool},
      {builder.constant(RegisterType::kU64, int64_t{-1}), DataType::kU64},
      {builder.constant(RegisterType::kF32, int64_t{16777217}), DataType::kF32},
      {builder.constant(RegisterType::kI32, int64_t{1} << 32), DataType::kI32},
  };
  EXPECT_EQ(to_string(builder.finish(results)),
            "()->(f32,f64,f32,i32,u32,bool,u64,f32,i32) 0.5f32, 0.1f64, 0.1f32, 2147483647i32, "
            "0u32, 1bool, 18446744073709551615u64, 16777216f32, 0i32");
}

TEST(ProgramBuilder, RoundCastsFirstButRoundsOnce) {
  ProgramBuilder builder;
  const Reg f64 = builder.input(0, DataType::kF64);
  const Reg i64 = builder.input(1, DataType::kI64);
  const std::vector<std::pair<Reg, DataType>> results = {
      {builder.round(f64, DataType::kF16), DataType::kF16},
      {builder.round(f64, DataType::kF32), DataType::kF32},
      {builder.round(i64, DataType::kF16), DataType::kF16},
      {builder.round(i64, DataType::kU8), DataType::kU8},
      {builder.round(f64, DataType::kBool), DataType::kBool},
      {builder.saturate(i64, DataType::kU8), DataType::kU8},
      {i64, DataType::kI8},
  };
  EXPECT_EQ(to_string(builder.finish(results)),
            "(f64,i64)->(f16,f32,f16,u8,bool,u8,i8) round_f16($0), f32($0), round_f16(f32($1)), "
            "round_u8(u32($1)), bool($0), saturate_u8($1), round_i8(i32($1))");
}

TEST(ProgramBuilder, InliningKeepsEveryRounding) {
  const Program producer = parse_program("(f32,f32)->(f16) round_f16(mul($0,$1))");
  const Program consumer = parse_program("(f16,f32)->(f16) round_f16(add($0,$1))");
  ProgramBuilder builder;
  const Reg a = builder.input(0, DataType::kF32);
  const Reg b = builder.input(1, DataType::kF32);
  const Reg made = builder.inline_program(producer, {{a, b}}).front();
  const Reg used = builder.inline_program(consumer, {{made, b}}).front();
  EXPECT_EQ(to_string(builder.finish(used, DataType::kF16)),
            "(f32,f32)->(f16) round_f16(add($1,round_f16(mul($0,$1))))");

  // A register that was never rounded stands for an input of fewer bits.
  const Reg whole = builder.inline_program(consumer, {{a, b}}).front();
  EXPECT_EQ(to_string(builder.finish(whole, DataType::kF16)),
            "(f32,f32)->(f16) round_f16(add($1,round_f16($0)))");
}

TEST(ProgramBuilder, OurBugsFailAsSuch) {
  const auto expect_bug = [](auto&& body) {
    try {
      ProgramBuilder builder;
      body(builder);
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInternal) << error.what();
    }
  };
  using B = ProgramBuilder;
  expect_bug(
      [](B& b) { b.apply(Opcode::kAdd, b.input(0, DataType::kF32), b.input(1, DataType::kI64)); });
  expect_bug([](B& b) { b.input(0, DataType::kF32), b.input(0, DataType::kF16); });
  expect_bug([](B& b) { b.apply(Opcode::kNot, b.input(0, DataType::kF32)); });
  expect_bug([](B& b) { b.apply(Opcode::kAdd, b.input(0, DataType::kF32)); });
  expect_bug([](B& b) { b.apply(Opcode::kCast, b.input(0, DataType::kF32)); });
  expect_bug([](B& b) { b.saturate(b.input(0, DataType::kF32), DataType::kF16); });
  expect_bug([](B& b) { b.input(0, DataType::kString); });
  expect_bug([](B& b) { b.index(8); });
  expect_bug([](B& b) { b.index(-1); });
  expect_bug([](B& b) { b.finish(b.input(1, DataType::kF32), DataType::kF32); });
  expect_bug([](B& b) { b.finish(Reg{5, RegisterType::kF32}, DataType::kF32); });
  expect_bug([](B& b) {
    b.inline_program(parse_program("(f32)->(f32) $0"), {{b.input(0, DataType::kI32)}});
  });
  expect_bug([](B& b) { b.inline_program(parse_program("(f32)->(f32) $0"), {}); });
}

TEST(ProgramBuilder, RefusesMoreThan4096Instructions) {
  ProgramBuilder builder;
  Reg reg = builder.input(0, DataType::kF32);
  try {
    for (int i = 0; i < 4096; ++i) reg = builder.apply(Opcode::kExp, reg);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  }
}

TEST(Program, KnowsWhatItIs) {
  EXPECT_TRUE(Program().empty());
  EXPECT_EQ(parse_program("()->()"), Program());
  EXPECT_FALSE(Program().is_identity());
  EXPECT_TRUE(parse_program("(f16)->(f16) $0").is_identity());
  EXPECT_FALSE(parse_program("(f16)->(f32) $0").is_identity());
  EXPECT_FALSE(parse_program("(f32,f32)->(f32) $0").is_identity());
  EXPECT_FALSE(parse_program("(f32)->(f32) neg($0)").is_identity());
  EXPECT_TRUE(parse_program("()->(i64) neg(index(0))").uses_index());
  EXPECT_FALSE(parse_program("(f32)->(f32) neg($0)").uses_index());
}

}  // namespace
}  // namespace anneal
