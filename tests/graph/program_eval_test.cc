// evaluate(): tables of expressions of constants, which the parser folds through it, and the
// functions of the C library against long double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/graph/program/program.h"

namespace anneal {
namespace {

struct Case {
  const char* expression;
  const char* value;
};

std::string folded(const std::string& expression, std::string_view value) {
  for (const char* type : {"bool", "f32", "f64", "i32", "i64", "u32", "u64"}) {
    if (!value.ends_with(type)) continue;
    const std::string head = "()->(" + std::string(type) + ") ";
    return to_string(parse_program(head + expression)).substr(head.size());
  }
  return "a value without a type";
}

class Evaluate : public testing::TestWithParam<Case> {};

TEST_P(Evaluate, Gives) {
  EXPECT_EQ(folded(GetParam().expression, GetParam().value), GetParam().value)
      << GetParam().expression;
}

constexpr Case kFloats[] = {
    {"neg(0f32)", "-0f32"},
    {"neg(nanf32)", "nanf32"},
    {"abs(-0f32)", "0f32"},
    {"abs(-inff64)", "inff64"},
    {"sign(-3f32)", "-1f32"},
    {"sign(1e-45f32)", "1f32"},
    {"sign(-0f32)", "0f32"},
    {"sign(nanf32)", "nanf32"},
    {"ceil(-0.5f32)", "-0f32"},
    {"ceil(1.5f64)", "2f64"},
    {"floor(-0.5f32)", "-1f32"},
    {"rint(0.5f32)", "0f32"},
    {"rint(1.5f32)", "2f32"},
    {"rint(2.5f32)", "2f32"},
    {"rint(-0.5f32)", "-0f32"},
    {"trunc(-1.9f32)", "-1f32"},
    {"sqrt(-1f32)", "nanf32"},
    {"sqrt(-0f32)", "-0f32"},
    {"sqrt(2f32)", "1.4142135f32"},
    {"exp(-inff32)", "0f32"},
    {"exp(89f32)", "inff32"},
    {"log(0f32)", "-inff32"},
    {"log(-1f32)", "nanf32"},
    {"log1p(-1f32)", "-inff32"},
    {"expm1(-0f32)", "-0f32"},
    {"erf(inff32)", "1f32"},
    {"asin(2f32)", "nanf32"},
    {"acosh(0.5f32)", "nanf32"},
    {"atanh(1f32)", "inff32"},
    {"sin(inff32)", "nanf32"},
    {"tanh(-inff32)", "-1f32"},
    {"sigmoid(0f32)", "0.5f32"},
    {"sigmoid(-inff32)", "0f32"},
    {"sigmoid(inff32)", "1f32"},
    {"sigmoid(nanf32)", "nanf32"},
    {"add(3.4028235e+38f32,3.4028235e+38f32)", "inff32"},
    {"add(16777216f32,1f32)", "16777216f32"},
    {"add(16777216f64,1f64)", "16777217f64"},
    {"sub(inff32,inff32)", "nanf32"},
    {"mul(0f32,inff32)", "nanf32"},
    {"div(1f32,-0f32)", "-inff32"},
    {"div(0f32,0f32)", "nanf32"},
    {"mod(-7f32,3f32)", "2f32"},
    {"mod(7f32,-3f32)", "-2f32"},
    {"mod(6f32,-3f32)", "-0f32"},
    {"mod(-1f32,inff32)", "inff32"},
    {"mod(1f32,0f32)", "nanf32"},
    {"rem(-7f32,3f32)", "-1f32"},
    {"rem(7f32,-3f32)", "1f32"},
    {"rem(1f32,inff32)", "1f32"},
    {"pow(0f32,0f32)", "1f32"},
    {"pow(nanf32,0f32)", "1f32"},
    {"pow(-8f32,0.5f32)", "nanf32"},
    {"pow(2f64,-2f64)", "0.25f64"},
    {"min(1f32,nanf32)", "nanf32"},
    {"max(nanf32,1f32)", "nanf32"},
    {"min(-inff32,1f32)", "-inff32"},
    {"max(2f64,3f64)", "3f64"},
    {"isnan(nanf32)", "1bool"},
    {"isnan(inff64)", "0bool"},
    {"isinf(-inff64)", "1bool"},
    {"isinf(nanf32)", "0bool"},
    {"eq(0f32,-0f32)", "1bool"},
    {"eq(nanf32,nanf32)", "0bool"},
    {"lt(1f32,nanf32)", "0bool"},
    {"le(nanf32,nanf32)", "0bool"},
    {"le(-inff32,-inff32)", "1bool"},
    {"lt(-0f32,0f32)", "0bool"},
};
INSTANTIATE_TEST_SUITE_P(Floats, Evaluate, testing::ValuesIn(kFloats));

constexpr Case kIntegers[] = {
    {"neg(-2147483648i32)", "-2147483648i32"},
    {"neg(1u32)", "4294967295u32"},
    {"abs(-2147483648i32)", "-2147483648i32"},
    {"abs(-5i64)", "5i64"},
    {"abs(4294967295u32)", "4294967295u32"},
    {"sign(-9i32)", "-1i32"},
    {"sign(0u64)", "0u64"},
    {"sign(18446744073709551615u64)", "1u64"},
    {"bitnot(0i32)", "-1i32"},
    {"bitnot(0u64)", "18446744073709551615u64"},
    {"add(2147483647i32,1i32)", "-2147483648i32"},
    {"add(4294967295u32,2u32)", "1u32"},
    {"sub(0u64,1u64)", "18446744073709551615u64"},
    {"mul(65536i32,65536i32)", "0i32"},
    {"mul(9223372036854775807i64,2i64)", "-2i64"},
    {"div(-7i32,2i32)", "-3i32"},
    {"div(7i32,0i32)", "0i32"},
    {"div(7u64,0u64)", "0u64"},
    {"div(-2147483648i32,-1i32)", "-2147483648i32"},
    {"div(-9223372036854775808i64,-1i64)", "-9223372036854775808i64"},
    {"div(4294967295u32,4294967295u32)", "1u32"},
    {"mod(-7i32,3i32)", "2i32"},
    {"mod(7i32,-3i32)", "-2i32"},
    {"mod(-6i32,3i32)", "0i32"},
    {"mod(7i32,0i32)", "0i32"},
    {"mod(-2147483648i32,-1i32)", "0i32"},
    {"mod(7u32,4u32)", "3u32"},
    {"rem(-7i32,3i32)", "-1i32"},
    {"rem(7i32,-3i32)", "1i32"},
    {"rem(-2147483648i32,-1i32)", "0i32"},
    {"rem(5i64,0i64)", "0i64"},
    {"pow(3i32,4i32)", "81i32"},
    {"pow(0i32,0i32)", "1i32"},
    {"pow(2i32,31i32)", "-2147483648i32"},
    {"pow(2i32,32i32)", "0i32"},
    {"pow(3u32,4294967295u32)", "2863311531u32"},
    {"pow(1i32,-5i32)", "1i32"},
    {"pow(-1i32,-5i32)", "-1i32"},
    {"pow(-1i32,-4i32)", "1i32"},
    {"pow(-1i64,-9223372036854775808i64)", "1i64"},
    {"pow(2i32,-1i32)", "0i32"},
    {"pow(0i32,-1i32)", "0i32"},
    {"min(-1i32,1i32)", "-1i32"},
    {"max(1u32,4294967295u32)", "4294967295u32"},
    {"bitand(-1i32,255i32)", "255i32"},
    {"bitor(1u64,2u64)", "3u64"},
    {"bitxor(-1i32,1i32)", "-2i32"},
    {"shl(1u32,31u32)", "2147483648u32"},
    {"shl(1u32,32u32)", "0u32"},
    {"shl(1i32,31i32)", "-2147483648i32"},
    {"shl(1u64,63u64)", "9223372036854775808u64"},
    {"shl(1u64,64u64)", "0u64"},
    {"shl(1i32,-1i32)", "0i32"},
    {"shr(2147483648u32,31u32)", "1u32"},
    {"shr(4294967295u32,32u32)", "0u32"},
    {"shr(4294967295u32,4294967295u32)", "0u32"},
    {"shr(-8i32,1i32)", "-4i32"},
    {"shr(-8i32,31i32)", "-1i32"},
    {"shr(-8i32,32i32)", "0i32"},
    {"shr(-8i64,-1i64)", "0i64"},
    {"eq(-1i32,-1i32)", "1bool"},
    {"lt(-1i32,0i32)", "1bool"},
    {"lt(4294967295u32,0u32)", "0bool"},
    {"le(3i64,3i64)", "1bool"},
};
INSTANTIATE_TEST_SUITE_P(Integers, Evaluate, testing::ValuesIn(kIntegers));

constexpr Case kBools[] = {
    {"not(0bool)", "1bool"},
    {"not(1bool)", "0bool"},
    {"and(1bool,1bool)", "1bool"},
    {"and(0bool,1bool)", "0bool"},
    {"or(0bool,1bool)", "1bool"},
    {"or(0bool,0bool)", "0bool"},
    {"xor(1bool,1bool)", "0bool"},
    {"xor(0bool,1bool)", "1bool"},
    {"eq(0bool,0bool)", "1bool"},
    {"eq(0bool,1bool)", "0bool"},
    {"select(1bool,2i32,3i32)", "2i32"},
    {"select(0bool,2i32,3i32)", "3i32"},
    {"select(0bool,1bool,0bool)", "0bool"},
};
INSTANTIATE_TEST_SUITE_P(Bools, Evaluate, testing::ValuesIn(kBools));

constexpr Case kConversions[] = {
    {"i32(-1.9f32)", "-1i32"},
    {"i32(2147483648f32)", "2147483647i32"},
    {"i32(2147483647f64)", "2147483647i32"},
    {"i32(2147483646.9f64)", "2147483646i32"},
    {"i32(-inff32)", "-2147483648i32"},
    {"i32(nanf32)", "0i32"},
    {"i64(9223372036854775808f32)", "9223372036854775807i64"},
    {"i64(-1e+30f64)", "-9223372036854775808i64"},
    {"u32(-0.9f32)", "0u32"},
    {"u32(-5f32)", "0u32"},
    {"u32(4294967296f32)", "4294967295u32"},
    {"u32(4294967295.5f64)", "4294967295u32"},
    {"u64(inff32)", "18446744073709551615u64"},
    {"u64(1.9f32)", "1u64"},
    {"i32(4294967295i64)", "-1i32"},
    {"u32(-1i32)", "4294967295u32"},
    {"u64(-1i32)", "18446744073709551615u64"},
    {"i64(4294967295u32)", "4294967295i64"},
    {"i64(-1i32)", "-1i64"},
    {"f32(16777217i32)", "16777216f32"},
    {"f32(18446744073709551615u64)", "1.8446744e+19f32"},
    {"f64(9223372036854775807i64)", "9223372036854775808f64"},
    {"f32(0.1f64)", "0.1f32"},
    {"f32(1e+300f64)", "inff32"},
    {"f32(-1e-300f64)", "-0f32"},
    {"f64(0.1f32)", "0.10000000149011612f64"},
    {"f64(nanf32)", "nanf64"},
    {"bool(nanf32)", "1bool"},
    {"bool(-0f32)", "0bool"},
    {"bool(0.1f32)", "1bool"},
    {"bool(256i32)", "1bool"},
    {"bool(4294967296i64)", "1bool"},
    {"f32(1bool)", "1f32"},
    {"u64(1bool)", "1u64"},
    {"i32(0bool)", "0i32"},
    // rounding to 16 bits: ties to even, overflow, subnormals, and once only
    {"round_f16(0.1f32)", "0.099975586f32"},
    {"round_f16(2049f32)", "2048f32"},
    {"round_f16(2051f32)", "2052f32"},
    {"round_f16(65519.996f32)", "65504f32"},
    {"round_f16(65520f32)", "inff32"},
    {"round_f16(-inff32)", "-inff32"},
    {"round_f16(nanf32)", "nanf32"},
    {"round_f16(-0f32)", "-0f32"},
    {"round_f16(2.9802322e-08f32)", "0f32"},
    {"round_f16(2.9802326e-08f32)", "5.9604645e-08f32"},
    {"round_bf16(0.1f32)", "0.100097656f32"},
    {"round_bf16(257f32)", "256f32"},
    {"round_bf16(259f32)", "260f32"},
    {"round_bf16(3.4028235e+38f32)", "inff32"},
    {"round_f16(1.000488281250909f64)", "1.0009766f32"},
    {"round_f16(1.00048828125f64)", "1f32"},
    {"round_bf16(1.0039062500009095f64)", "1.0078125f32"},
    {"round_bf16(1.00390625f64)", "1f32"},
    {"round_bf16(-1.0039062500009095f64)", "-1.0078125f32"},
    {"round_bf16(1.0117187499990905f64)", "1.0078125f32"},
    {"round_bf16(1e+300f64)", "inff32"},
    {"round_bf16(-1e-300f64)", "-0f32"},
    {"round_bf16(nanf64)", "nanf32"},
    // rounding of integers wraps
    {"round_i8(128i32)", "-128i32"},
    {"round_i8(-129i32)", "127i32"},
    {"round_u8(256u32)", "0u32"},
    {"round_i16(32768i32)", "-32768i32"},
    {"round_u16(65537u32)", "1u32"},
    // saturating
    {"saturate_i8(128i32)", "127i32"},
    {"saturate_i8(-129i64)", "-128i32"},
    {"saturate_i8(4294967295u32)", "127i32"},
    {"saturate_u8(-1i32)", "0u32"},
    {"saturate_u8(256u32)", "255u32"},
    {"saturate_u8(18446744073709551615u64)", "255u32"},
    {"saturate_u16(65536i32)", "65535u32"},
    {"saturate_i16(-40000f32)", "-32768i32"},
    {"saturate_i32(2147483648i64)", "2147483647i32"},
    {"saturate_u32(-1i64)", "0u32"},
    {"saturate_i64(18446744073709551615u64)", "9223372036854775807i64"},
    {"saturate_u64(-1i64)", "0u64"},
    {"saturate_i8(-127.9f32)", "-127i32"},
    {"saturate_i8(1e+30f32)", "127i32"},
    {"saturate_u8(-inff64)", "0u32"},
    {"saturate_u8(nanf32)", "0u32"},
};
INSTANTIATE_TEST_SUITE_P(Conversions, Evaluate, testing::ValuesIn(kConversions));

using Function = long double (*)(long double);
struct LibraryCase {
  Opcode opcode;
  Function truth;
};

template <class T>
T evaluate_one(Opcode opcode, RegisterType type, T x) {
  const Scalar operand = Scalar::of(x);
  return evaluate({opcode, type, {}, 0}, {&operand, 1}, {&type, 1}).as<T>();
}

template <class T>
void expect_within_4_ulp(const LibraryCase& c, RegisterType type, T x) {
  const long double truth = c.truth(x);
  const T value = evaluate_one(c.opcode, type, x);
  if (std::isnan(truth)) {
    EXPECT_TRUE(std::isnan(value)) << to_string(c.opcode) << "(" << x << ")";
    return;
  }
  const T nearest = static_cast<T>(truth);
  if (std::isinf(nearest) || nearest == 0) {
    EXPECT_EQ(value, nearest) << to_string(c.opcode) << "(" << x << ")";
    return;
  }
  const long double ulp =
      std::nextafter(std::abs(nearest), std::numeric_limits<T>::infinity()) - std::abs(nearest);
  EXPECT_LE(std::abs(value - truth), 4 * ulp) << to_string(c.opcode) << "(" << x << ")";
}

TEST(Evaluate, FunctionsAreWithin4Ulp) {
  const LibraryCase cases[] = {
      {Opcode::kExp, std::exp},
      {Opcode::kLog, std::log},
      {Opcode::kLog1p, std::log1p},
      {Opcode::kExpm1, std::expm1},
      {Opcode::kErf, std::erf},
      {Opcode::kSin, std::sin},
      {Opcode::kCos, std::cos},
      {Opcode::kTan, std::tan},
      {Opcode::kAsin, std::asin},
      {Opcode::kAcos, std::acos},
      {Opcode::kAtan, std::atan},
      {Opcode::kSinh, std::sinh},
      {Opcode::kCosh, std::cosh},
      {Opcode::kTanh, std::tanh},
      {Opcode::kAsinh, std::asinh},
      {Opcode::kAcosh, std::acosh},
      {Opcode::kAtanh, std::atanh},
      {Opcode::kSqrt, std::sqrt},
      {Opcode::kSigmoid, [](long double x) { return 1 / (1 + std::exp(-x)); }},
  };
  for (const LibraryCase& c : cases)
    for (const float x : {0.0f, 1e-30f, 1e-5f, 0.1f, 0.5f, 0.999f, 1.0f, 1.5f, 3.0f, 7.7f, 30.0f,
                          60.0f, 87.0f, 100.0f, 1e4f, INFINITY, NAN})
      for (const float signed_x : {x, -x}) {
        expect_within_4_ulp<float>(c, RegisterType::kF32, signed_x);
        expect_within_4_ulp<double>(c, RegisterType::kF64, signed_x);
      }
}

TEST(Scalar, StorageRoundTrips) {
  for (const DataType dtype : all_dtypes()) {
    if (dtype == DataType::kString) continue;
    for (int i = 0; i < 256; ++i) {
      std::byte from[8] = {}, to[8] = {};
      for (size_t b = 0; b < size_of(dtype); ++b) from[b] = static_cast<std::byte>(i + 37 * b);
      if (dtype == DataType::kBool) from[0] &= std::byte{1};
      if (is_half(dtype) && std::isnan(load_scalar(dtype, from).as<float>()))
        continue;  // made quiet
      store_scalar(dtype, load_scalar(dtype, from), to);
      EXPECT_EQ(std::memcmp(from, to, size_of(dtype)), 0) << to_string(dtype) << " " << i;
    }
  }
}

TEST(Scalar, LoadsWiden) {
  const auto loaded = [](DataType dtype, std::initializer_list<int> bytes) {
    std::byte from[8] = {};
    size_t i = 0;
    for (const int byte : bytes) from[i++] = static_cast<std::byte>(byte);
    return load_scalar(dtype, from);
  };
  EXPECT_EQ(loaded(DataType::kI8, {0xff}), Scalar::of(int32_t{-1}));
  EXPECT_EQ(loaded(DataType::kU8, {0xff}), Scalar::of(uint32_t{255}));
  EXPECT_EQ(loaded(DataType::kI16, {0x00, 0x80}), Scalar::of(int32_t{-32768}));
  EXPECT_EQ(loaded(DataType::kU16, {0x00, 0x80}), Scalar::of(uint32_t{32768}));
  EXPECT_EQ(loaded(DataType::kF16, {0x00, 0x3c}), Scalar::of(1.0f));
  EXPECT_EQ(loaded(DataType::kBF16, {0x80, 0xbf}), Scalar::of(-1.0f));
  EXPECT_EQ(loaded(DataType::kBool, {2}), Scalar::of(true));
}

}  // namespace
}  // namespace anneal
